"""The memory that is free, from files as Linux writes them, and the refusal of what needs more."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import flatlab as fl
from flatlab.errors import UserError
from flatlab.outside import memory

GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Write files of a machine with 8 GiB available; returns the function that writes more."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    write("proc/meminfo", f"MemTotal: 1 kB\nMemAvailable:  {8 * 2**20} kB")
    return write


def test_without_limits_it_is_what_the_machine_has(machine):
    assert memory.free_memory() == 8 * GIB
    machine("proc/self/cgroup", "0::/user.slice")
    machine("cgroup/user.slice/memory.max", "max")
    machine("cgroup/user.slice/memory.current", 5)
    assert memory.free_memory() == 8 * GIB


def test_limits_of_version_2_count_on_every_level(machine):
    machine("proc/self/cgroup", "0::/a/b")
    machine("cgroup/a/b/memory.max", 4 * GIB)
    machine("cgroup/a/b/memory.current", GIB)
    assert memory.free_memory() == 3 * GIB
    machine("cgroup/a/b/memory.stat", f"anon 7\ninactive_file {GIB // 2}")
    assert memory.free_memory() == 3.5 * GIB  # cached files are given back
    machine("cgroup/memory.max", 2 * GIB)  # of a container that does not see /a/b
    machine("cgroup/memory.current", 2 * GIB + 5)
    assert memory.free_memory() == 0


def test_limits_of_version_1(machine):
    machine("proc/self/cgroup", "5:cpu:/x\n4:memory:/job")
    machine("cgroup/memory/job/memory.limit_in_bytes", 2 * GIB)
    machine("cgroup/memory/job/memory.usage_in_bytes", GIB)
    machine("cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    machine("cgroup/memory/memory.usage_in_bytes", GIB)
    assert memory.free_memory() == GIB


def test_this_machine_has_some():
    assert 2**20 < memory.free_memory() < 2**50


def test_a_network_or_a_batch_that_does_not_fit_is_one_line(monkeypatch):
    """An image of 64·64 pixels through 16 channels keeps 7/16 MiB, so 512 of them keep 224 MiB."""
    x = np.zeros((512, 3, 64, 64), np.float32)
    data, phase = fl.data.arrays(x, np.arange(512) % 2, classes=2), fl.Phase("sgd", 0.1, 1)
    options = {"schedule": [phase], "loss": "cross_entropy"}
    monkeypatch.setattr(memory, "free_memory", lambda: 128 * 2**20)
    said = r"a step on 512 examples \(\S+ MiB of activations each\) needs \S+ GiB of memory and "
    with pytest.raises(UserError, match=f"{said}0.125 are free here: give a smaller batch_size or"):
        fl.train(fl.models.CNN(channels=(16,)), data, **options)
    small = fl.Phase("sgd", lr=0.1, epochs=1, batch_size=16)
    small_data = fl.data.arrays(x[:32], np.arange(32) % 2, classes=2)
    run = fl.train(
        fl.models.CNN(channels=(16,)), small_data, schedule=[small], loss=options["loss"]
    )
    assert run.status == "done"
    with pytest.raises(UserError, match=r"a network of 1\.\d+e\+08 parameters needs "):
        fl.train(fl.models.TwoLayer(width=10**7), fl.data.xor(d=10, n=9), schedule=[phase])


def test_a_pass_that_differentiates_inside_is_counted():
    w = torch.ones(4, 3, requires_grad=True)

    def run():
        x = torch.ones(2, 4, requires_grad=True)
        return torch.autograd.grad((x @ w).tanh().sum(), x, create_graph=True)[0]

    assert memory.saved_bytes(run) >= 4 * w.numel()
