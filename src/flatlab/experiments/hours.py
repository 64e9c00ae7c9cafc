"""What the authors' own training took, by their own statement, for comparison."""

from __future__ import annotations

from .contract import Experiment, Planned
from .seeds import with_seeds

# Wen, Li & Ma, Appendix B.1: "The training time for each experiment is around 12 hours per 1e5
# epochs", on GPUs ("8 NVIDIA 2080 GPUs", of which each experiment is taken to have had one).
HOURS_PER_EPOCH = {"wen2023": 12 / 100_000}


def hours_per_epoch(experiment: Experiment) -> float | None:
    """Return the paper's hours an epoch, or None where it says nothing."""
    return HOURS_PER_EPOCH.get(experiment.id.partition("/")[0])


def paper_runs(experiment: Experiment) -> list[Planned]:
    """Return the runs of the preset `paper` for one seed, which is what the paper shows.

    Runs that are ours are left out.
    """
    if "paper" not in experiment.presets:
        return []
    planned = experiment.plan(with_seeds(experiment.presets["paper"], 1))
    return [p for p in planned if not p.ours]


def paper_epochs(*experiments: Experiment) -> int:
    """Return the epochs of those runs, those of one configuration counted once."""
    runs = (p for experiment in experiments for p in paper_runs(experiment))
    return sum({p.config.digest(): p.config.epochs for p in runs}.values())
