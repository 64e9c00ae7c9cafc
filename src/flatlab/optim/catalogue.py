"""The family by name; the contract tests run over it."""

from __future__ import annotations

from .asam import ASAM
from .friendly_sam import FriendlySAM
from .gsam import GSAM
from .label_noise import LabelNoiseSGD
from .look_sam import LookSAM
from .msam import MSAM
from .sam import SAM, USAM
from .wrapper import WrappedOptimizer

OPTIMIZERS: dict[str, type[WrappedOptimizer]] = {
    "sam": SAM,
    "usam": USAM,
    "asam": ASAM,
    "gsam": GSAM,
    "look_sam": LookSAM,
    "friendly_sam": FriendlySAM,
    "msam": MSAM,
    "label_noise": LabelNoiseSGD,
}
