"""Networks of theory as runs: stored, read back, measured, and trained on from."""

import numpy as np
import pytest

import flatlab as fl
from flatlab.errors import UserError
from flatlab.theory import bias_floor
from flatlab.theory.constructions import construct
from flatlab.training.run import load_run, params_digest
from flatlab.training.session import store_network

XOR = fl.data.xor(d=8, n=20, seed=1, n_test=200)


def stored(name, options, out, **how):
    made = construct(name, XOR, options)
    return store_network(made.arch, made.params, XOR, {"construction": name, **options}, out, **how)


def test_a_construction_is_a_run_like_any_other(tmp_path):
    made = stored("memorising", {"depth": 3}, tmp_path / "run")
    read = load_run(tmp_path / "run")
    assert read.status == made.status == "done"
    assert read.config == made.config and read.config.epochs == 0
    assert read.final["trace"] == pytest.approx(bias_floor(XOR, 3), rel=1e-9)
    assert read.final["train_loss"] < 1e-20
    for name, value in made.params.items():
        assert value.dtype == np.float64 and np.array_equal(read.params[name], value)
    found = fl.measure(read.module(), "mse", read.dataset(), "trace")
    assert found["trace"].value == pytest.approx(bias_floor(XOR, 3), rel=1e-9)


def test_the_same_again_is_found_and_another_is_refused(tmp_path):
    stored("four-neurons", {}, tmp_path / "run")
    again = stored("four-neurons", {}, tmp_path / "run")
    assert again.final["trace"] == pytest.approx(12.0)
    with pytest.raises(UserError, match="holds another run"):
        stored("four-neurons", {"r": 2.0}, tmp_path / "run")


def _on_from(start, out=None, epochs=3):
    return fl.train(
        load_run(start).config.arch, XOR, start=start, dtype="float64", out=out,
        schedule=[fl.Phase("sam", lr=0.001, rho=0.01, batch_size=1, epochs=epochs)],
    )  # fmt: skip


def test_training_goes_on_from_a_run(tmp_path):
    made = stored("four-neurons", {}, tmp_path / "start")
    run = _on_from(tmp_path / "start", tmp_path / "on")
    assert run.columns["trace"][0] == pytest.approx(made.final["trace"], rel=1e-12)
    assert run.columns["train_loss"][0] < 1e-20
    # At an interpolating network every per-example gradient is zero: SAM stays.
    assert all(np.array_equal(run.params[name], value) for name, value in made.params.items())
    read = load_run(tmp_path / "on")
    assert read.config.start["run"] == str(tmp_path / "start")


def test_other_parameters_in_the_place_of_the_start_are_noticed(tmp_path):
    stored("four-neurons", {}, tmp_path / "start")
    table = _on_from(tmp_path / "start").config.to_dict()
    stored("four-neurons", {"r": 1.5}, tmp_path / "start", fresh=True)
    from flatlab.training.config import RunConfig
    from flatlab.training.session import run_config

    with pytest.raises(UserError, match="other parameters"):
        run_config(RunConfig.from_dict(table), data=XOR)


def test_a_start_that_does_not_fit_is_one_clear_line(tmp_path):
    stored("four-neurons", {}, tmp_path / "start")
    with pytest.raises(UserError, match="does not fit the architecture"):
        fl.train(
            fl.models.TwoLayer(width=5), XOR, start=tmp_path / "start",
            schedule=[fl.Phase("sgd", lr=0.1, epochs=1)],
        )  # fmt: skip
    with pytest.raises(UserError, match="flatlab construct"):
        from flatlab.training.session import run_config

        run_config(load_run(tmp_path / "start").config, data=XOR)


def test_an_empty_schedule_needs_a_start():
    with pytest.raises(UserError, match="schedule"):
        fl.train(fl.models.TwoLayer(width=5), XOR, schedule=[])


def test_the_digest_of_parameters_knows_names_shapes_and_types():
    """The bytes of all of these are the same."""
    values = np.arange(6.0).reshape(2, 3)
    same = [
        {"W1": values},
        {"W2": values},
        {"W1": values.reshape(3, 2)},
        {"W1": values.view(np.int64)},
        {"W1": values[:1], "W2": values[1:]},
    ]
    assert len({params_digest(params) for params in same}) == len(same)
    fortran = {"W1": np.asfortranarray(values)}  # the order in memory is no part of it
    assert params_digest(fortran) == params_digest(same[0])


@pytest.mark.parametrize("phase", [("sam", "rho"), ("usam", "rho"), ("label_noise", "noise")])
def test_a_stored_zero_is_read_with_and_without_its_name(phase, tmp_path):
    """Older versions left rho = 0 out of config.toml; the run keeps its name."""
    name, option = phase
    made = [fl.Phase(name, lr=0.01, epochs=2, **{option: 0.0})]
    run = fl.train(fl.models.TwoLayer(width=3), XOR, schedule=made, out=tmp_path / "run")
    path = tmp_path / "run" / "config.toml"
    text = path.read_text().partition("\n")[2]
    assert f", {option} = 0.0" in text
    path.write_text(text.replace(f", {option} = 0.0", ""))
    assert load_run(tmp_path / "run").config == run.config
    again = fl.train(fl.models.TwoLayer(width=3), XOR, schedule=made, out=tmp_path / "run")
    assert again.config.digest() == run.config.digest() and again.status == "done"
