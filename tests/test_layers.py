"""The rooms of the house: what each may import, which nouns it may say, which effects it may have.

The source is read, not run, except where the question is what an import drags in.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from rooms import NAMES, PICTURE, ROOT, arrows, drawn, listed, room_of, rooms_imported, tree_of

# A room is a file or a folder of src/flatlab. Each line: the room, and the rooms it may import.
# `errors` says what went wrong, `randomness` draws, `specs` makes values of options: foundations.
FOUNDATIONS = "errors randomness specs"
ALLOWED = {
    "errors": "",
    "randomness": "errors",
    "specs": "errors",
    "outside": "errors",
    "losses": "errors specs",
    "plots": "outside",
    "files": "errors specs",
    "data": "errors randomness specs",
    "models": f"{FOUNDATIONS} outside",
    "optim": "errors",
    "problem": "errors outside randomness data losses",
    "measures": f"{FOUNDATIONS} outside plots problem",
    "anatomy": "errors data models plots",
    "engine": "errors randomness data models losses files",
    "training": f"{FOUNDATIONS} outside plots engine optim models data losses measures anatomy "
    "files",
    "theory": "errors randomness plots data models losses measures",
    "jobs": "errors outside training engine files",
    "claims": f"{FOUNDATIONS} data models losses optim problem measures theory training "
    "experiments jobs outside",
    "experiments": f"{FOUNDATIONS} outside data models losses training theory measures "
    "jobs files plots",
    "report": "errors outside plots experiments files claims",
    "cli": "errors specs outside data models losses measures training anatomy theory jobs "
    "claims experiments report files",
    "__main__": "cli",
    "__init__": "data models optim errors losses training measures problem anatomy cli",
}


def packages_imported(name):
    """Return the top-level packages of others that a file imports."""
    found = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def calls(name):
    """Yield (dotted name, call) for every call in a file."""
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_the_reader_of_imports_sees_them_all():
    """The checks below are only as good as this: known imports of every form are found."""
    assert "report" in rooms_imported("cli/verbs.py")  # from .. import, in a function
    assert rooms_imported("engine/compiled.py") >= {"data", "models", "randomness"}
    assert rooms_imported("engine/deep.py") == set()  # its own room is no import
    assert "plots" in rooms_imported("report/figures.py")
    assert "torch" in packages_imported("models/build.py")
    assert "numba" in packages_imported("engine/deep.py")


@pytest.mark.parametrize("name", NAMES)
def test_imports_follow_the_arrows(name):
    room = room_of(name)
    assert room in ALLOWED, f"give the room {room!r} a line in ALLOWED, and in the design"
    forbidden = rooms_imported(name) - set(ALLOWED[room].split())
    assert not forbidden, f"{name} may not import {sorted(forbidden)}"


def test_the_arrows_have_no_cycle():
    done: set[str] = set()
    left = {room: set(allowed.split()) for room, allowed in ALLOWED.items()}
    while left:
        ready = {room for room, allowed in left.items() if allowed <= done}
        assert ready, f"a cycle among {sorted(left)}"
        done |= ready
        left = {room: allowed for room, allowed in left.items() if room not in ready}


def test_the_picture_shows_the_imports_of_today():
    assert drawn() == listed(arrows()), "draw docs/images/rooms.png anew: make rooms"


def test_the_page_has_a_row_for_every_room():
    text = (PICTURE.parents[1] / "architecture.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \| \S.* \|.*\|$", text, re.MULTILINE))
    assert not arrows().keys() - rows


def test_a_name_of_a_type_means_one_thing_in_the_whole_package():
    found: dict[str, set[str]] = {}
    for name in NAMES:
        for node in tree_of(name).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            named = [t.id for t in targets if isinstance(t, ast.Name)]
            named += [node.name] if isinstance(node, ast.ClassDef) else []
            for each in named:
                if re.fullmatch(r"[A-Z]\w*[a-z]\w*", each):
                    found.setdefault(each, set()).add(room_of(name))
    several = {name: rooms for name, rooms in found.items() if len(rooms) > 1}
    assert several.keys() <= {"Array"}, several  # each room says which numpy array it means


def test_only_the_engine_says_njit():
    for name in NAMES:
        if room_of(name) != "engine":
            text = (ROOT / name).read_text(encoding="utf-8")
            assert not re.search(r"\b(njit|jitclass|prange)\b", text), name
            assert "numba" not in packages_imported(name), name


def test_only_the_report_draws():
    for name in NAMES:
        if room_of(name) != "report":
            found = packages_imported(name) & {"matplotlib", "plotly", "jinja2", "seaborn"}
            assert not found, f"{name} imports {found}"


def test_nobody_asks_for_the_type_of_an_architecture():
    kinds = r"TwoLayer|Deep|MLP|CNN|VGG11|Chain|models\.Module"
    asks = re.compile(rf"\barch\.kind (==|!=|in\b|not\b)|isinstance\([^()]*\b({kinds})\b")
    for name in NAMES:
        if room_of(name) != "models":
            assert not asks.search((ROOT / name).read_text(encoding="utf-8")), name


# The one place where a paper's name is an example of what to type.
EXAMPLE = re.compile(r'help="e\.g\. wen2023/table1;')


def test_only_theory_and_experiments_name_a_paper():
    for name in NAMES:
        if room_of(name) not in ("theory", "claims", "experiments"):
            text = (ROOT / name).read_text(encoding="utf-8")
            if name == "cli/running.py":
                text = EXAMPLE.sub("", text)
            found = re.findall(r"wen2023|Wen, Li|kaur2022|Kaur, Cohen|wu2025|Wu & Su", text)
            assert not found, f"{name} names {found}"


WRITERS = {
    "write_bytes", "write_text", "writelines", "touch", "mkdir", "makedirs", "rmdir", "rmtree",
    "unlink", "symlink_to", "hardlink_to", "ftruncate", "savez", "savez_compressed", "savetxt",
    "tofile", "save_file", "to_csv", "to_parquet", "to_json", "to_pickle", "dump",
}  # fmt: skip
OS_WRITERS = {"os.replace", "os.rename", "os.remove", "os.write", "os.fsync", "np.save"}


def writes(name):
    """Return the calls of a file that change the disk."""
    found = []
    for dotted, call in calls(name):
        last = dotted.rpartition(".")[2]
        if last == "open":
            arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
            modes = [a.value for a in arguments if isinstance(a, ast.Constant)]
            modes = [m for m in modes if isinstance(m, str) and re.fullmatch(r"[rwaxbt+U]+", m)]
            if any(set(mode) & set("wax+") for mode in modes):
                found.append(dotted)
        elif last in WRITERS or dotted in OS_WRITERS:
            found.append(dotted)
    return found


def test_only_the_store_writes():
    stores = [name for name in NAMES if room_of(name) == "files"]
    assert sum(len(writes(name)) for name in stores) >= 8  # the reader of writes sees them
    for name in NAMES:
        if name not in stores:
            assert not writes(name), f"{name} writes: {writes(name)}"


def test_only_files_reaches_the_network():
    network = {"urllib", "http", "socket", "ssl", "ftplib", "requests"}
    assert packages_imported("files/download.py") & network  # the reader of imports sees it
    for name in NAMES:
        if room_of(name) != "files" and name != "jobs/connecting.py":  # asks a cluster's address
            assert not packages_imported(name) & network, name


def test_only_the_command_line_prints():
    for name in NAMES:
        # `explain` is a function whose purpose is to print; progress is drawn on stderr.
        alone = name in ("measures/explaining.py", "outside/progress.py")
        if room_of(name) not in ("cli", "__main__") and not alone:
            found = [
                dotted
                for dotted, _ in calls(name)
                if dotted == "print" or dotted.endswith((".print", "stdout.write", "stderr.write"))
            ]
            assert not found, f"{name} prints: {found}"


# Generators of torch that are seeded for one block or one step, and put back or thrown away.
SEEDED = {
    "randomness.py": "torch.default_generator.manual_seed",
    "training/torch_trainer.py": ("dice.manual_seed", "torch.Generator"),
}


def test_randomness_is_an_argument():
    """Nothing seeds globally, and no generator starts from the clock."""
    for name in NAMES:
        for dotted, call in calls(name):
            last = dotted.rpartition(".")[2]
            if name in SEEDED and dotted.startswith(SEEDED[name]):  # by (seed, purpose, step)
                continue
            assert last not in ("seed", "manual_seed", "set_state", "RandomState"), (name, dotted)
            if last in ("default_rng", "Philox", "PCG64", "SeedSequence", "Random"):
                assert call.args or call.keywords, f"{name}: {dotted}() without a seed"
            if dotted == "torch.random.fork_rng":  # puts the caller's state back
                continue
            if dotted.startswith(("np.random.", "numpy.random.", "torch.rand", "random.")):
                assert name == "randomness.py", f"{name}: {dotted}"


def modules_after(code, *packages):
    """Run code in a process of its own; return which of these packages it imported."""
    question = f"import sys; print(*(p for p in {packages!r} if p in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\n{question}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


HEAVY = ("torch", "numba", "pandas", "scipy", "matplotlib", "pyarrow")
TRAIN = """
import flatlab as fl
data = fl.data.xor(d=6, n=23, seed=3, n_test=10)
phase = fl.Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=2)
run = fl.train(fl.models.TwoLayer(width=11), data, schedule=[phase])
assert run.status == "done"
"""


def test_importing_flatlab_is_cheap():
    assert modules_after("import flatlab", *HEAVY, "pydantic", "numpy") == set()
    assert modules_after("import flatlab; flatlab.data; flatlab.models; flatlab.Phase", *HEAVY) == (
        set()
    )


def test_the_catalogue_does_without_torch():
    """`flatlab list` and `flatlab run` answer sooner by what they do not import."""
    seconds_each = (*HEAVY, "scipy.stats")
    assert modules_after("import flatlab.experiments", *seconds_each) == {"numba", "scipy"}


def test_the_engine_does_without_torch():
    assert modules_after("import flatlab.engine", *HEAVY) == {"numba", "scipy"}
    found = modules_after(TRAIN, *HEAVY)
    assert not found & {"torch", "pandas", "matplotlib", "pyarrow"}
    assert "torch" in modules_after(f"{TRAIN}\nrun.module()", *HEAVY)  # the question is a good one


def test_a_class_has_a_name_of_its_own():
    """One name means one thing: no two classes of the package share a public name.

    The file of an experiment calls its settings `Settings`; it has no other class of a common name.
    """
    homes: dict[str, list[str]] = {}
    for name in NAMES:
        for node in tree_of(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                alike = "Settings" if name in EXPERIMENTS and node.name == "Settings" else name
                homes.setdefault(node.name, []).append(alike)
    assert {name: files for name, files in homes.items() if len({*files}) > 1} == {}


# About 300 lines are meant; 400 are the limit.
@pytest.mark.parametrize("name", NAMES)
def test_files_are_short(name):
    lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
    assert lines <= 400, f"{name} has {lines} lines: which concept in it lacks a file?"


EXPERIMENTS = [
    name
    for name in NAMES
    if len(Path(name).parts) == 3
    and room_of(name) == "experiments"
    and not Path(name).name.startswith("_")
]
HEADER = ("Source", "Command", "Seconds", "Claim", "Expected")


def test_there_are_experiments():
    assert "experiments/wen2023/table1.py" in EXPERIMENTS


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_opens_with_what_it_is(name):
    """Source and figure, command, measured seconds, claim, expected number and tolerance."""
    docstring = ast.get_docstring(tree_of(name)) or ""
    lines = dict(re.findall(r"^(\w+): +(\S.*)$", docstring, flags=re.MULTILINE))
    assert [key for key in lines if key in HEADER] == list(HEADER)
    module = import_module("flatlab." + name.removesuffix(".py").replace("/", "."))
    assert f"flatlab run {module.EXPERIMENT.id}" in lines["Command"]
