"""Tables of plain values as LaTeX: a plain `tabular` in ASCII, which needs no package."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ..outside.tables import number, with_intervals

SPECIAL = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''", "…": r"\ldots{}",
    "ß": r"\ss{}", "Ø": r"\O{}", "ø": r"\o{}", "Æ": r"\AE{}", "æ": r"\ae{}", "Œ": r"\OE{}",
    "œ": r"\oe{}", "Ł": r"\L{}", "ł": r"\l{}",
}  # fmt: skip
# Commands for the accents that every font of LaTeX has, by the combining sign.
ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u",
    "\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip
MATHS = {
    "−": "-", "±": r"\pm", "×": r"\times", "·": r"\cdot", "≤": r"\leq", "≥": r"\geq",
    "≠": r"\neq", "≈": r"\approx", "√": r"\surd", "∞": r"\infty", "‖": r"\|", "∇": r"\nabla",
    "→": r"\to", "½": r"\frac12", "✓": r"\surd", "✗": r"\times", "ε": r"\varepsilon",
    "ϵ": r"\epsilon", "∑": r"\sum", "∂": r"\partial", "′": "'",
}  # fmt: skip
# Greek letters and how their capitals are written: some look like Latin ones, and have no command.
GREEK = {
    "alpha": "A", "beta": "B", "epsilon": "E", "zeta": "Z", "eta": "H", "iota": "I", "kappa": "K",
    "mu": "M", "nu": "N", "omicron": "O", "rho": "P", "tau": "T", "chi": "X",
    "gamma": r"\Gamma", "delta": r"\Delta", "theta": r"\Theta", "lambda": r"\Lambda", "xi": r"\Xi",
    "pi": r"\Pi", "sigma": r"\Sigma", "upsilon": r"\Upsilon", "phi": r"\Phi", "psi": r"\Psi",
    "omega": r"\Omega",
}  # fmt: skip
PACKAGES = "A plain tabular: it needs no package."


def latex(rows: Sequence[Mapping[str, Any]], comment: str = "") -> str:
    r"""Return rows of plain values as a `tabular` below a comment, the packages it needs first.

    x, x_low and x_high become one column "x [low, high]".

    >>> print(latex([{"test_error": 0.12345, "name": "50 % of γ"}], "xor"), end="")
    % A plain tabular: it needs no package.
    % xor
    \begin{tabular}{rl}
    \hline
    test error & name \\
    \hline
    0.1235 & 50 \% of $\gamma$ \\
    \hline
    \end{tabular}
    """
    lines = [f"% {escaped(line)}" for line in (PACKAGES, *comment.splitlines())]
    rows = [with_intervals(row) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    sides = "".join(_side([row.get(name) for row in rows]) for name in names)
    lines += [f"\\begin{{tabular}}{{{sides or 'l'}}}", r"\hline"]
    if names:
        lines += [_line(name.replace("_", " ") for name in names), r"\hline"]
    lines += [_line(number(row.get(name)) for name in names) for row in rows]
    lines += [r"\hline", r"\end{tabular}"] if rows else [r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _side(values: Sequence[Any]) -> str:
    """Return the alignment of a column: text left, numbers right."""
    return "l" if any(isinstance(value, str) for value in values) else "r"


def _line(cells: Any) -> str:
    return " & ".join(escaped(cell) for cell in cells) + r" \\"


def escaped(text: str) -> str:
    r"""Return a text that LaTeX prints as it is; a letter it cannot print becomes its code point.

    >>> print(escaped("a_b & 5 % ± ρ², ☃"))
    a\_b \& 5 \% $\pm$ $\rho$$^{2}$, [U+2603]
    """
    made = "".join(map(_sign, " ".join(text.split())))
    return re.sub(r"^\[", r"{[}", made)  # after \\ a bracket would be an option


def _sign(sign: str) -> str:
    if sign in SPECIAL:
        return SPECIAL[sign]
    if sign in MATHS:
        return f"${MATHS[sign]}$"
    if greek := re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(sign, "")):
        size, letter = greek[1], {"LAMDA": "lambda"}.get(greek[2], greek[2].lower())
        if letter in GREEK:
            return f"${GREEK[letter] if size == 'CAPITAL' else _small(letter)}$"
    kind, _, digit = unicodedata.decomposition(sign).partition(" ")
    if kind in ("<super>", "<sub>") and " " not in digit:
        index = chr(int(digit, 16)).replace("−", "-")
        if index.isascii():
            return f"${'^' if kind == '<super>' else '_'}{{{index}}}$"
    if sign.isascii() and sign.isprintable():
        return sign
    letter, *accent = list(unicodedata.normalize("NFD", sign))
    if letter.isascii() and len(accent) == 1 and accent[0] in ACCENTS:
        letter = f"\\{letter}" if letter in "ij" else letter  # without its dot
        return f"\\{ACCENTS[accent[0]]}{{{letter}}}"
    return f"[U+{ord(sign):04X}]"


def _small(letter: str) -> str:
    return "o" if letter == "omicron" else f"\\{letter}"
