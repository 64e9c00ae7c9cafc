import matplotlib
import pytest

from flatlab.report import figures, style


@pytest.fixture
def drawn():
    """Draw a plot and return its axes."""

    def call(plot):
        with matplotlib.rc_context(style.STYLE):
            figure = figures._figure(plot)
            figure.draw_without_rendering()
        return figure.axes

    return call
