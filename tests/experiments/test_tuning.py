"""Learning rate, radius, label noise and batch size as settings of every experiment."""

import dataclasses

import pytest

from flatlab import experiments
from flatlab.errors import UserError
from flatlab.experiments import CATALOGUE
from flatlab.experiments.catalogue import settings_of
from flatlab.experiments.tuning import TUNED, has, tunable

# Experiments whose settings are grids of hyper-parameters have no single values to replace.
TRAINED = [
    id
    for id, e in CATALOGUE.items()
    if e.plan(e.presets["quick"]) and hasattr(e.presets["quick"], "lr")
]
NEW = {"lr": 0.0123, "rho": 0.0777, "noise": 0.0456, "batch_size": 3}


def phases(experiment, settings):
    """Return (run's name, position) → phase."""
    plan = experiment.plan(settings)
    return {(p.name, k): phase for p in plan for k, phase in enumerate(p.config.schedule)}


@pytest.mark.parametrize("id", TRAINED)
def test_every_experiment_takes_the_hyper_parameters_it_has(id):
    experiment, quick = CATALOGUE[id], CATALOGUE[id].presets["quick"]
    before, there = phases(experiment, quick), tunable(experiment.plan(quick))
    assert {"lr", "rho", "batch_size"} <= there
    for name in TUNED:
        if name not in there:
            with pytest.raises(UserError, match=f"unknown setting '{name}'"):
                settings_of([experiment], "quick", None, {name: NEW[name]})
            continue
        made = settings_of([experiment], "quick", None, {name: NEW[name]})[id]
        after = phases(experiment, made)
        changed = [key for key in before if before[key] != after[key]]
        assert changed, name
        for key in changed:
            assert has(before[key], name)
            others = [other for other in TUNED if other != name]
            assert all(getattr(before[key], o) == getattr(after[key], o) for o in others) or (
                "half" in key[0] or "slow" in key[0]  # variations of the changed value
            )
        if id.startswith("wen2023/fig") and id != "wen2023/fig2":
            assert {getattr(after[key], name) for key in changed} == {NEW[name]}


def test_an_arm_keeps_the_value_that_makes_it_what_it_is():
    experiment = CATALOGUE["beyond/algorithms"]
    made = settings_of([experiment], "quick", None, {"batch_size": 3, "lr": 0.5})[experiment.id]
    after = phases(experiment, made)
    assert after["algorithms-bias-sam5-seed0", 0].batch_size == 5
    assert after["algorithms-bias-sgd-seed0", 0].batch_size == 3
    assert after["algorithms-bias-gd_decay-seed0", 0].batch_size is None
    assert after["algorithms-bias-large_lr-seed0", 3].lr < 0.5
    rescue = CATALOGUE["beyond/rescue"]
    made = settings_of([rescue], "quick", None, {"rho": 0.2})[rescue.id]
    assert phases(rescue, made)["rescue-radius_half-seed0", 0].rho == 0.1


def test_a_batch_larger_than_the_data_is_refused():
    experiment = CATALOGUE["wen2023/fig4"]
    settings = settings_of([experiment], "quick", None, {"batch_size": 61})["wen2023/fig4"]
    with pytest.raises(UserError, match="batch_size must be <= n = 60, got 61"):
        experiment.plan(settings)


def test_a_decided_verdict_says_what_was_changed(tmp_path, monkeypatch):
    whole = CATALOGUE["wen2023/fig4"]
    epochs = {"gd_epochs": 2, "sam_epochs": 1, "sam_epochs_second": 1}
    small = dataclasses.replace(whole.presets["quick"], n=8, width=5, n_test=20, **epochs)
    presets = {"lab": small, "paper": small}
    comparison = dataclasses.replace(_comparison(), presets=presets)
    monkeypatch.setitem(CATALOGUE, "wen2023/fig4", comparison.experiment(whole.module))
    found = experiments.run("wen2023/fig4", out=tmp_path, changes={"rho": 0.5}, workers=0)
    assert found.folder.endswith("wen2023-fig4-lab-rho=0.5")
    decided = [v for v in found.verdicts if v.holds is not None]
    assert decided
    assert all("(changed setting: rho = 0.5 (lab: as planned))" in v.reason for v in decided)


def _comparison():
    from flatlab.experiments.wen2023 import fig4

    return fig4.COMPARISON
