"""The pictures of the theory show the right data and can be drawn."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from flatlab.claims.sources import SOURCES
from flatlab.theory import illustrations, sights
from flatlab.theory.illustration import Illustration
from flatlab.theory.pictures import circle_plot


def test_flattest_minima_that_memorise_and_that_generalise_are_connected():
    straight, flat = sights.between_minima(d=6, n=16)
    floor = 4 * np.sqrt(7)
    assert flat.loss.max() < 1e-20
    np.testing.assert_allclose(flat.trace, floor, rtol=1e-9)
    assert flat.test_error[0] == 1 - 16 / 64 and not flat.test_error[1:].any()
    t = straight.t
    np.testing.assert_allclose(straight.loss, (2 * t * (1 - t)) ** 2, atol=1e-12)
    np.testing.assert_allclose(straight.trace, floor * ((1 - t) ** 2 + t**2), rtol=1e-9)


def test_the_scale_of_the_xor_network_is_least_at_the_corrected_r():
    r, trace, floor = sights.trace_by_scale(d=10, n=20)
    np.testing.assert_allclose(trace, 2 * (r**2 + 11 / r**2), rtol=1e-9)
    assert floor == pytest.approx(4 * np.sqrt(11)) and trace.min() >= floor


def test_a_neuron_on_the_circle_fires_where_the_cosine_says():
    for epsilon, half in sights.circle_regions(n=12).half.items():
        assert half == pytest.approx(np.arccos(1 - epsilon), abs=1e-3)


def test_batch_norm_falls_to_eight():
    K, trace = sights.batch_norm_path()
    np.testing.assert_allclose((trace - 8) * K**2, (trace[0] - 8) * K[0] ** 2, rtol=1e-5)


def test_the_complexity_is_below_its_bound():
    found = dict(sights.rademacher_by_samples(d=4, sizes=(6, 12)))
    assert all(0 < each.value < each.bound for each in found.values())


@pytest.mark.slow
def test_the_flattest_with_bias_is_at_the_floor_whatever_n():
    (no_bias, bias, batch_norm) = sights.flattest_accuracy(d=5, ratios=(1, 4), seeds=1)
    assert [each.family for each in (no_bias, bias, batch_norm)] == ["no-bias", "bias", "sim-bn"]
    np.testing.assert_allclose(bias.trace_over_reference, 1, rtol=1e-6)
    assert no_bias.accuracy[1, 0] > no_bias.accuracy[0, 0]


def test_the_command_draws(main, monkeypatch, tmp_path):
    fast = {name: illustrations.PICTURES[name] for name in ("circle", "between-minima")}
    monkeypatch.setattr(illustrations, "PICTURES", fast)
    code, out, err = main("verify", "--pictures", "--out", tmp_path, "--json")
    assert code == 0, err
    for path in json.loads(out)["pictures"]:
        assert (tmp_path / path).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "words, names",
    [
        ([], ["circle", "other"]),
        (["wen2023"], ["circle"]),
        (["--source", "wen2023"], ["circle"]),
        (["made-up"], ["other"]),
        (["made-up", "wen2023"], ["circle", "other"]),
    ],
)
def test_the_command_draws_the_pictures_of_a_source(main, monkeypatch, tmp_path, words, names):
    def other(tell):
        return dataclasses.replace(circle_plot(tell), name="other")

    two = {"circle": illustrations.PICTURES["circle"], "other": Illustration("made-up", other)}
    monkeypatch.setattr(illustrations, "PICTURES", two)
    code, out, err = main("verify", *words, "--pictures", "--out", tmp_path, "--json")
    assert code == 0, err
    assert [Path(path).stem for path in json.loads(out)["pictures"]] == names


def test_every_picture_illustrates_a_source_under_its_own_name():
    assert {each.source for each in illustrations.PICTURES.values()} <= set(SOURCES)
    for name, each in illustrations.PICTURES.items():
        if each.seconds <= 10:
            assert each.make(lambda text: None).name == name
