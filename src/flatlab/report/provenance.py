"""Which source code this is: the commit, where it can be known."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str | None:
    """Return the commit of the checkout that flatlab runs from, with "-dirty" after changes.

    None if flatlab is installed elsewhere, or there is no git.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    # Tags are left out, so that the answer is always the hash.
    question = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        asked = subprocess.run(
            [*question, "--exclude=*"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None
