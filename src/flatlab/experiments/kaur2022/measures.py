"""Other measures of flatness: does any of them follow test accuracy under all five interventions?

Source:   Kaur, Cohen & Lipton 2022, Section 4: "our findings do not necessarily hold for other
          flatness metrics (e.g., the Hessian trace)"; Appendix A.1.
Command:  flatlab run kaur2022/measures
Seconds:  not measured yet (lab); 32 of processor time (quick, 2 seeds)
Claim:    open: the paper measures λ_max alone. Appendix A.1: to second order the largest loss
          within ρ of the weights is at most L + ρ‖∇L‖ + ½ρ²λ_max.
Expected: for each measure Kendall's τ-b with test accuracy within each intervention; a measure that
          explains generalisation has τ below 0 in all five. The rise within ρ = 0.05 that ascent
          finds, over the bound of A.1, is below 1.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What is chosen here:
- The interventions are lines of the figures: learning rate (kaur2022/fig1, small batch), batch size
  (kaur2022/fig3, at the middle learning rate of each), SAM (kaur2022/fig6, small batch), dropout
  (kaur2022/fig8) and BatchNorm (kaur2022/fig10, pairs of runs with the same learning rate). Runs
  that these figures trained are used again.
- λ_max, trace, ‖H‖_F, the rise of the loss along SAM's step and within its ball, adaptive sharpness
  and the alignment μ of gradient noise are measured at the end of each run, on the examples that
  the figures measure λ_max on, with dropout off and BatchNorm's running statistics. λ_max with
  batch statistics, as the authors take it, is one more row.
- Pairs of runs are compared within an intervention, and over all runs on the same data set.
  Networks on different data sets are not compared. Runs that missed 99 % are counted and left out.
- A reversal (Simpson) is a pooled τ whose interval has the other sign than that of an intervention.
- The bound of A.1 is of second order: the true rise may exceed it where third derivatives matter.
  Ascent finds a lower bound of the rise, so a ratio below 1 is no proof.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...plots import Heat, Plot
from ...training.run import Run
from ..arms import Comparison, Tables
from ..compared import Compared
from ..contract import Verdict
from ..deciding import Uncorrected, by_interval, corrected
from ..judging import Rule
from ..statistics import Bootstrapped, association, mean_over_seeds, reverses
from ._claims import accuracy, reached, sharpness
from ._figure import SOURCE, missed_in_words, notes
from ._interventions import PRESETS, RADIUS, arms, interventions, key_of, mlp_settings
from ._protocol import require

Reader = Callable[[Run, Mapping[str, Any]], float | None]


def _reading(name: str, label: str | None = None) -> Reader:
    """Return how to read a measure off a stored document; a label picks one of several values."""

    def read(run: Run, ends: Mapping[str, Any]) -> float | None:
        for key, one in ends["measures"].items():
            if key.partition(":")[0] == name:
                value: Any = one["value"]
                found: float | None = value
                if label is not None:
                    found = value[one["labels"].index(label)]
                return found
        return None

    return read


MEASURES: dict[str, Reader] = {
    "λ_max": _reading("lambda_max"),
    "λ_max, batch statistics": lambda run, ends: sharpness(run),
    "trace": _reading("trace"),
    "‖H‖_F": _reading("frobenius"),
    "SAM sharpness": _reading("sam_sharpness_steps"),
    "SAM sharpness, one step": _reading("sam_sharpness"),
    "adaptive sharpness": _reading("adaptive_sharpness"),
    "alignment μ": _reading("alignment", "μ"),
}


def observations(found: Compared) -> list[dict[str, Any]]:
    """Return a row for each run that reached its target: where it belongs, and all its measures."""
    rows = []
    for name, cells in interventions(found.settings).items():
        for stratum, cell in cells:
            key = key_of(name, cell)
            for seed, run in found.runs[key].items():
                ends = found.computed[key, "measures"].get(seed)
                if ends is None or not reached(run):
                    continue
                row = {"intervention": name, "stratum": f"{name} {stratum}", "seed": seed}
                row |= {"key": key, "data": run.config.data["name"], "accuracy": accuracy(run)}
                row |= {what: read(run, ends) for what, read in MEASURES.items()}
                rows.append(row)
    return rows


def tau(rows: Sequence[Mapping[str, Any]], measure: str, strata: str) -> Bootstrapped | None:
    """Return Kendall's τ-b of a measure and accuracy over pairs of runs of one stratum."""
    known = [row for row in rows if row[measure] is not None and np.isfinite(row[measure])]
    columns = ([row[name] for row in known] for name in (measure, "accuracy", "seed", strata))
    return association(*columns)


def pooled(rows: Sequence[Mapping[str, Any]], measure: str) -> Bootstrapped | None:
    """Return τ-b over all runs on the same data set; a run of two interventions counts once."""
    once = {(row["key"], row["seed"]): row for row in rows}
    return tau(list(once.values()), measure, "data")


def table_of(found: Compared) -> list[dict[str, Any]]:
    """Return a row for each measure and intervention, and for all runs."""
    rows, made = observations(found), []
    for measure in MEASURES:
        whole = pooled(rows, measure)
        groups = {name: [r for r in rows if r["intervention"] == name] for name in _names(found)}
        for name, part in {"all": rows, **groups}.items():
            one = whole if name == "all" else tau(part, measure, "stratum")
            ends = one.interval() if one else None
            made.append(
                {
                    "measure": measure,
                    "intervention": name,
                    "tau": one.estimate if one else None,
                    "low": ends.low if ends else None,
                    "high": ends.high if ends else None,
                    "reversal": name != "all" and reverses(one, whole),
                    "runs": len({(row["key"], row["seed"]) for row in part}),
                }
            )
    return made


def _names(found: Compared) -> list[str]:
    return list(interventions(found.settings))


def tables(found: Compared) -> Tables:
    """Return the associations, and the means of all measures in each setting."""
    rows, means = observations(found), []
    for name, cells in interventions(found.settings).items():
        for _, cell in cells:
            part = [row for row in rows if row["key"] == key_of(name, cell)]
            part = [row for row in part if row["intervention"] == name]
            made: dict[str, Any] = {"intervention": name, "setting": cell.label}
            for what in ("accuracy", *MEASURES):
                values = [row[what] for row in part if row[what] is not None]
                made[what] = float(np.mean(values)) if values else None
            there = len(found.runs[key_of(name, cell)])
            means.append(made | {"runs": there, "missed": there - len(part)})
    return {"measures": table_of(found), "measures-means": means}


def judged(found: Compared) -> list[Uncorrected]:
    """Judge for each measure: within every intervention, flatter runs generalise better.

    Every correlation must be below 0. For such an intersection of claims the least certain one
    answers, without correction; one that is above 0 refutes it, corrected for five tries.
    """
    rows = observations(found)
    made = []
    for measure in MEASURES:
        parts = [
            tau([row for row in rows if row["intervention"] == name], measure, "stratum")
            for name in _names(found)
        ]
        there = [part for part in parts if part is not None]
        worst = least_certain(there) if len(there) == len(parts) else None
        said = f"within all five interventions a smaller {measure} goes with a better test accuracy"
        absent = "some intervention has no runs to compare"
        rule = Rule("below", 0, "the largest rank correlation", touch=False)
        how: Any = {"decisive": found.decisive, "paper": "open", "absent": absent}
        claim = found.claim(_plain(measure))
        made.append(by_interval(claim, f"{said} (largest τ-b)", worst, rule, **how))
    return made


def least_certain(parts: Sequence[Bootstrapped]) -> Bootstrapped:
    """Return the correlation that is above 0 most surely, or else the one with the highest end."""
    several = [dataclasses.replace(part, tries=len(parts)) for part in parts]
    above = max(several, key=lambda one: _end(one, "low"))
    return above if _end(above, "low") > 0 else max(parts, key=lambda one: _end(one, "high"))


def _end(one: Bootstrapped, name: str) -> float:
    ends = one.interval()
    return float(getattr(ends, name)) if ends else one.estimate


def _plain(measure: str) -> str:
    """Return a measure's name in a claim.

    >>> _plain("λ_max, batch statistics"), _plain("‖H‖_F")
    ('lambda_max_batch_statistics', 'frobenius')
    """
    for sign, word in (("λ", "lambda"), ("‖H‖_F", "frobenius"), (" μ", ""), (",", "")):
        measure = measure.replace(sign, word)
    return measure.replace(" ", "_").lower()


def bound(found: Compared) -> Uncorrected:
    """Judge Appendix A.1 on trained networks: the rise that ascent finds is below the bound."""
    worst: dict[int, list[float]] = {}
    for key, _ in found.computed:
        for seed, ends in found.computed[key, "measures"].items():
            parts = {name.partition(":")[0]: one for name, one in ends["measures"].items()}
            rise, slope = parts["sam_sharpness_steps"]["value"], parts["sam_sharpness"]["details"]
            top = max(parts["lambda_max"]["value"], 0.0)
            most = RADIUS * slope["gradient_norm"] + RADIUS**2 / 2 * top
            if rise is not None and most > 0:
                worst.setdefault(seed, []).append(rise / most)
    made = mean_over_seeds([max(each) for each in worst.values()]) if worst else None
    said = (
        f"the loss rises within ρ = {RADIUS:g} of trained networks by less than the second-order "
    )
    said += "bound of Appendix A.1 (largest rise found over bound, of each seed's runs)"
    rule = Rule("below", 1, "the ratio")
    return by_interval("kaur2022.A1.trained", said, made, rule, decisive=found.decisive)


def verdicts(found: Compared) -> list[Verdict]:
    """Judge every measure, and the bound."""
    return corrected([*judged(found), bound(found)])


def finding(found: Compared) -> str:
    """Write which measures survive all interventions, and which pooling turns round."""
    rows, names = table_of(found), _names(found)
    below = {(row["measure"], row["intervention"]) for row in rows if _sure(row) < 0}
    sure = {m: [name for name in names if (m, name) in below] for m in MEASURES}
    survive = [m for m, hits in sure.items() if len(hits) == len(names)]
    if survive:
        said = f"A smaller {' or '.join(survive)} goes with a better test accuracy within all "
        said += f"{len(names)} interventions."
    else:
        best = max(MEASURES, key=lambda m: len(sure[m]))
        where = f": {', '.join(sure[best])}" if sure[best] else ""
        said = f"No measure follows test accuracy within all {len(names)} interventions. The most "
        said += f"has {best}, {len(sure[best])} of {len(names)}{where}."
    turned = [f"{row['measure']} ({row['intervention']})" for row in rows if row["reversal"]]
    said += f" Pooling all runs turns round {', '.join(turned) if turned else 'none of them'}."
    return said if found.decisive else f"A first look, which decides nothing: {said}"


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return τ-b of each measure with accuracy, within interventions and over all runs."""
    rows, names = table_of(found), ["all", *_names(found)]
    by = {(row["measure"], row["intervention"]): row["tau"] for row in rows}
    taus = [[by[measure, name] for name in names] for measure in MEASURES]
    values = np.array([[np.nan if tau is None else tau for tau in line_] for line_ in taus])
    sure = {(row["measure"], row["intervention"]): _sure(row) for row in rows}
    certain = np.array([[sure[measure, name] for name in names] for measure in MEASURES])
    axes = (tuple(names), tuple(MEASURES))
    panels = (
        Heat("τ-b with accuracy", "", "", values, *axes, signed=True),
        Heat("beyond chance", "", "", certain, *axes, "τ-b", signed=True),
    )
    caption = (
        "Kendall's τ-b with test accuracy; negative: flatter runs generalise better. Grey: no "
    )
    caption += f"runs to compare. {missed_in_words(found).replace(' (open markers)', '')}"
    return (Plot("measures", found.comparison.title, (panels,), caption),)


def _sure(row: Mapping[str, Any]) -> float:
    """Return τ if its interval excludes 0, otherwise NaN."""
    known = row["low"] is not None and (row["low"] > 0 or row["high"] < 0)
    return float(row["tau"]) if known else float("nan")


def both_there(s: Any) -> None:
    """Raise an error if one of the two data sets is not here."""
    require(s)
    require(mlp_settings(s))


COMPARISON = Comparison(
    id="kaur2022/measures",
    source=SOURCE,
    figure="Section 4",
    title="Flatness and test accuracy",
    claim="open: which measure of flatness, if any, follows test accuracy under learning rate, "
    "batch size, SAM, dropout and BatchNorm",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    tables=tables,
    plots=plots,
    prefix="kaur-",
    notes=notes,
    undecided=("quick", "lab"),
    require=both_there,
)
EXPERIMENT = COMPARISON.experiment(__name__)
