"""What objects show: one line as `repr`, a table in a notebook."""

import re
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import flatlab as fl
from flatlab.experiments.contract import Verdict
from flatlab.experiments.results import Judged


class Cells(HTMLParser):
    """Reads the cells of a table, and sees that every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag in ("table", "tr", "th", "td", "div", "b") and not attrs
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


def trained(**options):
    data = fl.data.xor(d=6, n=20, n_test=30)
    phase = fl.Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=100)
    return fl.train(fl.models.TwoLayer(width=20), data, schedule=[phase], **options)


def test_a_run_shows_its_end_and_its_history(tmp_path):
    for run in (trained(measures=["layer_trace"]), trained(out=tmp_path / "run")):
        text = repr(run)
        assert len(text) < 250 and "\n" not in text
        assert text.startswith("Run(done at epoch 100 of 100: two_layer:width=20 on xor, seed 0")
        assert f"trace {run.final['trace']:.4g}" in text
        cells = Cells(run._repr_html_()).cells
        assert {"epoch", "train_loss", "test_error"} <= {*cells}
        assert f"{run.final['train_loss']:.4g}" in cells
        assert not any("layer_trace" in cell for cell in cells)
    assert text.endswith(f"in {tmp_path / 'run'})")


def test_readings_show_values_in_a_line_and_a_table_in_a_notebook():
    model, data = nn.Linear(3, 1), (torch.eye(3), torch.ones(3, 1))
    read = fl.measure(model, nn.MSELoss(), data, ["trace", "lambda_max"])
    assert repr(read).startswith("Readings(trace: Tr = ") and "λ_max = " in repr(read)
    assert repr(read["trace"]).startswith("Reading(trace: Tr = ") and len(repr(read["trace"])) < 150
    cells = Cells(read._repr_html_()).cells
    assert read["trace"].said() in cells and read.footnote() in cells
    every = fl.measure(model, nn.MSELoss(), data, "all", skip=True)
    assert len(repr(every)) < 400 and repr(every).endswith(f"and {len(every) - 5} more)")
    assert any(cell.startswith("left out ") for cell in Cells(every._repr_html_()).cells)


def test_names_of_the_user_are_escaped():
    class Loss(nn.MSELoss):
        pass

    Loss.__name__ = "<script>alert(1)</script>"
    read = fl.measure(nn.Linear(3, 1), Loss(), (torch.eye(3), torch.ones(3, 1)), "trace")
    assert "<script>" in read.footnote() and "<script>" not in read._repr_html_()
    data = fl.data.arrays([[1.0], [2.0]], [1.0, -1.0], name="<b>")
    phase = fl.Phase("sgd", lr=0.01, epochs=1)
    run = fl.train(fl.models.TwoLayer(width=2), data, schedule=[phase])
    Cells(run._repr_html_())


def test_a_data_set_says_its_sizes():
    assert repr(fl.data.xor(d=30, n=100, n_test=5000)) == (
        "Dataset(xor, seed 0: 100 training and 5,000 test examples of shape (30,))"
    )
    images = fl.data.arrays([[[0.0]], [[1.0]]], [0, 1], classes=2)
    assert repr(images).endswith("2 training and 0 test examples of shape (1, 1), 2 classes)")


@pytest.mark.parametrize("low, measured", [(None, "0.5"), (0.25, "0.5 [0.25, 0.75]")])
def test_a_verdict_is_a_line_and_a_row(low, measured):
    ends = (low, low and 0.75)
    verdict = Verdict("some.claim", "x < 1", 0.4, 0.5, *ends, True, "by its <rule>")
    assert repr(verdict) == f"Verdict(some.claim holds: {measured}, paper 0.4)"
    judged = Judged.of(verdict, "some/figure", "lab")
    assert repr(judged) == str(judged) == repr(verdict)
    for one in (verdict, judged):
        row = ["holds", "some.claim", measured, "0.4", "x < 1: by its <rule>"]
        assert Cells(one._repr_html_()).cells[-5:] == row


def test_results_and_verifications_are_short(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    results = fl.run("wen2023/fig3", "quick", workers=0)
    assert repr(results) == str(results) and len(repr(results)) < 200
    assert re.match(r"Results\(wen2023/fig3, preset quick, done: 4 claims", repr(results))
    cells = Cells(results._repr_html_()).cells
    assert {v.claim for v in results.verdicts} < {*cells} and f"files: {results.folder}" in cells
    assert len(repr(results.experiments[0])) < 150
    found = fl.verify("wen2023.thm4.1", workers=1)
    assert repr(found) == "Verification(1 claims, 1 holds corrected)"
    (result,) = found.results
    assert len(repr(result)) < 150 and result.measured in Cells(found._repr_html_()).cells
    assert result.lines[0].what in Cells(result._repr_html_()).cells
    assert len(repr(fl.construct("four-neurons", fl.data.xor(d=6, n=20)))) < 200
    assert len(repr(fl.flattest(fl.data.xor(d=4, n=8), "bias", budget=5))) < 600
