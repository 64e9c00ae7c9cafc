"""The notebook examples/tour.ipynb, run from top to bottom by a real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="pip install -e .[dev]")
pytest.importorskip("ipykernel", reason="pip install -e .[dev]")
import nbformat  # noqa: E402

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"
# Warnings of the notebook's own libraries, not ours.
pytestmark = pytest.mark.filterwarnings("default")


def executed(notebook, folder):
    """Run all cells in a folder; return them. An error in a cell is raised."""
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(cell, kind):
    """Return a cell's outputs of a MIME type."""
    return [out.data[kind] for out in cell.outputs if "data" in out and kind in out.data]


def test_the_tour_runs_and_shows_tables_and_pictures(tmp_path):
    notebook = nbformat.read(TOUR, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # none that could be stale
    _, read, line, spectrum, run, history, loop, checked, results = executed(notebook, tmp_path)
    (table,) = outputs(read, "text/html")
    assert "layer_trace" in table and "λ_max = " in table
    assert "Reading(trace: Tr = " in line.outputs[0].text
    for picture in (spectrum, history):
        assert outputs(picture, "image/png")
    assert "Run(done at epoch 300 of 300" in outputs(run, "text/html")[-1]
    assert outputs(loop, "text/plain")[-1].startswith("{0: ")
    assert "holds corrected" in outputs(checked, "text/html")[-1]
    assert "4 claims" in outputs(results, "text/html")[-1]
    assert (tmp_path / "results" / "wen2023-fig3-quick" / "results.json").exists()
    said = [out for cell in notebook.cells for out in cell.get("outputs", ()) if "name" in out]
    assert all(out.name == "stdout" for out in said)  # no line of a log in a notebook


def test_progress_is_one_output_that_changes(tmp_path):
    """Jupyter's message for an output that is shown again is update_display_data."""
    code = (
        "import time\n"
        "from flatlab.jobs.progress import CheckProgress\n"
        "with CheckProgress(4, quiet=False) as shown:\n"
        "    for name in 'abcd':\n"
        "        shown.update(name, 'started')\n"
        "        time.sleep(0.6)\n"
        "        shown.update(name, 'finished')\n"
        "    print(shown.plain.output is not None)"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    messages = []
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    plain = client.process_message

    def process(message, *args):
        messages.append((message["msg_type"], message["content"].get("data", {})))
        return plain(message, *args)

    client.process_message = process
    client.execute()
    texts = [data["text/plain"] for kind, data in messages if kind.endswith("display_data")]
    assert texts[0].startswith("1/4 checks: 25 %, ") and texts[-1] == ""
    assert "2/4 checks: 50 %" in "".join(texts)
    assert [kind for kind, _ in messages].count("display_data") == 1
    (printed,) = [out for out in notebook.cells[0].outputs if out.output_type == "stream"]
    assert printed.text == "True\n"
