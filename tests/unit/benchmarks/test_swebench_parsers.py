"""Rules of the log parsers: the maps of the official ones, oddities included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.benchmarks.swebench.parsers import OWN_PARSERS, parse_log
from pytest_agentcompass.benchmarks.swebench.rows import parse_row
from pytest_agentcompass.errors import EvaluationError

SHARED = Path(__file__).parents[3].parent / "shared"
LOGS = SHARED / "swebench" / "logs"


def read(name: str, *lines: str) -> dict[str, str]:
    """Parse lines with the parser called *name*."""
    return OWN_PARSERS[f"parse_log_{name}"]("\n".join(lines))


def test_twenty_names_seven_parsers() -> None:
    """Our functions serve all Python names of the datasets."""
    assert len(OWN_PARSERS) == 20
    assert len(set(OWN_PARSERS.values())) == 7


def test_pytest_ids_are_cut_at_a_blank() -> None:
    """The second word of a summary line is the id; a count of skipped tests is no test."""
    found = read(
        "pytest",
        "PASSED t.py::p[a b]",
        "FAILED t.py::q - AssertionError: x - y",
        "SKIPPED [3] t.py:9: why",
        "SKIPPED t.py::s",
        "PASSED [100%]",
        "ERROR t.py - boom",
        "XFAIL t.py::x",
        "XPASS t.py::y",
        "PASSED",
        " PASSED t.py::indented",
        "PASSED t.py::q",
    )
    assert found == {
        "t.py::p[a": "PASSED",
        "t.py::q": "PASSED",
        "t.py::s": "SKIPPED",
        "[100%]": "PASSED",
        "t.py": "ERROR",
        "t.py::x": "XFAIL",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t.py::p[/tmp/a/b.txt]", "t.py::p[/b.txt]"),
        ("t.py::p[//host/x]", "t.py::p[//host/x]"),
        ("t.py::p[/a*/b]", "t.py::p[/a*/b]"),
        ("t.py::p[a]tail", "t.py::p[a]"),
        ("t.py::p[cut", "t.py::p[cut"),
        ("t.py::p[a[b]c]", "t.py::p[a[b]c]"),
        ("t.py::p]x[", "t.py::p]x["),
    ],
)
def test_options_that_are_paths(name: str, expected: str) -> None:
    """An absolute path as parameter is reduced to its last part."""
    assert read("requests", f"PASSED {name}") == {expected: "PASSED"}


def test_pytest_v2() -> None:
    """Colours and control characters go, blanks in ids stay, and the status may come last."""
    found = read(
        "sphinx",
        "\x1b[32mPASSED\x1b[0m t.py::p[a b]",
        "FAILED t.py::q[x - y] - AssertionError",
        "t.py::r[a b] PASSED",
        "t.py::s FAILED",
        "SKIPPED [1] t.py:1: why",
        "PASSED",
    )
    assert found == {"t.py::p[a b]": "PASSED", "t.py::q[x": "FAILED", "t.py::r[a b]": "PASSED", "t.py::s": "FAILED"}


def test_django() -> None:
    """Results behind dots, split over lines, docstrings as names, and headings of failures."""
    found = read(
        "django",
        "test_a (app.tests.T) ... ok",
        "A docstring that is a name ... OK",
        "test_b (app.tests.T) ... skipped 'why'",
        "test_c (app.tests.T) ... FAIL",
        "test_d (app.tests.T) ... ERROR",
        "FAIL: test_e (app.tests.T)",
        "ERROR: test_f (app.tests.T)",
        "FAIL:",
        "test_g (app.tests.T) ... Some noise",
        "ok",
        "test_h (app.tests.T) ... System check identified no issues (0 silenced)",
        "ok",
        "--version is equivalent to version and more",
        "Applying sites.0002_alter_domain_unique...test_no_migrations (m.T) ... ok",
    )
    assert found["test_a (app.tests.T)"] == "PASSED"
    assert found["A docstring that is a name"] == "PASSED"
    assert found["test_b (app.tests.T)"] == "SKIPPED"
    assert found["test_c (app.tests.T)"] == found["test_e"] == "FAILED"
    assert found["test_d (app.tests.T)"] == found["test_f"] == "ERROR"
    assert found["test_g (app.tests.T)"] == found["test_h (app.tests.T)"] == "PASSED"
    assert found["--version is equivalent to version"] == "PASSED"
    assert found["test_no_migrations (m.T)"] == "PASSED"


def test_sympy() -> None:
    """`ok`, `F` and `E` behind names; headings of tracebacks are failures under another name."""
    found = read(
        "sympy",
        "test_a ok",
        "test_b F",
        "  test_c E  ",
        "test_d [OK]",
        "____ sympy/core/tests/test_basic.py:test_b ____",
        "x.py:no_blanks",
    )
    assert found == {
        "sympy/core/tests/test_basic.py:test_b": "FAILED",
        "test_a": "PASSED",
        "test_b": "FAILED",
        "test_c": "ERROR",
    }


def test_matplotlib_and_seaborn() -> None:
    """Mouse buttons become numbers; seaborn names a test before or behind its status."""
    assert read("matplotlib", "PASSED t.py::p[MouseButton.LEFT-MouseButton.RIGHT]") == {"t.py::p[1-3]": "PASSED"}
    found = read("seaborn", "FAILED t.py::a - x", "t.py::b PASSED [ 10%]", "PASSED t.py::c", "x y PASSED z")
    assert found == {"t.py::a": "FAILED", "t.py::b": "PASSED", "t.py::c": "PASSED"}


@given(st.text(alphabet=st.sampled_from("PASSEDFIL -[]:.\n\r\t\x1b…ok_/x "), max_size=200))
def test_no_text_breaks_a_parser(text: str) -> None:
    """Whatever a log holds, a parser returns a map of texts."""
    for parser in OWN_PARSERS.values():
        assert all(isinstance(name, str) and isinstance(status, str) for name, status in parser(text).items())


def test_long_lines_take_linear_time() -> None:
    """A line of a megabyte of blanks and underscores is read (a search that backtracks would not end)."""
    line = "_ " * 500_000
    for parser in OWN_PARSERS.values():
        assert parser(line) == {}


def test_parsers_of_the_package() -> None:
    """A name that is not ours needs the package: either it is there and parses, or the extra is named."""
    row = parse_row({"instance_id": "a__b-1", "repo": "a/b", "base_commit": "abcdef", "FAIL_TO_PASS": ["x"]})
    log = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n"
    try:
        import swebench  # noqa: F401
    except ImportError:
        with pytest.raises(EvaluationError, match=r"pytest-agentcompass\[swebench-parsers\]"):
            parse_log("parse_log_gotest", log, row)
    else:
        assert parse_log("parse_log_gotest", log, row) == {"TestA": "PASSED"}
        with pytest.raises(EvaluationError, match="did you mean 'parse_log_gotest'"):
            parse_log("parse_log_gotes", log, row)


@pytest.mark.skipif(not LOGS.is_dir(), reason="the folder ../shared/swebench is not there")
def test_recorded_logs() -> None:
    """The official statuses of real logs come out exactly."""
    rows = {
        row["instance_id"]: row for row in map(json.loads, (LOGS.parent / "instances.jsonl").read_text().splitlines())
    }
    for name, expected in json.loads((LOGS / "status_maps.json").read_text()).items():
        log = (LOGS / f"{name}.txt").read_text()
        sliced = log.split(">>>>> Start Test Output")[1].split(">>>>> End Test Output")[0]
        assert OWN_PARSERS[rows[name.rpartition(".")[0]]["log_parser"]](sliced) == expected


@pytest.mark.skipif(not (SHARED / "cases").is_dir(), reason="the folder ../shared/cases is not there")
@pytest.mark.parametrize(
    ("case", "parser", "right"),
    [
        ("17-names/pytest-9.2", "pytest", 14),
        ("17-names/pytest-9.2", "pytest_v2", 20),
        ("19-colour/pytest-9.2-colour", "pytest", 0),
        ("19-colour/pytest-9.2-colour", "pytest_v2", 20),
        ("23-interleave/pytest-9.2", "pytest", 5),
        ("21-counts/pytest-9.2", "pytest", 6),
    ],
)
def test_as_right_as_the_official_ones(case: str, parser: str, right: int) -> None:
    """On texts that mislead, our parsers are exactly as right as the official ones: datasets were made with them."""
    path = SHARED / "cases" / case
    truth = json.loads(path.with_name(path.name + ".expected.json").read_text())["tests"]
    found = OWN_PARSERS[f"parse_log_{parser}"](path.with_name(path.name + ".txt").read_text())
    assert sum(found.get(name) == status for name, status in truth.items()) == right
