"""A user's mistakes: one clear line on stderr, exit code 2, nothing on stdout, nothing written."""

import io
import os
import re
import shutil
import subprocess
import zipfile

import numpy as np
import pytest

from conftest import TRAIN, tree

RUN = ["run", "wen2023/table1"]
DATA = ["--data", "xor:d=8,n=20,n_test=50"]
ARCH = ["--arch", "two_layer:width=20"]
PHASE = ["--phase", "sam:lr=0.01,rho=0.05,batch_size=1,epochs=5"]

TOML = """
seed = 3
[arch]
width = 20
[data]
name = "xor"
d = 8
n = 20
[[schedule]]
algorithm = "sgd"
lr = 0.01
epochs = 3
"""


@pytest.fixture
def refused(main, tmp_path):
    """Check that a command line is refused, changing nothing below the test's directory."""

    def call(arguments, message):
        before = tree(tmp_path), sorted(tmp_path.rglob("*"))
        code, stdout, stderr = main(*arguments)
        assert stderr.startswith("flatlab: ") and stderr.endswith("\n")
        assert stderr.count("\n") == 1
        assert re.search(message, stderr.removeprefix("flatlab: ").rstrip("\n")), stderr
        assert (code, stdout) == (2, "")
        assert (tree(tmp_path), sorted(tmp_path.rglob("*"))) == before

    return call


def train(arch=ARCH, data=DATA, phase=PHASE):
    return ["train", *arch, *data, *phase]


def arch(text):
    return train(arch=["--arch", text])


def data(text):
    return train(data=["--data", text])


def phase(text):
    return train(phase=["--phase", text])


CASES = {
    # names
    "experiment": (
        ["run", "wen2023/tabel1"],
        r"^unknown experiment or source 'wen2023/tabel1': did you mean 'wen2023/table1'",
    ),
    "command": (["rnu"], r"^No such command 'rnu'\. Did you mean 'run'\?$"),
    "option": ([*RUN, "--sedes", "3"], r"^No such option: --sedes .*--seeds"),
    "option of train": ([*TRAIN, "--fase", "sgd"], r"^No such option: --fase .*--phase"),
    "preset": ([*RUN, "--preset", "qick"], r"^unknown preset 'qick': did you mean 'quick'\?"),
    "kind of list": (["list", "modles"], r"^unknown list 'modles': did you mean 'models'"),
    "no experiment": (["run"], r"^Missing argument 'ID'"),
    "one argument too many": (["list", "data", "models"], r"unexpected extra argument.*models"),
    # settings of an experiment
    "seeds 0": ([*RUN, "--seeds", "0"], r"^seeds must be >= 1, got 0$"),
    "seeds -1": ([*RUN, "--seeds", "-1"], r"^seeds must be >= 1, got -1$"),
    "seeds abc": ([*RUN, "--seeds", "abc"], r"'--seeds'.*valid integer"),
    "seeds empty": ([*RUN, "--seeds"], r"^Option '--seeds' requires an argument"),
    "jobs 0": ([*RUN, "--jobs", "0"], r"^jobs must be >= 1, got 0$"),
    "unknown setting": (
        [*RUN, "--set", "widht=3"],
        r"^unknown setting 'widht': did you mean 'width'\?",
    ),
    "setting without =": ([*RUN, "--set", "width"], r"^--set takes key=value, got 'width'$"),
    "setting without key": ([*RUN, "--set", "=3"], r"^unknown setting ''"),
    "setting twice": (
        [*RUN, "--set", "width=5", "--set", "width=6"],
        r"^width is given 2 times: give it once$",
    ),
    "seeds twice": (
        [*RUN, "--seeds", "3", "--set", "seeds=2"],
        r"^seeds is given 2 times \(--seeds is one of them\): give it once$",
    ),
    "source without experiments": (
        ["reproduce", "wu2025"],
        r"^wu2025 has no experiments yet: the sources that can be run are beyond and kaur2022 and ",
    ),
    "setting 0": ([*RUN, "--set", "width=0"], r"^width must be > 0, got 0$"),
    "setting abc": ([*RUN, "--set", "width=abc"], r"^width: .*integer, got 'abc'$"),
    "setting 1.5": ([*RUN, "--set", "width=1.5"], r"^width: .*integer.*, got 1\.5$"),
    "setting of two lines": ([*RUN, "--set", "width=5\nd=3"], r"^width: .*integer"),
    "setting d=1": ([*RUN, "--set", "d=1"], r"^d must be >= 2, got 1$"),
    "setting dtype": ([*RUN, "--set", "dtype=half"], r"^dtype must be .*float32.*got 'half'$"),
    # a run from flags
    "nothing to train": (["train"], r"^a run needs --arch, e\.g\. --arch two_layer"),
    "no data": (["train", *ARCH, *PHASE], r"^a run needs --data, e\.g\."),
    "no phase": (["train", *ARCH, *DATA], r"^a run needs --phase, e\.g\."),
    "negative rho": (phase("sam:lr=0.1,rho=-0.1,epochs=5"), r"^rho must be >= 0, got -0\.1$"),
    "negative lr": (phase("sgd:lr=-0.1,epochs=5"), r"^lr must be > 0, got -0\.1$"),
    "lr nan": (phase("sgd:lr=nan,epochs=5"), r"^lr: .*finite.*, got nan$"),
    "lr inf": (phase("sgd:lr=inf,epochs=5"), r"^lr: .*finite.*, got inf$"),
    "lr a word": (phase("sgd:lr=big,epochs=5"), r"^lr: .*number, got 'big'$"),
    "no lr": (phase("sgd:epochs=5"), r"^Phase needs lr$"),
    "no epochs": (phase("sgd:lr=0.1"), r"^Phase needs epochs$"),
    "epochs 0": (phase("sgd:lr=0.1,epochs=0"), r"^epochs must be > 0, got 0$"),
    "rho for sgd": (phase("sgd:lr=0.1,epochs=5,rho=0.1"), r"^'sgd' has no option 'rho'"),
    "noise for sam": (phase("sam:lr=0.1,epochs=5,noise=1"), r"^'sam' has no option 'noise'"),
    "too much decay": (phase("sgd:lr=1,epochs=5,weight_decay=2"), r"^lr \* weight_decay must be"),
    "algorithm": (phase("sma:lr=0.1,epochs=5"), r"^unknown optimizer 'sma': did you mean 'sam'"),
    "field of a phase": (phase("sgd:rl=0.1,epochs=5"), r"^Phase has no field 'rl'.*\blr\b"),
    "batch_size 0": (
        phase("sgd:lr=0.1,epochs=5,batch_size=0"),
        r"^batch_size must be > 0 or left out, got 0$",
    ),
    "batch_size > n": (
        phase("sgd:lr=0.1,epochs=5,batch_size=21"),
        r"^batch_size must be <= n = 20, got 21",
    ),
    "spec without =": (phase("sgd:lr"), r"^expected key=value in 'sgd:lr', got 'lr'$"),
    "key given twice": (phase("sgd:lr=0.1,lr=0.2,epochs=5"), r"^lr is given twice in"),
    "width 0": (arch("two_layer:width=0"), r"^width must be > 0, got 0$"),
    "width true": (arch("two_layer:width=true"), r"^width: .*integer, got True$"),
    "bias 1": (arch("two_layer:bias=1"), r"^bias: .*boolean, got 1$"),
    "activation": (arch("two_layer:activation=gelu"), r"^activation must be .*'relu'.*got 'gelu'$"),
    "norm": (arch("two_layer:norm=group"), r"^norm.*'batch', 'layer'.*got 'group'$"),
    "architecture": (arch("tow_layer"), r"^unknown architecture 'tow_layer': did you mean 'two_"),
    "field of a model": (
        arch("two_layer:widht=3"),
        r"^TwoLayer has no field 'widht': did you mean",
    ),
    "nested field": (arch("two_layer:init.gamma=3"), r"^Init has no field 'gamma': did you mean"),
    "init twice": (arch("two_layer:init=3,init.law=normal"), r"^init is given twice"),
    "depth 1": (arch("deep:depth=1"), r"^depth must be >= 2, got 1$"),
    "data set": (data("xro"), r"^unknown data set 'xro': did you mean 'xor'\?"),
    "argument of data": (data("xor:dd=3"), r"^xor has no argument 'dd': did you mean 'd'\?"),
    "too many distinct points": (
        data("xor:d=3,n=9,distinct=true"),
        r"^n must be <= 2\^d for distinct points, got n=9, 2\^d=8$",
    ),
    "n 0": (data("xor:n=0"), r"^n must be >= 1, got 0$"),
    "d 1": (data("xor:d=1"), r"^d must be >= 2, got 1$"),
    "loss": ([*TRAIN, "--loss", "mes"], r"^unknown loss 'mes': did you mean 'mse'"),
    "field of a loss": ([*TRAIN, "--loss", "mse:foo=1"], r"^MSE has no fields, got 'foo'"),
    "smoothing": ([*TRAIN, "--loss", "logistic:smoothing=2"], r"^smoothing must be < 0\.5, got 2$"),
    "log": (
        [*TRAIN, "--log", "5"],
        r"^--log takes options, e\.g\. per_decade=0,regular=20, got '5'$",
    ),
    "classes": (
        ["train", "--arch", "mlp", *DATA, *PHASE, "--loss", "cross_entropy"],
        r"these labels are numbers: give the number of classes, .* 'classes' of an \.npz file$",
    ),
    "measure of classes": (
        [
            "train",
            "--arch",
            "mlp:widths=[5]",
            "--data",
            "circle:n=9",
            *PHASE,
            "--measure",
            "margin",
        ],
        r"^margin needs class labels .*: leave it out for regression$",
    ),
    "channels": (arch("cnn:channels=[]"), r"^channels must have at least 1 entry, got \(\)$"),
    "seed -1": ([*TRAIN, "--seed", "-1"], r"^seed must be an integer >= 0, got -1$"),
    "seed 1.5": ([*TRAIN, "--seed", "1.5"], r"'--seed'.*valid integer"),
    "dtype": ([*TRAIN, "--dtype", "float16"], r"^dtype must be float32 or float64, got 'float16'$"),
    # sizes no machine holds; 16 bytes for each of 10^12 · (8 + 2) parameters and more
    "width 10^12": (
        arch(f"two_layer:width={10**12}"),
        r"^a network of 1e\+13 parameters needs 1\.49e\+05 GiB .*: choose a smaller width",
    ),
    "width 10^30": (arch(f"two_layer:width={10**30}"), r"^a network of 1e\+31 parameters needs"),
    "deep and wide": (arch("deep:depth=3,width=10000000"), r"^a network of 1e\+14 parameters"),
    "very deep": (arch(f"deep:depth={10**13},width=5"), r"^depth must be <= 1000, got 10+$"),
    "n 10^12": (data(f"xor:n={10**12}"), r"^n \* d must be <= 2\^31 values \(16 GiB\), got n=10+ "),
    "d 10^12": (data(f"xor:d={10**12}"), r"^n \* d must be <= 2\^31 values"),
    "setting width 10^12": (
        [*RUN, "--preset", "quick", "--set", f"width={10**12}"],
        r"^a network of 1\.3e\+13 parameters needs",
    ),
    "setting d 10^12": ([*RUN, "--preset", "quick", "--set", f"d={10**12}"], r"^n \* d must be <="),
    # the same thing twice, or options without an effect
    "a group's option twice": (
        phase("sgd:lr=0.1,epochs=5,first_layer.max_norm=1,max_first_layer_norm=2"),
        r"^max_first_layer_norm is given twice, 1 and 2, once as first_layer\.max_norm: give it",
    ),
    "a base's option twice": (
        phase("sam:lr=0.1,rho=0.1,epochs=5,base.momentum=0.5,momentum=0.9"),
        r"^momentum is given twice, 0\.5 and 0\.9: give it once$",
    ),
    "adaptive sam": (
        phase("sam:lr=0.1,rho=0.1,epochs=5,adaptive=true"),
        r"^Phase has no field 'adaptive': adaptive SAM is the optimizer 'asam'",
    ),
    "a folder without pictures": (
        ["verify", "thm4.1", "--out", "x"],
        r"^--out is the folder of --pictures: add --pictures or drop --out$",
    ),
    "more examples than there are": (
        [*train(), "--measure", "lambda_max:examples=1000000"],
        r"^examples of lambda_max must be <= n = 20, got 1000000: leave it out",
    ),
    "larger batches than there are": (
        [*train(), "--measure", "lambda_max:mode=train,batch_size=21"],
        r"^batch_size of lambda_max must be <= n = 20, got 21",
    ),
    **{
        f"{words[0]} into nothing": ([*words, "--out", ""], r"^--out must be a folder, got ''")
        for words in (train(), RUN, ["verify", "--pictures"], ["anatomy", "run"])
    },
    "a null character": (["verify", "--pictures", "--out", "a\0"], r"^--out must be .*null char"),
    **{
        f"pictures and {words[0]}": (
            ["verify", "--pictures", *words],
            rf"^--pictures draws pictures and checks nothing: drop {name}$",
        )
        for words, name in {
            ("--thorough",): "--thorough",
            ("--seed", "3"): "--seed",
        }.items()
    },
    **{
        f"pictures of {words[-1]}": (
            ["verify", "--pictures", *words],
            rf"^--pictures draws the pictures of a source .*: '{words[-1]}' is no source with "
            "pictures, those are wen2023",
        )
        for words in (["thm4.1"], ["--source", "kaur2022"], ["wen2023", "wen2023.thm4.1"])
    },
    "a mirror of another kind": (
        ["data", "get", "cifar10", "--from", "ftp://a/b", "--to", "new"],
        r"^a download needs an address http://… or https://…, got 'ftp://a/b'$",
    ),
    "construct 10^13": (
        ["construct", f"memorising:width={10**13}", "--data", "xor:d=8,n=20"],
        r"^a network of 1e\+14 parameters needs",
    ),
    # factories
    "a path as module": (
        ["measure", "../../etc:x"],
        r"^\.\./\.\./etc is neither a file that ends in \.py nor a package\.module$",
    ),
    "seed -1 of probes": (["measure", "a.py:make", "--seed", "-1"], r"^seed must be >= 0, got -1$"),
    # places
    "show nothing": (["show", "nowhere"], r"^nowhere is not a run directory: it has no config"),
    "no TOML file": (["train", "no.toml"], r"^cannot read no\.toml: No such file or directory$"),
    "a directory as TOML": (["train", "."], r"^cannot read \.: Is a directory$"),
    "no npz file": (data("missing.npz"), r"missing\.npz: no such file$"),
}


@pytest.mark.parametrize("arguments, message", CASES.values(), ids=CASES)
def test_a_mistake_is_one_line_and_writes_nothing(refused, arguments, message):
    refused(arguments, message)


FACTORIES = {
    "async def make():\n    return 1": r"^mine.py:make is a coroutine \(async def\): write a plain",
    "class Stop(BaseException): ...\ndef make():\n    raise Stop('now')": (
        r"^mine.py:make failed: Stop: now \(in .*mine.py, line 3\)$"
    ),
    "def make():\n    raise GeneratorExit": r"^mine.py:make failed: GeneratorExit",
    "class Stop(BaseException): ...\nraise Stop('now')": r"^cannot import mine.py: Stop: now \(in",
}


@pytest.mark.parametrize(
    "code, message", FACTORIES.items(), ids=["async", "raises", "generator", "module"]
)
def test_a_bad_factory_is_one_line(refused, tmp_path, monkeypatch, code, message):
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / "mine.py").write_text(code)
    refused(["measure", "mine.py:make"], message)


def test_a_link_to_nowhere_is_named(refused, tmp_path):
    (tmp_path / "link").symlink_to("gone")
    message = r"^link is a link to gone, which does not exist: make that directory, or choose"
    refused([*train(), "--out", "link"], message)
    refused([*train(), "--out", "link/below"], message)


def test_no_arguments_print_the_help(main):
    code, stdout, stderr = main()
    assert (code, stderr) == (2, "") and "Usage" in stdout


# TOML files


def replaced(old, new):
    assert old in TOML
    return TOML.replace(old, new).encode()


TOMLS = {
    "unknown key": (b"sede = 3\n" + TOML.encode(), r"^unknown key 'sede': did you mean 'seed' or"),
    "unknown field": (replaced("lr =", "rl ="), r"^Phase has no field 'rl'"),
    "unknown field of arch": (replaced("width", "widht"), r"^TwoLayer has no field 'widht'"),
    "unknown field of data": (replaced("\nn =", "\nm ="), r"^xor has no argument 'm'"),
    "text for a number": (replaced("lr = 0.01", 'lr = "a"'), r"^lr: .*number, got 'a'$"),
    "number for text": (replaced('"sgd"', "1"), r"^an optimizer is a name .*, got 1$"),
    "float for an integer": (replaced("epochs = 3", "epochs = 3.5"), r"^epochs: .*integer"),
    "seed as text": (
        replaced("seed = 3", 'seed = "3"'),
        r"^seed must be an integer >= 0, got '3'$",
    ),
    "a list for a table": (
        b'arch = [1]\ndata = {name = "xor"}\nschedule = [{}]',
        r"^arch must be a table with a kind, got \[1\]$",
    ),
    "text for data": (
        b'data = "xor"\narch = {}\nschedule = [{algorithm = "sgd"}]',
        r"^Phase needs",
    ),
    "a table for a list": (replaced("[[schedule]]", "[schedule]"), r"^schedule must be a list"),
    "a list of numbers": (b"schedule = [1]\narch = {}\ndata = {}", r"^Phase must be a table"),
    "empty schedule": (
        b'schedule = []\narch = {}\ndata = {name = "xor"}',
        r"^schedule must be a non-empty list",
    ),
    "no name of data": (replaced('name = "xor"', ""), r"^a data set needs a name"),
    "number as name of data": (replaced('"xor"', "7"), r"^the name of a data set must be a string"),
    "text for log": (b'log = "all"\n' + TOML.encode(), r"^LogGrid must be a table of fields"),
    "broken syntax": (b"seed = \n", r"bad\.toml is not valid TOML: .*line 1"),
    "binary": (bytes(range(256)), r"bad\.toml is not a text file$"),
    "zeros": (bytes(100), r"bad\.toml is not valid TOML"),
    "empty": (b"", r"^a run needs --arch"),
    "a config of nothing": (b"seed = 3\n", r"^a run needs --arch"),
}


def test_a_file_may_begin_with_a_byte_order_mark(refused, tmp_path):
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf" + replaced("width", "widht"))
    refused(["train", "bom.toml"], r"^TwoLayer has no field 'widht'")


@pytest.mark.parametrize("content, message", TOMLS.values(), ids=TOMLS)
def test_a_bad_toml_file_is_one_line(refused, tmp_path, content, message):
    (tmp_path / "bad.toml").write_bytes(content)
    refused(["train", tmp_path / "bad.toml"], message)


# Places to write


OUTS = pytest.mark.parametrize(
    "arguments", [TRAIN, [*RUN, "--preset", "quick"]], ids=["train", "run"]
)


@OUTS
def test_an_output_directory_that_is_a_file_is_refused(refused, tmp_path, arguments):
    (tmp_path / "file").write_text("mine")
    refused([*arguments, "--out", tmp_path / "file"], r"file is (not a directory|a file)")
    refused([*arguments, "--out", tmp_path / "file" / "below"], r"file is not a directory")


@OUTS
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_directory_that_is_not_writable_is_refused(refused, tmp_path, arguments):
    (tmp_path / "locked").mkdir(mode=0o500)
    refused([*arguments, "--out", tmp_path / "locked" / "new"], r"not writable")


@OUTS
def test_a_read_only_file_system_is_refused(refused, tmp_path, arguments):
    (tmp_path / "disk").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path / "disk"], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted")
    try:
        refused([*arguments, "--out", tmp_path / "disk"], r"disk.* is not writable")
        refused([*arguments, "--out", tmp_path / "disk" / "new"], r"new is not writable")
    finally:
        subprocess.run(["umount", tmp_path / "disk"], check=True)


@pytest.fixture
def done(main, tmp_path):
    """A finished run of `TRAIN`."""
    path = tmp_path / "run"
    assert main(*TRAIN, "--out", path)[0] == 0
    return path


def test_a_run_of_another_config_is_refused(refused, done):
    other = [*TRAIN, "--seed", "1", "--out", done]
    refused(other, r"run holds another run \(seed is 0 there, 1 here\): .*--fresh")


def without_checksum(path):
    """Return a config.toml without its first line."""
    return path.read_text().partition("\n")[2]


def test_a_run_of_a_newer_version_is_refused(refused, done):
    config = done / "config.toml"
    config.write_text(without_checksum(config).replace("format = 2", "format = 3"))
    message = r"run was made by a newer flatlab \(format 3, this one reads 2\): upgrade"
    refused([*TRAIN, "--out", done], message)
    refused([*TRAIN, "--out", done, "--fresh"], message)
    refused(["show", done], message)


def test_a_directory_that_is_no_run_is_refused(refused, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    for arguments in (["show"], [*TRAIN, "--out"], [*TRAIN, "--fresh", "--out"]):
        refused([*arguments, tmp_path / "mine"], r"mine is not a run directory")
    refused(["show", tmp_path / "mine" / "thesis.tex"], r"thesis\.tex is a file, not a run")


def test_a_damaged_run_says_which_file(refused, done):
    (done / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    refused(["show", done], r"run/checkpoint\.safetensors is damaged .*--fresh, or ")
    (done / "config.toml").write_text("seed = ")
    refused(["show", done], r"run/config\.toml is damaged")


def test_a_config_edited_by_hand_says_which_key(refused, done):
    config = done / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.01", "lr = -1.0"))
    refused(["show", done], r"run/config\.toml is damaged .* changed the file yourself, remove its")
    config.write_text(without_checksum(config))
    refused(["show", done], r"run/config\.toml: lr must be > 0, got -1\.0")


# A user's own data


def arrays(**changes):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((25, 3))
    y = np.sign(x[:, 0])
    made = {"x_train": x[:20], "y_train": y[:20], "x_test": x[20:], "y_test": y[20:]} | changes
    return {name: value for name, value in made.items() if value is not None}


X = arrays()["x_train"]
NPZS = {
    "nan": (arrays(x_train=np.where(X[4, 1] == X, np.nan, X)), r"x_train\[4, 1\] is nan"),
    "inf": (arrays(y_train=np.full(20, np.inf)), r"y_train\[0\] is inf"),
    "one label too many": (arrays(y_train=np.ones(21)), r"y_train must have shape \(20,\)"),
    "labels as a column": (arrays(y_train=np.ones((20, 1))), r"y_train must have shape \(20,\)"),
    "flat inputs": (arrays(x_train=np.ones(20)), r"x_train must have shape \(n, d\)"),
    "images of another shape": (
        arrays(x_train=np.ones((20, 1, 3, 3)), x_test=np.ones((5, 1, 4, 4))),
        r"x_test must have shape \(n_test, 1, 3, 3\) like x_train, got shape \(5, 1, 4, 4\)",
    ),
    "other columns in the test": (
        arrays(x_test=np.ones((5, 4))),
        r"x_test must have shape \(n_test, 3\)",
    ),
    "a class too many": (
        arrays(y_train=np.arange(20), classes=19),
        r"y_train\[19\] is 19: with classes=19 every label must be a whole number from 0 to 18",
    ),
    "classes in words": (arrays(classes="ten"), r"classes must be a whole number, got 'ten'"),
    "no rows": (
        arrays(x_train=np.ones((0, 3)), y_train=np.ones(0)),
        r"x_train must hold at least one",
    ),
    "no labels": (arrays(y_train=None), r"lacks y_train"),
    "no test": (arrays(x_test=None, y_test=None), r"lacks x_test, y_test"),
    "words": (arrays(y_train=np.array(["a"] * 20)), r"y_train must hold real numbers"),
    "complex": (arrays(x_train=X * 1j), r"x_train must hold real numbers"),
}


@pytest.mark.parametrize("content, message", NPZS.values(), ids=NPZS)
def test_bad_arrays_are_refused(refused, tmp_path, content, message):
    np.savez(tmp_path / "data.npz", **content)
    refused(data(str(tmp_path / "data.npz")), rf"data\.npz: {message}")


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_in_an_npz_is_not_unpickled(refused, tmp_path):
    trap = np.array([Trap(tmp_path / "sprung")] * 20, dtype=object)
    np.savez(tmp_path / "data.npz", **arrays(y_train=trap), allow_pickle=True)
    refused(data(str(tmp_path / "data.npz")), r"data\.npz: cannot be read .*plain numbers")
    assert not (tmp_path / "sprung").exists()


FILES = {
    "text": b"1,2,3\n",
    "empty": b"",
    "a single array": (lambda file: (np.save(file, X), file.getvalue())[1])(io.BytesIO()),
    "cut short": None,
    "a zip of something else": None,
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_npz_is_refused(refused, tmp_path, kind):
    path = tmp_path / "data.npz"
    if kind == "cut short":
        np.savez(path, **arrays())
        path.write_bytes(path.read_bytes()[:-300])
    elif kind == "a zip of something else":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x_train.npy", "no array")
            for name in ("y_train", "x_test", "y_test"):
                archive.writestr(f"{name}.npy", "no array")
    else:
        path.write_bytes(FILES[kind])
    refused(data(str(path)), r"data\.npz: (not an \.npz file|cannot be read|x_train must hold)")


def test_data_that_changed_since_the_run_are_refused(refused, main, tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays())
    code, _, _ = main(*data(str(path)), "--out", tmp_path / "run", "--json")
    assert code == 0
    shutil.copy(tmp_path / "run" / "config.toml", tmp_path / "copy.toml")
    lines = (tmp_path / "copy.toml").read_text().splitlines()
    config = "\n".join(lines[2:])  # without checksum and format
    (tmp_path / "copy.toml").write_text(config)
    np.savez(path, **arrays(y_train=-arrays()["y_train"]))
    refused(["train", tmp_path / "copy.toml"], r"data\.npz: content changed")


# The same, in a real process: nothing else reaches the terminal


def test_a_real_process_says_the_same(flatlab, tmp_path):
    for arguments in (arch(f"two_layer:width={10**12}"), ["run", "wen2023/tabel1"]):
        ended = flatlab(*arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("flatlab: ") and ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
