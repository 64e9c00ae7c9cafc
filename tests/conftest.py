"""Real flatlab processes, for the tests of commands, kills and full disks."""

import os

# One thread a process, here and in children: tests run one process a core, and small problems are
# many times slower when threads outnumber cores. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The width of a pipe, whatever the terminal of the one who tests. Before the console is made.
os.environ["COLUMNS"] = "120"
# No lines of progress on stderr, which tests compare: on a busy machine a command takes seconds.
os.environ["FLATLAB_PROGRESS_SECONDS"] = "0"

import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatlab import cli, load_run
from flatlab.files.store import RunStore

# A shell starts what it puts in the background with Ctrl-C ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Files of ten seconds of processor time and more, the longest first; then the engine's, which
# compile kernels, and all others. A worker takes one file after another, so short ones come last.
LONGEST = [
    "error_bars/test_coverage.py",
    "experiments/test_run_and_reproduce.py",
    "jobs/test_ray.py",
    "jobs/test_cluster.py",
    "training/test_networks.py",
    "training/test_resume.py",
    "measures/test_oracle.py",
    "claims/test_verifying.py",
    "cli/test_cli.py",
    "engine/test_contract.py",
    "engine/test_bits.py",
    "measures/test_measuring.py",
    "cli/test_measure_command.py",
    "cli/test_anatomy_command.py",
    "experiments/test_beyond_algorithms.py",
]


def pytest_addoption(parser):
    """Let tests/error_bars draw problems that nobody has seen."""
    parser.addoption("--fresh", type=int, help="number of new problems for tests/error_bars")
    parser.addoption("--seed", type=int, help="seed of the first of them, to repeat a run")


def pytest_configure(config):
    """Draw the first seed of fresh problems; a worker takes the one that its controller drew."""
    if config.option.fresh is not None and config.option.seed is None:
        drawn = getattr(config, "workerinput", {}).get("seed")
        config.option.seed = secrets.randbelow(10**9) if drawn is None else drawn


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Hand the seed to a worker of pytest-xdist."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_terminal_summary(terminalreporter, config):
    """Say how to repeat a run of fresh problems."""
    if config.option.fresh is not None:
        again = f"--fresh {config.option.fresh} --seed {config.option.seed}"
        terminalreporter.write_line(f"repeat it with: pytest tests/error_bars {again}")


def pytest_collection_modifyitems(items):
    """Put the longest files first, so that both workers are busy to the end."""

    def place(item):
        name = f"{item.path.parent.name}/{item.path.name}"
        longest = LONGEST.index(name) if name in LONGEST else len(LONGEST)
        return longest, item.path.parent.name != "engine"

    items.sort(key=place)


# A run of a fraction of a second, and Table 1 at a size where starting processes is all the cost.
TRAIN = [
    "train",
    *("--arch", "two_layer:width=20"),
    *("--data", "xor:d=8,n=20,n_test=50"),
    *("--phase", "sam:lr=0.01,rho=0.05,batch_size=1,epochs=5"),
]
SIZES = {
    "width": 20,
    "d": 6,
    "n": 20,
    "n_test": 50,
    "gd_epochs": 20,
    "no_bias_epochs": 20,
    "bias_epochs": 10,
    "bias_epochs_second": 10,
    "batch_norm_epochs": 5,
    "layer_norm_epochs": 5,
}


def tiny(**changes):
    """Return the command that runs Table 1 at these sizes."""
    settings = [f"{name}={value}" for name, value in (SIZES | changes).items()]
    command = ["run", "wen2023/table1", "--preset", "quick", "--seeds", "2", "--jobs", "2"]
    return [*command, *(part for text in settings for part in ("--set", text))]


TINY = tiny()


def command(*args):
    return [sys.executable, "-m", "flatlab", *map(str, args)]


def environment(**changes):
    # 80 columns whatever the terminal of the one who tests.
    return {**os.environ, "COLUMNS": "80", "TERM": "dumb", **changes}


@pytest.fixture
def flatlab(tmp_path):
    """Run a real process in a fresh directory; returns the finished process."""

    def call(*args, cwd=tmp_path, **options):
        return subprocess.run(
            command(*args),
            cwd=cwd,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    return call


@pytest.fixture
def start(tmp_path):
    """Start a real process in a fresh directory; it is killed when the test ends."""
    started = []

    def call(*args, cwd=tmp_path, **options):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(
            command(*args), cwd=cwd, env=environment(), **{**pipes, **options}
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def main(monkeypatch, capsys, tmp_path):
    """Call the command line in this process, in a fresh directory; returns code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["flatlab", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return call


def tree(folder: Path):
    """Return every file below a folder with its size and time of change."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if not path.is_dir()
    }


def bits(path):
    """Return everything a run came to, as bytes; and see that the history file says the same."""
    run, history = load_run(path), RunStore.read(path).load_history()
    for name, column in run.columns.items():
        assert history[name].tobytes() == column.tobytes()
    parts = {**run.params, **run.columns}
    return run.status, {name: (part.dtype.str, part.tobytes()) for name, part in parts.items()}


def holder(path):
    """Return the pid that holds a run, or None."""
    try:
        return int((path / "lock").read_text() or 0) or None
    except (FileNotFoundError, ValueError):
        return None


def wait_for(condition, process=None, seconds=90):
    """Poll until something is so; fail if the process ends before."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.005)
    return found


class Clock:
    """A clock that a test sets: it stands still, or goes on by a step at every look."""

    def __init__(self):
        self.now, self.step = 0.0, 0.0

    def monotonic(self):
        self.now += self.step
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Give modules a clock of the test's own in place of `time`; returns it when called."""
    made = Clock()

    def call(*modules):
        for module in modules:
            monkeypatch.setattr(module, "time", made)
        return made

    return call


@pytest.fixture
def drawn():
    """Draw a plot and return its axes."""
    import matplotlib

    from flatlab.report import figures, style

    def call(plot):
        with matplotlib.rc_context(style.STYLE):
            figure = figures._figure(plot)
            figure.draw_without_rendering()
        return figure.axes

    return call
