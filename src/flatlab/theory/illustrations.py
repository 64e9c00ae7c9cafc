"""Every picture of the theory by its name, with its source."""

from __future__ import annotations

from .illustration import Illustration
from .norm_pictures import norms_plot
from .pac_bayes_pictures import pac_bayes_plot
from .pictures import (
    batch_norm_plot,
    between_minima_plot,
    circle_plot,
    flattest_accuracy_plot,
    rademacher_plot,
    trace_by_scale_plot,
)
from .stability_pictures import regions_plot, selection_plot, shapes_plot, two_functions_plot

PICTURES: dict[str, Illustration] = {
    "trace-by-scale": Illustration("wen2023", trace_by_scale_plot),
    "circle": Illustration("wen2023", circle_plot),
    "batch-norm": Illustration("wen2023", batch_norm_plot),
    "between-minima": Illustration("wen2023", between_minima_plot),
    "rademacher": Illustration("wen2023", rademacher_plot),
    "flattest-accuracy": Illustration("wen2023", flattest_accuracy_plot, seconds=60),
    "pac-bayes-terms": Illustration("wu2025", pac_bayes_plot, seconds=8),
    "norms": Illustration("wu2025", norms_plot, seconds=4),
    "selection": Illustration("wu2025", selection_plot),
    "stability-regions": Illustration("wu2025", regions_plot),
    "two-functions": Illustration("wu2025", two_functions_plot),
    "noise-shapes": Illustration("wu2025", shapes_plot),
}
