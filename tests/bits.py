"""The bits of a table of short runs: recorded before a change, compared after it.

    python tests/bits.py record FILE
    python tests/bits.py compare FILE

A row is a run's final parameters and history as one SHA-256. Bits belong to one machine and one set
of library versions, so FILE stays on the machine that made it. Each run is made twice, once at a
stretch and once stopped in the middle and resumed; the two must be equal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

import flatlab as fl

DATA = {
    "xor": lambda: fl.data.xor(d=10, n=40, seed=0, n_test=200),
    "circle": lambda: fl.data.circle(n=12, seed=0, n_test=50),
}
TWO, DEEP = fl.models.TwoLayer, fl.models.Deep
SAM = {"algorithm": "sam", "lr": 0.01, "rho": 0.05, "batch_size": 1, "epochs": 40}
SGD = {"algorithm": "sgd", "lr": 0.02, "weight_decay": 0.01, "epochs": 60}


def phases(*parts):
    """Return a schedule; each part is a dictionary of a phase's fields."""
    return [fl.Phase(**part) for part in parts]


def table():
    """Yield (name, arch, data, schedule, loss)."""
    archs = {
        "plain": TWO(width=64, bias=False),
        "bias": TWO(width=100, bias=True),
        "softplus": TWO(width=50, bias=True, activation="softplus"),
        "tanh": TWO(width=50, activation="tanh"),
        "batch": TWO(width=64, norm="batch"),
        "layer": TWO(width=64, norm="layer"),
        "standard_batch": TWO(width=30, norm="standard_batch"),
        "standard_layer": TWO(width=30, norm="standard_layer"),
        "deep": DEEP(depth=3, width=40),
        "deeper": DEEP(depth=4, width=20, bias_first=False),
    }
    algorithms = {
        "sam": phases(SAM),
        "gd": phases(SGD),
        "m-sam": phases({**SAM, "batch_size": 5}),
        "label_noise": phases(
            {"algorithm": "label_noise", "lr": 0.01, "noise": 0.5, "batch_size": 1, "epochs": 30}
        ),
    }
    for name, arch in archs.items():
        for algorithm, schedule in algorithms.items():
            if algorithm in ("sam", "gd") or name in ("bias", "batch", "deep"):
                yield f"{name} {algorithm}", arch, "xor", schedule, "mse"
    bias, batch = archs["bias"], archs["batch"]
    usam = phases({**SAM, "algorithm": "usam", "rho": 0.02})
    yield "bias usam", bias, "xor", usam, "mse"
    yield "bias two phases", bias, "xor", phases(SAM, {**SAM, "rho": 0.1, "epochs": 10}), "mse"
    yield "bias logistic", bias, "xor", phases(SAM), "logistic"
    yield "bias momentum", bias, "xor", phases({**SAM, "lr": 0.001, "momentum": 0.9}), "mse"
    apart = phases({**SAM, "bias_lr": 0.001, "bias_weight_decay": 0.1})
    yield "bias apart", bias, "xor", apart, "mse"
    yield "bias input noise", bias, "xor", phases({**SAM, "input_noise": 0.1}), "mse"
    yield "bias second batch", bias, "xor", phases({**SAM, "second_batch": "other"}), "mse"
    held = phases({**SAM, "max_first_layer_norm": 3.0, "norm_rule": "each"})
    yield "bias norm rule", bias, "xor", held, "mse"
    within = phases({**SAM, "max_first_layer_norm": 2.0})  # a limit that all of these reach
    for name in ("tanh", "batch", "layer", "standard_batch", "standard_layer", "deep"):
        yield f"{name} within a norm", archs[name], "xor", within, "mse"
    yield "bias order", bias, "xor", phases({**SAM, "order": "replacement"}), "mse"
    rules = phases({**SAM, "gamma": "unperturbed", "statistics": "constant"})
    yield "batch rules", batch, "xor", rules, "mse"
    yield "circle", TWO(width=100), "circle", phases(SAM), "mse"
    yield "truncated", bias, "xor", phases({**SGD, "epochs": 20}), "truncated_mse"


LATER = ("step", "train_error")  # columns that came after the first record


class Stop(Exception):
    """Raised in the middle of a run."""


def bits(run):
    """Return the SHA-256 of a run's parameters and history."""
    total = hashlib.sha256(run.status.encode())
    columns = {name: c for name, c in run.columns.items() if name not in LATER}
    for name, value in {**run.params, **columns}.items():
        total.update(f"{name}{value.dtype}{value.shape}".encode())
        total.update(value.tobytes())
    return total.hexdigest()


def resumed(folder, epochs, **options):
    """Train into a folder, stop in the middle, and train to the end."""

    def stop(info):
        if info["epoch"] > epochs / 2:
            raise Stop

    with contextlib.suppress(Stop):
        fl.train(**options, out=folder, report=stop)
    return fl.train(**options, out=folder)


def rows():
    """Return name → SHA-256 of every run."""
    found = {}
    for name, arch, data, schedule, loss in table():
        for dtype in ("float32", "float64"):
            backends = (
                ["auto"]
                if name.split()[-1] not in ("sam", "gd", "momentum")
                else [
                    "auto",
                    "torch",
                ]
            )
            for backend in backends:
                options = dict(
                    arch=arch, data=DATA[data](), schedule=schedule, loss=loss, seed=3,
                    dtype=dtype, backend=backend, log=fl.LogGrid(per_decade=3, regular=5),
                )  # fmt: skip
                straight = bits(fl.train(**options))
                with tempfile.TemporaryDirectory() as folder:
                    epochs = sum(phase.epochs for phase in schedule)
                    again = bits(resumed(Path(folder) / "run", epochs, **options))
                assert straight == again, f"{name} {dtype} {backend}: resumed differs"
                found[f"{name} {dtype} {backend}"] = straight
    return found


def main():
    """Record or compare."""
    os.environ["FLATLAB_CHECKPOINT_SECONDS"] = "0"
    verb, path = sys.argv[1], Path(sys.argv[2])
    found = rows()
    if verb == "record":
        path.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} runs recorded")
        return
    expected = json.loads(path.read_text())
    wrong = [name for name in expected if found.get(name) != expected[name]]
    print(f"{len(expected) - len(wrong)} of {len(expected)} runs have the recorded bits", *wrong)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
