"""Claims: the registry keeps its contract, every check says what it should, and the command."""

import json
import os
import re
from pathlib import Path

import pytest

import claims_for_tests
from claims_for_tests import made_up
from flatlab.claims import Trial, claims, verifying
from flatlab.claims.contract import KINDS, WORDS
from flatlab.claims.errata import ERRATA
from flatlab.claims.sources import SOURCES
from flatlab.claims.verifying import check, select, verify
from flatlab.cli import console
from flatlab.errors import UserError
from flatlab.report import errata_page
from terminal import Terminal

REGISTRY = claims()
CHECKED = [id for id, claim in REGISTRY.items() if claim.check is not None]
PAGE = Path(__file__).parents[2] / "docs" / "errata.md"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Have room for every row on one line, whatever the terminal of the one who tests."""
    monkeypatch.setattr(console.out, "_width", 140)


# The registry


@pytest.mark.parametrize("id", REGISTRY)
def test_a_claim_is_complete(id):
    claim = REGISTRY[id]
    assert claim.id == id and re.fullmatch(r"[a-z]+\d*(\.[\w-]+)+", id)
    assert claim.source in SOURCES
    assert claim.where.strip() and claim.says.strip()
    assert claim.kind in KINDS and claim.expected in WORDS
    assert set(claim.errata) <= set(ERRATA), "an erratum that does not exist"
    assert claim.expected != "fails"
    assert (claim.expected == "by experiment") == bool(claim.experiment)
    assert (claim.check is None) == (
        claim.expected in ("by experiment", "not checkable", "not yet")
    )
    if claim.check is not None:
        assert (claim.expected == "consistent") <= (claim.kind == "rate")
        if claim.as_printed:
            assert claim.expected in ("holds corrected", "consistent", "refuted")
        else:
            assert claim.expected != "holds corrected"
    if claim.expected == "not checkable":
        assert claim.note, "say why"


@pytest.mark.parametrize("id", CHECKED)
def test_every_check_says_what_it_should(id):
    """What `flatlab verify` checks, claim by claim."""
    with verifying.one_thread():
        result = check(REGISTRY[id], Trial())
    evidence = "\n".join(map(str, result.lines))
    assert result.word == REGISTRY[id].expected, f"{result.error}\n{evidence}"


# Seeds at which a random instance of these checks once left what the statement speaks of.
SEEDS = (
    ("wen2023.lemA.12", 23),  # a network that barely fires at a point
    ("wen2023.lemA.12", 48),  # four descents that end at dead neurons
    ("wen2023.thm4.1", 2),  # a descent that leaves the networks that interpolate
    ("kaur2022.gd_escape", 45),  # gradient descent that still oscillates after 300 steps
    ("kaur2022.eos", 41),  # λ_max that still swings about 2/η after 1,500 steps
    ("flatlab.x3.nobias_memoriser", 22),  # 45 points in 15 dimensions, nearly in a half-space
)


@pytest.mark.parametrize(("id", "seed"), SEEDS)
def test_a_check_does_not_fail_by_its_own_instance(id, seed):
    with verifying.one_thread():
        result = check(REGISTRY[id], Trial(seed))
    evidence = "\n".join(map(str, result.lines))
    assert result.word == REGISTRY[id].expected, f"{result.error}\n{evidence}"


# Errata


def test_every_numeric_erratum_is_decided_by_a_claim():
    undecided = [e.id for e in ERRATA.values() if e.kind == "numeric" and not e.decided_by]
    assert undecided == []


def test_errata_are_complete():
    lecture = [f"W{k}" for k in range(1, 18)]
    assert list(ERRATA) == [*(f"E{k}" for k in range(1, 30)), "K1", "K2", "K3", *lecture]
    for erratum in ERRATA.values():
        assert erratum.source in SOURCES and erratum.kind in ("numeric", "text")
        assert erratum.place and erratum.matters.endswith(".")
        assert erratum.printed != erratum.right
        for claim in erratum.decided_by:
            assert claim.source in (erratum.source, "flatlab")
            if erratum.kind == "numeric":
                assert claim.check is not None


def test_the_page_of_errata_has_them_all():
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", text, flags=re.MULTILINE) == list(ERRATA)
    assert errata_page.COMMAND in text
    for erratum in ERRATA.values():
        section = text.partition(f"### {erratum.id}\n")[2].partition("\n### ")[0]
        for claim in erratum.decided_by:
            assert f"`{claim.id}`" in section


# Made-up claims


@pytest.fixture
def registry(monkeypatch):
    """Put made-up claims in the place of the registry, here and in children."""

    def put(*names):
        monkeypatch.setattr(verifying, "claims", lambda: made_up(*names))
        monkeypatch.setattr(verifying, "TARGET", claims_for_tests.TARGET)
        return list(made_up(*names))

    return put


def words_of(found):
    return {result.claim.id.removeprefix("made."): result.word for result in found.results}


HARMLESS = ("good", "corrected", "wrong", "misprint_holds", "raises", "judges_nothing", "threads",
            "there", "missing", "words", "later")  # fmt: skip
EXPECTED = {
    "good": "holds", "corrected": "holds corrected", "wrong": "fails", "misprint_holds": "fails",
    "raises": "broken", "judges_nothing": "broken", "threads": "holds", "there": "by experiment",
    "missing": "by experiment", "words": "not checkable", "later": "not yet",
}  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
def test_words_in_the_order_of_the_registry(registry, workers):
    events = []
    ids = registry(*HARMLESS)
    found = verify(ids, 3, False, workers, lambda id, kind: events.append((id, kind)))
    assert words_of(found) == EXPECTED
    assert [result.claim.id for result in found.results] == ids
    assert {result.claim.id for result in found.surprises} == {
        f"made.{name}" for name in ("wrong", "misprint_holds", "raises", "judges_nothing")
    }
    assert found.left == () and found.seed == 3
    checked = [id for id in ids if made_up()[id].check is not None]
    assert sorted(events) == sorted((id, k) for id in checked for k in ("started", "finished"))
    results = {result.claim.id: result for result in found.results}
    raised = results["made.raises"]
    assert raised.error == "the check raised ZeroDivisionError: no such number"
    assert "judged nothing" in results["made.judges_nothing"].error
    assert results["made.there"].whereto == "flatlab run wen2023/table1"
    assert results["made.missing"].whereto == "made/nowhere (not yet there)"
    assert results["made.wrong"].decisive.what == "the smallest of 10"
    assert results["made.good"].decisive.what == "one and one"
    assert results["made.misprint_holds"].decisive.of_printed
    assert not results["made.corrected"].decisive.of_printed


def test_the_seed_decides_the_instances_wherever_they_are_checked(registry):
    ids = registry("wrong")

    def smallest(seed, workers):
        return verify([*ids], seed, False, workers).results[0].decisive.measured

    assert smallest(0, 1) == smallest(0, 1) == smallest(0, 2) != smallest(1, 1)


def test_a_check_that_kills_its_process_stops_no_other(registry):
    ids = registry("good", "dies", "corrected", "threads", "raises")
    found = verify(ids, workers=2)
    assert words_of(found) == {
        "good": "holds", "dies": "broken", "corrected": "holds corrected", "threads": "holds",
        "raises": "broken",
    }  # fmt: skip
    assert "SIGKILL" in found.results[1].error and found.left == ()


def test_an_interrupt_keeps_what_was_done(registry):
    ids = registry("good", "sleeps", "later")

    def interrupt(id, kind):
        if (id, kind) == ("made.good", "finished"):
            raise KeyboardInterrupt

    found = verify(ids, workers=2, on_event=interrupt)
    assert words_of(found) == {"good": "holds", "later": "not yet"}
    assert found.left == ("made.sleeps",)


# Choosing


def test_select_by_id_pattern_beginning_and_place(registry):
    ids = registry()
    assert list(select()) == ids
    assert select(["made.wrong", "made.good", "made.wrong"]) == ("made.good", "made.wrong")
    assert select(["good"]) == ("made.good",)
    assert select(["made.w*"]) == select(["w"]) == ("made.wrong", "made.words")
    assert select(["*s"], "made") == tuple(id for id in ids if id.endswith("s"))
    assert select(["made.r"]) == ("made.raises",)


@pytest.mark.parametrize("pattern", ["made.god", "god", "nothing*", "", "made.good.more"])
def test_select_says_what_is_near(registry, pattern):
    registry()
    with pytest.raises(UserError) as error:
        select([pattern])
    assert "`flatlab list claims`" in str(error.value) and "\n" not in str(error.value)
    assert ("'made.good'" in str(error.value)) == ("go" in pattern)


def test_select_names_the_sources(registry):
    registry()
    with pytest.raises(UserError, match="unknown source 'mad': did you mean 'made'"):
        select([], "mad")


# The command


def document(stdout):
    assert stdout.count("\n") == 1
    return json.loads(stdout)


def test_verify_prints_a_table_and_counts(main, registry):
    registry("good", "corrected", "threads", "there", "missing", "words", "later")
    code, stdout, stderr = main("verify", "--jobs", "1")
    assert (code, stderr) == (0, "")
    assert re.search(r"made\.good +identity +2 = 2 ± 2e-09 +✓ holds +\d+\.\d\d", stdout)
    assert re.search(r"made\.corrected +identity +2 = 2 ± 2e-09 +✓\* holds corrected", stdout)
    assert re.search(r"made\.there .*flatlab run wen2023/table1 +→ by experiment", stdout)
    assert "made.words" not in stdout and "made.later" not in stdout
    counts = "2 holds, 1 holds corrected, 2 by experiment, 1 not checkable, 1 not yet"
    assert re.search(rf"^made +{counts}$", stdout, flags=re.MULTILINE)
    assert "\x1b" not in stdout and re.search(r"^7 claims, seed 0, \d+\.\d s$", stdout, re.M)
    everything = main("verify", "--jobs", "1", "--all")[1]
    assert "made.words" in everything and "made.later" in everything
    assert "made.later" in main("verify", "made.later")[1]  # asked for by name


@pytest.mark.parametrize("name", ["wrong", "raises", "misprint_holds"])
def test_verify_exits_with_1_where_a_claim_surprises(main, registry, name):
    registry("good", name)
    code, stdout, stderr = main("verify", "--jobs", "1")
    assert (code, stderr) == (1, "")
    mark = "! broken" if name == "raises" else "✗ fails"
    assert re.search(rf"{mark} +made\.{name} ", stdout)  # with its evidence, below the table
    said = {"wrong": "smallest of 10", "raises": "ZeroDivisionError", "misprint_holds": "printed"}
    assert said[name] in stdout


def test_show_prints_the_evidence(main, registry):
    registry()
    code, stdout, stderr = main("verify", "--show", "made.corrected", "made.good")
    assert (code, stderr) == (0, "")
    for text in ("✓* holds corrected", "page 1", "says: 1 + 1 = 2", "printed: 1 + 1 = 3",
                 "note: only for integers", "errata: E1", "[0.1871, 0.8129]"):  # fmt: skip
        assert text in stdout
    assert re.search(r"as printed: one and one +2 = 3 ± 3e-09 +✗", stdout)
    assert re.search(r"two is a number +yes +✓", stdout)
    assert main("verify", "--show", "made.missing")[1].count("not yet there") == 1


def test_verify_prints_one_json_document(main, registry):
    registry(*HARMLESS)
    code, stdout, stderr = main("verify", "--json", "--jobs", "1", "--seed", "2")
    assert (code, stderr) == (1, "")
    found = document(stdout)
    assert (found["seed"], found["thorough"], found["left"]) == (2, False, [])
    assert {entry["id"].removeprefix("made."): entry["word"] for entry in found["claims"]} == (
        EXPECTED
    )
    counts = found["counts"]["made"]
    assert counts["fails"] + counts["broken"] == len(found["surprises"]) == 4
    good = found["claims"][0]
    assert set(good) >= {"id", "source", "where", "kind", "says", "as_printed", "errata",
                         "expected", "word", "seconds", "lines", "note", "experiment"}  # fmt: skip
    assert good["lines"][2] == {
        "what": "one and one", "measured": 2.0, "relation": "=", "expected": 2.0, "holds": True,
        "of_printed": False, "low": None, "high": None, "tolerance": 2e-9,
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["made.god"], "did you mean 'made.good'"),
        (["--source", "mad"], "unknown source 'mad'"),
        (["--jobs", "0"], "jobs must be >= 1, got 0"),
        (["--seed", "x"], "--seed"),
    ],
)
def test_verify_exits_with_2_for_a_mistake(main, registry, arguments, said):
    registry()
    code, stdout, stderr = main("verify", *arguments)
    assert (code, stdout) == (2, "")
    assert said in stderr and stderr.count("\n") == 1


def test_verify_exits_with_130_and_prints_what_was_done(main, registry):
    registry("good", "interrupts", "corrected", "later")
    code, stdout, stderr = main("verify", "--jobs", "1")
    assert code == 130
    assert "made.good" in stdout and "made.corrected" not in stdout
    assert stderr == "flatlab: interrupted with 2 claims left\n"


# Real claims through the command


@pytest.mark.parametrize("jobs", [1, 2])
def test_real_claims_through_the_command(main, jobs):
    code, stdout, stderr = main("verify", "wen2023.data.*", "def2.1", "--jobs", jobs, "--json")
    assert (code, stderr) == (0, "")
    found = document(stdout)
    assert [entry["id"] for entry in found["claims"]] == ["wen2023.data.pxor", "wen2023.def2.1"]
    assert all(entry["as_expected"] and entry["seconds"] > 0 for entry in found["claims"])


def test_list_claims(main):
    code, stdout, stderr = main("list", "claims", "--json")
    assert (code, stderr) == (0, "")
    rows = json.loads(stdout)
    assert [row["id"] for row in rows] == list(REGISTRY)
    assert all(len(row["says"]) <= 120 and row["kind"] and row["where"] for row in rows)


def test_a_terminal_shows_progress(tmp_path):
    terminal = Terminal("verify", "wen2023.data.*", "wen2023.def*", "--jobs", "2", cwd=tmp_path)
    assert terminal.end() == 0
    assert re.search(r"\d+/\d+ checks[^\n]*\d+%[^\n]*\d+:\d\d left", terminal.seen)
    assert "wen2023.data.pxor" in terminal.seen


def test_ctrl_c_prints_what_was_done(tmp_path):
    terminal = Terminal("verify", "--source", "wen2023", "--jobs", "2", cwd=tmp_path)
    terminal.read(until=r"\b[3-9]/\d+ checks")
    os.write(terminal.descriptor, b"\x03")
    assert terminal.end() == 130
    assert "Traceback" not in terminal.seen
    assert re.search(r"interrupted with \d+ claims left", terminal.seen)
    assert re.search(r"wen2023\.def\.rademacher .*✓ holds", terminal.seen)


# The page of errata


def test_the_page_is_made_of_the_registry_and_of_evidence(tmp_path, monkeypatch, registry):
    registry("good", "corrected")
    monkeypatch.setattr("flatlab.claims.errata.claims", verifying.claims)
    errata_page.make(tmp_path / "errata.md", workers=1)
    text = (tmp_path / "errata.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", text, flags=re.MULTILINE) == list(ERRATA)
    section = text.partition("### E1\n")[2].partition("### E2\n")[0]
    assert "`made.corrected`: holds corrected." in section
    assert "| as printed: one and one | 2 | = 3 ± 3e-09 | no |" in section
    assert "| one and one | 2 | = 2 ± 2e-09 | yes |" in section


def test_the_page_is_not_made_of_surprises(tmp_path, monkeypatch, registry):
    registry("corrected")
    monkeypatch.setattr("flatlab.claims.errata.claims", verifying.claims)
    monkeypatch.setattr(
        verifying, "check", lambda claim, trial: verifying.Result(claim, "fails", error="so it is")
    )
    with pytest.raises(UserError, match=r"these claims came out wrong: made\.corrected"):
        errata_page.make(tmp_path / "errata.md", workers=1)
    assert not list(tmp_path.iterdir())
