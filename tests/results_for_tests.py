"""Made-up results, for the tests of whatever reads them."""

from flatlab.experiments.contract import Verdict
from flatlab.experiments.results import Judged, LeftOut, Part, Results


def judged(claim, holds, experiment, preset, paper="yes", because="", measured=0.5):
    reason = "the interval contains 0.1" if holds is None else "the interval lies on one side"
    low, high = (measured - 0.1, measured + 0.1) if holds is not None else (None, None)
    verdict = Verdict(
        claim, f"what {claim} says", paper, measured, low, high, holds, reason, because
    )
    return Judged.of(verdict, experiment, preset)


def part(experiment, **changes):
    fields = {
        "id": experiment, "source": "Nobody 1900", "figure": "Figure 0", "claim": "it is so",
        "settings": {"seeds": 3}, "seeds": 3, "of": 3, "runs": 2, "digests": (), "epochs": 3000,
        "training_seconds": 12.0, "wall_seconds": 7.0, "paper_epochs": 5000, "paper_hours": 0.6,
        "paper_hours_per_epoch": 0.00012, "finding": "", "notes": (), "tables": {}, "figures": (),
    }  # fmt: skip
    return Part(**{**fields, **changes})


def results(verdicts, experiment="wen2023/fig4", preset="lab", folder="results/x", **changes):
    """Return results of one experiment; `verdicts` is claim → options of `judged`."""
    fields = {
        "ids": (experiment,), "preset": preset, "status": "done", "folder": str(folder),
        "experiments": (part(experiment),),
        "verdicts": tuple(
            judged(claim, experiment=experiment, preset=preset, **options)
            for claim, options in verdicts.items()
        ),
        "left_out": (), "runs": (), "budget_seconds": None, "jobs": 2, "wall_seconds": 8.0,
        "training_seconds": 12.0, "epochs": 3000, "paper_epochs": 5000, "paper_hours": 0.6,
        "commit": None, "versions": {"python": "3"}, "machine": {"cpu": "one", "cores": 2},
    }  # fmt: skip
    return Results(**{**fields, **changes})


def left_out(experiment, reason):
    return LeftOut(experiment=experiment, seeds=0, of=3, estimated_seconds=9.0, reason=reason)
