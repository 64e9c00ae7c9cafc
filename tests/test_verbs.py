"""The verbs of a notebook: they return objects, and say the same as the commands."""

import json
from pathlib import Path

import numpy as np
import pytest

import flatlab as fl
from flatlab.experiments.results import Results
from flatlab.theory.flattest import Flattest
from flatlab.training.run import Run


@pytest.fixture
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_run_returns_the_results_of_the_command_with_pictures(main):
    made = fl.run("wen2023/fig3", "quick", workers=0)
    assert isinstance(made, Results) and made.status == "done" and len(made.verdicts) == 4
    figures = [Path(made.folder, name) for part in made.experiments for name in part.figures]
    assert figures and all(path.stat().st_size > 1000 for path in figures)
    assert Path(made.folder, "results.md").exists()
    said = json.loads(main("run", "wen2023/fig3", "--preset", "quick", "--json")[1])
    assert [v["measured"] for v in said["verdicts"]] == [v.measured for v in made.verdicts]


def test_reproduce_runs_every_experiment_of_a_source(here, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "flatlab.cli.verbs.run", lambda *args, **options: asked.append((args, options))
    )
    fl.reproduce("wen2023", seeds=2)
    assert asked == [(("wen2023", "lab"), {"seeds": 2})]
    with pytest.raises(fl.FlatlabError, match="a budget is a number with s, m or h"):
        monkeypatch.undo()
        fl.reproduce("wen2023", budget="soon")


def test_verify_takes_one_id_or_several(here):
    one = fl.verify("wen2023.thm4.1", workers=1)
    (result,) = one.results
    assert result.word == "holds corrected" and result.lines and not one.surprises
    assert [r.claim.id for r in fl.verify(["thm4.1"], workers=1).results] == [result.claim.id]
    with pytest.raises(fl.FlatlabError, match="unknown claim 'thm99'"):
        fl.verify("thm99")
    with pytest.raises(fl.FlatlabError, match="there is no folder nowhere"):
        fl.verify("thm4.1", results="nowhere")


def test_construct_returns_a_run_that_can_be_measured_and_trained_on(here):
    data = fl.data.xor(d=10, n=30)
    made = fl.construct("memorising", data, depth=2)
    assert isinstance(made, Run) and made.path is None and made.final["train_loss"] < 1e-20
    read = fl.measure(made.module(), made.config.loss, data, "trace")["trace"]
    assert read.value == pytest.approx(made.final["trace"], rel=1e-6)
    stored = fl.construct("memorising", data, out="mine", depth=2)
    assert stored.final == made.final and fl.load_run("mine").final == made.final
    with pytest.raises(fl.FlatlabError, match="memorising has no option 'depht'"):
        fl.construct("memorising", data, depht=3)


def test_flattest_returns_the_network_and_its_bound(here):
    found = fl.flattest(fl.data.xor(d=6, n=12), "bias", budget=20)
    assert isinstance(found, Flattest)
    assert found.trace >= found.dual_bound * (1 - 1e-6) and found.solution.loss() < 1e-12


POINTS = fl.data.xor(d=4, n=8, distinct=True)
PAIR = POINTS.x_train, POINTS.y_train
HUGE = "a network of 6e\\+13 parameters needs .* choose a smaller width or depth"
IDS = r"ids must be an id or a list of ids, got {}: `flatlab list experi"
CLAIMS = r"ids must be an id or a list of ids, got {}: `flatlab list cl"


def run(ids="wen2023/table1", preset="quick", **options):
    return lambda: fl.run(ids, preset, **options)


def verify(ids="thm4.1", **options):
    return lambda: fl.verify(ids, **options)


def construct(name="memorising", data=POINTS, **options):
    return lambda: fl.construct(name, data, **options)


def flattest(data=POINTS, family="bias", **options):
    return lambda: fl.flattest(data, family, **options)


MISTAKES = [
    (run(None), IDS.format("None")),
    (run(3), IDS.format("3")),
    (run(["wen2023/table1", 3]), IDS.format("3 among them")),
    (run(preset=None), "preset must be 'quick', 'lab' or 'paper', got None"),
    (run(changes=["d=2"]), r"changes must be a dict such as .*, got list of 1"),
    (run(changes="d=2"), r"changes must be a dict such as .*, got 'd=2'"),
    (run(changes={3: 1}), "the settings in changes are named by strings, got 3"),
    (run(formats=["png"]), "formats must be a text such as 'png' or 'png,pdf', got list of 1"),
    (run(formats=None), "formats must be a text such as 'png' or 'png,pdf', got None"),
    (run(out=None), "out must be a folder, got None"),
    (run(out=""), "out must be a folder, got '': name one"),
    (verify(results=""), "results must be a folder, got '': name one"),
    (run(out="a\0"), "out must be a folder, got .*null character"),
    (run(budget=float("nan")), "budget must be a finite number of seconds > 0, got nan"),
    (run(budget=True), "budget must be seconds or a text such as '30m', got True"),
    (run(budget=[1]), "budget must be seconds or a text such as '30m', got list of 1"),
    (run(timeout=[1]), "timeout must be seconds or a text such as '30m', got list of 1"),
    (run(seeds=2, changes={"seeds": 3}), "seeds is given 2 times .*: give it once"),
    (run(workers=-1), "workers must be >= 0, got -1"),
    (run(workers=1.5), "workers must be a whole number, got 1.5"),
    (run(workers=True), "workers must be a whole number, got True"),
    (run(fresh="no"), "fresh must be True or False, got 'no'"),
    (run(progress=0), "progress must be True or False, got 0"),
    (run(fail_fast="no"), "fail_fast must be True or False, got 'no'"),
    (run(retry_failed=None), "retry_failed must be True or False, got None"),
    (run(engine=3), "unknown engine 3: allowed: local, ray"),
    (run(engine="ray", address=3), "address must be HOST:PORT, .* got 3"),
    (run(engine="ray", cpus_per_job="2"), "cpus_per_job must be a number, got '2'"),
    (
        lambda: fl.reproduce(None),
        "source must be the name of a source, as ids begin with, got None",
    ),
    (verify(3), CLAIMS.format("3")),
    (verify([3]), CLAIMS.format("3 among them")),
    (verify(None), CLAIMS.format("None")),
    (verify(results=3), "results must be a folder, got 3"),
    (verify(source=3), "source must be the name of a source, as ids begin with, got 3"),
    (verify(seed=-1), "seed must be >= 0, got -1"),
    (verify(thorough="no"), "thorough must be True or False, got 'no'"),
    (construct(None), "name must be a construction such as 'memorising', got None"),
    (construct(data=None), "data must be a Dataset .*, got None"),
    (construct(width=10**13), HUGE),
    (construct(width=10**13, depth=3), r"a network of 1e\+26 parameters needs"),
    (construct(fresh="no"), "fresh must be True or False, got 'no'"),
    (construct(out=3), "out must be a directory, got 3"),
    (flattest(None), "data must be a Dataset .*, got None"),
    (flattest(budget=None), "budget must be seconds or a text such as '30m', got None"),
    (flattest(width=10**13), HUGE),
    (flattest(seed=-1), "seed must be >= 0, got -1"),
    (flattest(progress="no"), "progress must be True or False, got 'no'"),
]


@pytest.mark.parametrize("call, message", MISTAKES, ids=[text for _, text in MISTAKES])
def test_a_mistake_is_one_line(here, call, message):
    with pytest.raises(fl.FlatlabError, match=f"^{message}") as caught:
        call()
    assert "\n" not in str(caught.value) and not list(Path().iterdir())


def test_theory_takes_a_pair_of_arrays(here):
    made = fl.construct("memorising", PAIR, fresh=np.False_)
    assert made.final["train_loss"] < 1e-20
    assert fl.flattest(PAIR, "bias", budget="1m", progress=False).solution.loss() < 1e-12
