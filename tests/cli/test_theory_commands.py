"""`flatlab construct` and `flatlab flattest`, and training on from what they store."""

import json

import numpy as np
import pytest

import flatlab as fl

DATA = "xor:d=8,n=20,seed=1,n_test=200"


def _json(main, *arguments):
    code, out, err = main(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_construct_measure_and_train_on(main, tmp_path):
    found = _json(main, "construct", "memorising", "--data", DATA, "--out", tmp_path / "a")
    assert found["trace"] == pytest.approx(12.0) and found["train_loss"] < 1e-20
    measured = _json(main, "measure", tmp_path / "a", "--measures", "trace")
    assert measured["measures"]["trace"]["value"] == pytest.approx(12.0)
    on = _json(
        main, "train", "--start", tmp_path / "a", "--phase",
        "sam:lr=0.01,rho=0.05,batch_size=1,epochs=3", "--out", tmp_path / "b",
    )  # fmt: skip
    assert on["history"]["trace"][0] == pytest.approx(12.0)


def test_flattest_is_stored(main, tmp_path):
    found = _json(
        main, "flattest", "--arch", "bias", "--data", "xor:d=6,n=10,seed=0", "--budget", "10",
        "--out", tmp_path / "a",
    )  # fmt: skip
    assert found["trace"] == pytest.approx(4 * 7**0.5, rel=1e-6)
    assert found["reference"] == pytest.approx(4 * 7**0.5)
    assert "proven" in found["search"]
    shown = _json(main, "show", tmp_path / "a")
    assert shown["final"]["trace"] == pytest.approx(found["trace"], rel=1e-6)


MISTAKES = {
    "a name": (["construct", "memorizing", "--data", DATA], "memorising"),
    "an option": (["construct", "memorising:eps=1", "--data", DATA], "epsilon"),
    "not extreme": (["construct", "memorising", "--data", "ball:d=2,n=50"], "convex hull"),
    "duplicates": (["construct", "memorising", "--data", "xor:d=3,n=30"], "are equal"),
    "d < 2": (["construct", "four-neurons", "--data", "xor:d=1,n=4"], "d"),
    "n < 1": (["construct", "four-neurons", "--data", "xor:d=4,n=0"], "n must be >= 1"),
    "too narrow": (["construct", "memorising:epsilon=1e-12", "--data", DATA], "float64"),
    "a family": (["flattest", "--arch", "deep", "--data", DATA], "no-bias"),
    "too few neurons": (["flattest", "--arch", "bias", "--data", DATA, "--width", "2"], "width"),
    **{
        f"a budget of {text}": (
            ["flattest", "--arch", "bias", "--data", DATA, f"--budget={text}"],
            f"budget must be a finite number of seconds > 0, got {text}",
        )
        for text in ("nan", "inf", "-inf", "-1")
    },
    "no budget": (["flattest", "--arch", "bias", "--data", DATA, "--budget", "0"], "budget"),
    "no run": (["train", "--start", "/nowhere", "--phase", "sgd:lr=0.1,epochs=1"], "run directory"),
}


def test_the_budget_of_a_search_has_units_or_is_seconds(main, tmp_path):
    data = ["flattest", "--arch", "bias", "--data", "xor:d=4,n=6", "--json", "--out"]
    for k, text in enumerate(("60", "60s", "1m")):
        code, _, err = main(*data, tmp_path / str(k), "--budget", text)
        assert code == 0, err
    starts = {str(fl.load_run(tmp_path / str(k)).config.start) for k in range(3)}
    assert len(starts) == 1 and "'budget': 60.0" in starts.pop()
    for text, part in (("0", "> 0, got 0"), ("nan", "got nan"), ("soon", "90s, 30m, 2h")):
        code, _, err = main(*data, tmp_path / "no", "--budget", text)
        assert code == 2 and part in err and err.count("\n") == 1
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake, main, tmp_path):
    arguments, part = MISTAKES[mistake]
    code, out, err = main(*arguments, "--out", tmp_path / "a")
    assert code == 2 and not out
    assert part in err and err.count("\n") == 1


@pytest.mark.parametrize("command", [["construct", "memorising"], ["flattest", "--arch", "bias"]])
def test_images_are_refused(command, main, tmp_path):
    x, y = np.ones((3, 1, 2, 2)), np.ones(3)
    np.savez(tmp_path / "images.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    code, out, err = main(*command, "--data", tmp_path / "images.npz", "--out", tmp_path / "a")
    assert code == 2 and not out and not (tmp_path / "a").exists()
    assert "needs inputs of shape (n, d)" in err and err.count("\n") == 1
