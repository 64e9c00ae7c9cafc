"""Where a result comes from: the commit of the source code and the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def commit() -> str | None:
    """Return the commit of the checkout that flatlab runs from, with "-dirty" if files changed.

    None if flatlab is installed elsewhere, or there is no git.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    # Tags are ignored, so the answer is always the hash.
    question = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        asked = subprocess.run(
            [*question, "--exclude=*"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None


def machine() -> dict[str, str | int | None]:
    """Return the processor, the number of cores and the system that seconds were measured on."""
    cpu = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        cpu = next(names, cpu)
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.system()}
