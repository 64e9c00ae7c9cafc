"""SAM on compiled and scripted models: one update of the BatchNorm statistics a step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flatlab.optim import SAM, FriendlySAM, LookSAM

COMPILED = {
    "torch.compile": lambda net: torch.compile(net, backend="eager"),
    "compiled in place": lambda net: (net.compile(backend="eager"), net)[1],
    "script": torch.jit.script,
}


def trained(optimizer, change=None, **options):
    """Return the network after three steps."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    model = net if change is None else change(net)
    given = {"model": model} if options.pop("named", False) else {}
    steps = optimizer(net.parameters(), rho=0.05, lr=0.1, **given, **options)

    def closure():
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    for _ in range(3):
        steps.step(closure)
    return net.state_dict()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", COMPILED)
@pytest.mark.parametrize("optimizer", [SAM, LookSAM, FriendlySAM])
def test_statistics_are_updated_once_a_step(optimizer, kind, named):
    torch._dynamo.reset()
    plain, found = trained(optimizer), trained(optimizer, COMPILED[kind], named=named)
    assert int(found["1.num_batches_tracked"]) == 3
    for name, value in plain.items():  # a script may fuse operations: float32 rounds otherwise
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
