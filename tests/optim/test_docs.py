"""docs/optimizers.md: its snippets run, and the tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from flatlab.optim import OPTIMIZERS, SAM, LabelNoiseSGD

HERE = Path(__file__).parent
TEXT = (HERE.parents[1] / "docs" / "optimizers.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_every_optimizer_has_a_row():
    for kind in OPTIMIZERS.values():
        assert f"| `{kind.__name__}` |" in TEXT


def test_every_named_test_exists():
    named = 0
    for line in TEXT.splitlines():
        file = None
        for given, test in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+)\*?)?`", line):
            file = given or file
            if file is None:
                continue
            source = (HERE / file).read_text(encoding="utf-8")
            assert not test or f"def {test}" in source, f"{file}::{test}"
            named += 1
    assert named > 20


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_every_snippet_runs(number, tmp_path):
    """Each in a small classification problem; a closure that nothing calls is called by a step.

    Autocast stays off in this process: its bfloat16 instructions are not there on every machine.
    """
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 10))
    x, y = torch.randn(6, 3, generator=generator), torch.arange(6)
    scope = {
        "torch": torch, "model": model, "x": x, "y": y, "loss_fn": nn.functional.cross_entropy,
        "optimizer": SAM(model.parameters(), lr=0.1), "scaler": torch.amp.GradScaler("cpu"),
        "micro_batches": [(x[:3], y[:3]), (x[3:], y[3:])], "path": tmp_path / "state.pt",
        "generator": generator, "LabelNoiseSGD": LabelNoiseSGD,
    }  # fmt: skip
    code = SNIPPETS[number].replace("torch.bfloat16)", "torch.bfloat16, enabled=False)")
    before = model[0].weight.detach().clone()
    with torch.random.fork_rng():
        exec(code, scope)
        if "closure" in scope and "step(" not in code:
            scope["optimizer"].step(scope["closure"])
    if "step(" in code or "closure" in scope:
        assert not torch.equal(model[0].weight, before)
