"""`flatlab reproduce` as a user types it, on all quick experiments; the page made of it."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from conftest import bits, command, environment, holder, wait_for
from flatlab.errors import FlatlabError, StoreError, UserError
from flatlab.experiments import CATALOGUE, Results
from flatlab.experiments.work import planned_work
from flatlab.files.store import run_directories
from flatlab.report import results_page
from flatlab.report.compact import LIMIT

SOURCES = sorted({id.partition("/")[0] for id in CATALOGUE})
if not os.environ.get("FLATLAB_DATA"):  # no images
    SOURCES.remove("kaur2022")


def reproduce(cwd, *arguments):
    return subprocess.run(
        command("reproduce", *arguments),
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Everything there is at the preset quick, once for all tests; returns the folder."""
    folder = tmp_path_factory.mktemp("quick")
    for source in SOURCES:
        done = reproduce(folder, source, "--preset", "quick", "--json")
        # 3: some of the choices that are tried let a network diverge, and are said to.
        assert done.returncode in (0, 3) and done.stderr == "", done.stderr
        (folder / f"{source}.json").write_text(done.stdout)
    return folder


def folder_of(quick, source):
    return quick / "results" / f"{source}-quick"


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_all_experiments_of_a_source_give_their_verdicts(quick, source):
    printed = json.loads((quick / f"{source}.json").read_text())
    ids = [id for id in CATALOGUE if id.startswith(f"{source}/")]
    assert [part["id"] for part in printed["experiments"]] == ids
    assert {row["experiment"] for row in printed["verdicts"]} == set(ids)
    assert printed["status"] == "done" and printed["left_out"] == []
    assert printed == json.loads((folder_of(quick, source) / "results.json").read_text())
    assert printed["folder"] == f"results/{source}-quick"
    assert {row["verdict"] for row in printed["verdicts"]} == {"not assessed"}
    if source == "beyond":
        assert all(row["measured"] is not None for row in printed["verdicts"])
        for part in printed["experiments"]:
            (rows,) = part["tables"].values()
            assert part["finding"] and {row["seeds"] for row in rows} == {part["seeds"]}


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_the_files_of_a_source_agree(quick, source):
    folder = folder_of(quick, source)
    document = json.loads((folder / "results.json").read_text())
    with open(folder / "verdicts.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    claims = [row["claim"] for row in document["verdicts"]]
    assert [row["claim"] for row in rows] == claims
    page = (folder / "results.md").read_text()
    assert all(f"| `{claim}` |" in page for claim in claims)
    digests = [run["digest"] for run in document["runs"]]
    planned = {
        item.key
        for id, experiment in CATALOGUE.items()
        if id.startswith(f"{source}/")
        for item in planned_work(experiment, experiment.presets["quick"]).values()
    }
    assert len(set(digests)) == len(digests) and set(digests) == planned
    for run in document["runs"]:
        assert (quick / "results" / run["path"] / "result.json").exists()
    pictures = [name for part in document["experiments"] for name in part["figures"]]
    assert len(set(pictures)) == len(pictures)
    assert all((folder / name).exists() for name in pictures)


@pytest.mark.slow
def test_no_configuration_was_trained_twice(quick):
    found = [path.name.rpartition("-")[2] for path in run_directories(quick / "results" / "runs")]
    assert len(set(found)) == len(found)


@pytest.mark.slow
def test_again_trains_nothing_and_prints_the_table(quick):
    again = reproduce(quick, "wen2023/fig4", "--preset", "quick")
    assert (again.returncode, again.stderr) == (0, "")
    assert "wen2023.fig4.flatter" in again.stdout and "not assessed" in again.stdout
    assert all(run.reused for run in Results.load(folder_of(quick, "wen2023-fig4")).runs)


# The page


@pytest.fixture(scope="module")
def page(quick):
    subprocess.run(
        [sys.executable, "-m", "flatlab.report.results_page", str(folder_of(quick, "wen2023")),
         str(quick / "page" / "made.md"), str(folder_of(quick, "wen2023"))],
        check=True, env=environment(), timeout=120,
    )  # fmt: skip
    return quick / "page"


@pytest.mark.slow
def test_the_page_has_every_verdict_and_links_to_files_that_are_there(quick, page):
    text = (page / "made.md").read_text()
    document = json.loads((folder_of(quick, "wen2023") / "results.json").read_text())
    assert all(f"| `{row['claim']}` |" in text for row in document["verdicts"])
    folder = folder_of(quick, "wen2023")
    assert f"python -m flatlab.report.results_page {folder} {page / 'made.md'} {folder}\n" in text
    # Each verdict stands beside the picture of its figure, and the tables of Figure 2b below it.
    for part in document["experiments"]:
        section = text.partition(f"### {part['figure']}: ")[2].partition("\n### ")[0]
        rows = [row for row in document["verdicts"] if row["experiment"] == part["id"]]
        assert rows and all(f": {row['statement']}: " in section for row in rows)
        assert all(Path(picture).name in section for picture in part["figures"])
    assert "Table `fig2b-columns` (xor: d = 10," in text
    assert "| paper | 42.47 | 42.48 | 5.65 |" in text
    # Compared with itself; quick assesses nothing but what is computed.
    count = len(document["verdicts"])
    assert f"Of {count} claims that the presets quick and quick both have, 0 are" in text
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert len(links) == 1 + sum(len(part["figures"]) for part in document["experiments"])
    assert all((page / link).is_file() for link in links)
    stored = folder_of(quick, "wen2023") / "results.json"
    assert (page / "made-results.json").read_bytes() == stored.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, text, words",
    [
        ("results.json", '{"verdicts": [], "experiments": []}', "is not a document of results"),
        ("results.json", "{", "is damaged"),
        ("results.json", "[]", "is not a document of results"),
        ("results.json", '{"format": 99}', "has format 99, this flatlab reads 1"),
        ("pictures/fig4.png", "no picture", "is damaged"),
    ],
)
def test_a_page_of_damaged_files_is_refused(quick, tmp_path, name, text, words):
    folder = tmp_path / "copy"
    shutil.copytree(folder_of(quick, "wen2023"), folder)
    (folder / name).write_text(text)
    with pytest.raises(FlatlabError, match=words):
        results_page.make(folder, tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "field, change",
    [
        ("verdicts.0.reason", lambda found: found["verdicts"][0].pop("reason")),
        ("verdicts.0.measured", lambda found: found["verdicts"][0].update(measured="x")),
        ("verdicts.1", lambda found: found["verdicts"][1].update(holds=True)),
        ("the whole", lambda found: found["verdicts"][0].update(experiment="made/up")),
        ("experiments.2.seeds", lambda found: found["experiments"][2].pop("seeds")),
        ("experiments.0", lambda found: found.update(experiments=[1])),
        ("the whole", lambda found: found["experiments"][0].update(digests=["unknown"])),
        ("wall_seconds", lambda found: found.update(wall_seconds=10**400)),
        ("runs.0.status", lambda found: found["runs"][0].update(status="well")),
        ("surplus", lambda found: found.update(surplus=1)),
    ],
)
def test_a_document_that_was_changed_is_refused_by_the_name_of_the_field(quick, field, change):
    document = json.loads((folder_of(quick, "wen2023") / "results.json").read_text())
    change(document)
    with pytest.raises(StoreError, match=re.escape(f"changed by hand: {field}: ")):
        Results.from_json(json.dumps(document))


@pytest.mark.slow
def test_a_document_with_half_a_character_is_refused(quick):
    document = json.loads((folder_of(quick, "wen2023") / "results.json").read_text())
    document["experiments"][0]["finding"] = "\ud800"
    with pytest.raises(StoreError):
        Results.from_json(json.dumps(document))


@pytest.mark.slow
def test_a_document_reads_back_as_it_was_written(quick):
    stored = (folder_of(quick, "beyond") / "results.json").read_bytes()
    assert Results.from_json(stored).to_dict() == json.loads(stored)


@pytest.mark.slow
def test_a_page_without_a_name_is_refused(quick):
    with pytest.raises(UserError, match="needs a file name"):
        results_page.make(folder_of(quick, "wen2023"), Path("/"))


@pytest.mark.slow
def test_a_page_is_compared_with_its_own_source_alone(quick, tmp_path):
    one, other = folder_of(quick, "wen2023"), folder_of(quick, "beyond")
    with pytest.raises(UserError, match="has the results of 'beyond': give a folder of 'wen2023'"):
        results_page.make(one, tmp_path / "page.md", other)


@pytest.mark.slow
def test_the_page_gives_the_papers_hours(page):
    text = (page / "made.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| wen2023/fig4 |")]
    # 100,000 + 200,000 + 400,000 epochs at 12 hours per 100,000.
    assert "| 700,000 | 84 |" in row


@pytest.mark.slow
def test_pictures_on_the_page_are_small(page):
    images = list((page / "images").iterdir())
    assert images
    for path in images:
        assert path.stat().st_size <= LIMIT
        with Image.open(path) as image:
            assert image.mode == "P" and 500 <= image.width <= 1000


def test_a_page_of_something_else_is_refused(tmp_path):
    asked = [sys.executable, "-m", "flatlab.report.results_page"]
    for arguments, words in (
        ([str(tmp_path), "page.md"], "does not exist"),
        ([str(tmp_path)], "two arguments"),
    ):
        done = subprocess.run(
            [*asked, *arguments], env=environment(), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


# Mistakes


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["wn2023"], "unknown experiment or source 'wn2023': did you mean 'wen2023'"),
        (["wen2023", "--preset", "labb"], "unknown preset 'labb': did you mean 'lab'"),
        (["wen2023", "--budget", "soon"], "such as 90s, 30m, 2h or 1h30m, got 'soon'"),
        (["wen2023", "--jobs", "0"], "jobs must be >= 1, got 0"),
        (["wen2023", "--seeds", "0"], "seeds must be >= 1, got 0"),
        (["wen2023/fig3", "--seeds", "3"], "wen2023/fig3 has no seeds, since nothing is random"),
    ],
)
def test_mistakes_are_one_line(main, tmp_path, arguments, words):
    code, out, err = main("reproduce", *arguments)
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


# Interruption

FIGURE = ["reproduce", "wen2023/fig5", "--preset", "quick", "--jobs", "2"]


def running(tmp_path):
    """Return whether a run is under way that has saved something."""
    runs = list((tmp_path / "results" / "runs").glob("*/checkpoint.safetensors"))
    return any(holder(path.parent) for path in runs)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_what_is_interrupted_ends_in_the_bits_of_what_is_not(
    number, quick, start, tmp_path, monkeypatch
):
    monkeypatch.setenv("FLATLAB_CHECKPOINT_SECONDS", "0")
    process = start(*FIGURE)
    wait_for(lambda: running(tmp_path), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130 and out == ""
        stopping, interrupted = err.splitlines()
        assert stopping == "flatlab: stopping: saving what is done"
        assert "run the same command again to continue" in interrupted
    held = list((tmp_path / "results" / "runs").iterdir())
    wait_for(lambda: not any(holder(path) and alive(holder(path)) for path in held))
    assert not (tmp_path / "results" / "wen2023-fig5-quick" / "results.json").exists()
    done = reproduce(tmp_path, *FIGURE[1:])
    assert (done.returncode, done.stderr) == (0, "")
    runs = tmp_path / "results" / "runs"
    assert len(list(runs.iterdir())) == 4
    for path in runs.iterdir():
        assert bits(path) == bits(quick / "results" / "runs" / path.name)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
