"""`run.plot()` and `readings.plot()`, and the layers that readings print."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import flatlab as fl
from flatlab.measures import Readings
from flatlab.measures.pictures import density

PNG = b"\x89PNG\r\n\x1a\n"


def deep(layers):
    """Return a network with this many linear layers, a loss and data."""
    torch.manual_seed(0)
    hidden = [part for _ in range(layers - 1) for part in (nn.Linear(4, 4), nn.ReLU())]
    x = torch.randn(30, 4)
    return nn.Sequential(*hidden, nn.Linear(4, 1)), nn.MSELoss(), (x, x[:, :1] * x[:, 1:2])


def test_a_run_plots_its_history():
    data = fl.data.xor(d=6, n=20, n_test=30)
    phase = fl.Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=50)
    tracked = ["layer_trace", "spectrum"]
    run = fl.train(fl.models.TwoLayer(width=9), data, schedule=[phase], measures=tracked)
    figure = run.plot()
    assert isinstance(figure, Figure) and figure._repr_png_().startswith(PNG)
    axes = {ax.get_title(loc="left"): ax for ax in figure.axes}
    assert {"loss", "error", "trace", "layer_trace"} <= axes.keys() and "spectrum" not in axes
    train, test = axes["loss"].lines
    assert np.allclose(train.get_ydata(), run.columns["train_loss"])
    assert np.allclose(test.get_ydata(), run.columns["test_loss"])
    assert axes["loss"].get_yscale() == "log" and axes["error"].get_yscale() == "linear"
    layers = [line.get_ydata()[-1] for line in axes["layer_trace"].lines[:3]]
    assert sum(layers) == pytest.approx(run.final["trace"], rel=1e-5)


def test_readings_plot_arrays_and_numbers():
    names = ["trace", "lambda_max", "layer_trace", "diagonal", "spectrum"]
    read = fl.measure(*deep(7), names)
    figure = read.plot()
    assert isinstance(figure, Figure) and figure._repr_png_().startswith(PNG)
    by_layer, diagonal, spectrum, numbers = figure.axes
    values = [line.get_xdata()[0] for line in by_layer.lines[1::2]]
    assert values == pytest.approx(list(read["layer_trace"].value))
    assert np.allclose(diagonal.lines[0].get_ydata(), np.sort(read["diagonal"].value)[::-1])
    assert np.allclose(spectrum.lines[0].get_xdata(), read["spectrum"].details["grid"])
    labels = [text.get_text() for text in numbers.get_yticklabels()]
    assert labels == [f"{name}: {read[name].said()}" for name in ("trace", "lambda_max")]
    with pytest.raises(fl.FlatlabError, match="nothing was measured"):
        Readings({}).plot()


def test_a_density_is_drawn_as_it_is_within_its_interval():
    model, loss, data = deep(3)
    (read,) = fl.measure(model, loss, data, "spectrum:method=lanczos,probes=3").values()
    assert not read.exact
    (curve,) = density("spectrum", read).curves
    assert curve.y.mean(0) == pytest.approx(read.value, abs=1e-12 * read.value.max())
    assert curve.y.max(0) == pytest.approx(read.interval()[1])


@pytest.mark.parametrize("name", ["layer_trace", "layer_lambda_max", "diagonal"])
@pytest.mark.parametrize("layers, printed", [(7, 7), (12, 12), (15, 12)])
def test_readings_print_their_layers(name, layers, printed):
    read = fl.measure(*deep(layers), name)
    lines = str(read).splitlines()
    start = lines.index(f"{name}:") + 1
    first = lines[start].split()
    value = read[name].value[0] if name != "diagonal" else read[name].value[:20].min()
    assert first[0] == "0" and f"{value:.4g}" in first
    below = lines[start : len(lines) - 1]
    assert len(below) == printed + (layers > printed)
    assert ("and 3 more" in below[-1]) == (layers == 15)
    assert f"<td>{2 * (printed - 1)}</td>" in read._repr_html_()


def test_few_layers_stay_in_the_row():
    text = str(fl.measure(*deep(3), "layer_trace"))
    assert "0: " in text and "layer_trace:" not in text


def test_the_command_prints_the_layers_too(main, tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n"
        "    parts = [p for _ in range(6) for p in (nn.Linear(3, 3), nn.ReLU())]\n"
        "    net = nn.Sequential(*parts)\n"
        "    return net, nn.MSELoss(), (torch.eye(3), torch.eye(3))\n"
    )
    code, out, _ = main("measure", "net.py:make", "--measure", "layer_trace")
    assert code == 0 and "layer_trace:\n  0   " in out and "\n  10  " in out
