"""The optimizer of a stored run, with its state: what steps the parameters as the run left them."""

from __future__ import annotations

import torch
from torch import nn

from ..models.contract import part
from .run import Run, read_store
from .torch_trainer import fill


def stored_optimizer(run: Run, net: nn.Module) -> torch.optim.Optimizer | None:
    """Return the optimizer of a run's last steps over the parameters of its network `net`.

    None for a run without a directory or without a step. An optimizer of the compiled engine has
    no state beside the parameters that torch's would have.
    """
    checkpoint = None if run.path is None else read_store(run.path).load_checkpoint()
    if checkpoint is None or not run.config.schedule:
        return None
    # At the first unit of a phase the state is still that of the phase before.
    index = checkpoint.meta["phase"] - (checkpoint.meta["unit"] == 0)
    phase = run.config.schedule[max(index, 0)]
    trained = [p for p in net.parameters() if p.requires_grad]
    made: torch.optim.Optimizer = phase.optimizer.torch(trained, phase.lr, net, run.config.loss)
    state = part(dict(checkpoint.tensors), "optimizer")
    fill(made, net, state if checkpoint.meta.get("trainer") == "torch" else {})
    return made
