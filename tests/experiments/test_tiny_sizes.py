"""Experiments at sizes of one or two: each runs and decides nothing, or says what is allowed."""

import dataclasses
import os

import pytest

from flatlab import experiments, report
from flatlab.cli.console import print_results
from flatlab.errors import UserError
from flatlab.experiments import CATALOGUE
from thinning import thinned

TINY = {
    "d": {"d": 2},
    "n": {"n": 2},
    "width": {"width": 1},
    "seeds": {"seeds": 1},
    "n and width": {"n": 1, "width": 1},
    "all": {"d": 2, "n": 2, "width": 1, "seeds": 1},
}


# With n = width = 1 no neuron may be alive, so that traces are 0: never thinned out.
DEAD = [(id, "n and width") for id in CATALOGUE]
OTHERS = thinned((id, sizes) for id in CATALOGUE for sizes in TINY if sizes != "n and width")


@pytest.mark.parametrize("id, sizes", DEAD + OTHERS)
def test_tiny_sizes_run_or_are_refused_in_one_line(id, sizes, tmp_path, capsys):
    names = {field.name for field in dataclasses.fields(CATALOGUE[id].presets["quick"])}
    short = {name: 2 for name in sorted(names) if "epochs" in name}
    changes = {name: size for name, size in TINY[sizes].items() if name in names}
    if id.startswith("kaur2022/") and not os.environ.get("FLATLAB_DATA"):
        pytest.skip("FLATLAB_DATA is not set: no folder to read images from")
    if not changes:
        pytest.skip(f"{id} has none of these sizes")
    try:
        found = experiments.run(id, "quick", out=tmp_path, changes=short | changes, workers=0)
    except UserError as error:
        assert " must be >= " in str(error) and "\n" not in str(error)
        return
    report.publish(found)
    print_results(found)
    assert found.status == "done"
    assert {run.exit_code for run in found.failed} <= {2}  # of a line such as "give a smaller one"
    assert {v.verdict for v in found.verdicts} == {"not assessed"}
    assert all(v.reason for v in found.verdicts)
