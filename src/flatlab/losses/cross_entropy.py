"""Cross-entropy over classes, with label smoothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from ..specs import spec
from .contract import Labels, Loss, loss

if TYPE_CHECKING:
    import torch
    from torch.nn import CrossEntropyLoss


@loss("cross_entropy", "−Σ_c q_c log softmax(f)_c with q = (1 − smoothing) e_y + smoothing/classes")
@spec
class CrossEntropy(Loss):
    """ℓ = −Σ_c q_c log softmax(f)_c, as torch.nn.CrossEntropyLoss with label_smoothing."""

    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    labels: ClassVar[Labels] = "classes"

    def torch(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean over examples."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, labels, label_smoothing=self.smoothing)

    def function(self) -> CrossEntropyLoss:
        """Return torch's module, whose labels are classes."""
        from torch.nn import CrossEntropyLoss

        return CrossEntropyLoss(label_smoothing=self.smoothing)
