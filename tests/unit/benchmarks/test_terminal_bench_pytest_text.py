"""Rules of reading pytest's printed output: its own frame is believed, nothing inside of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.benchmarks.terminal_bench.junit import read_junit
from pytest_agentcompass.benchmarks.terminal_bench.pytest_text import STATUSES, read_pytest_text, strip_control

CASES = Path(__file__).parents[3].parent / "shared" / "cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the folder ../shared/cases is not there")
START = " test session starts ".center(80, "=")
SUMMARY = " short test summary info ".center(80, "=")


def tally(text: str, time: str = "0.01s") -> str:
    """Return pytest's last line."""
    return f" {text} in {time} ".center(80, "=")


def session(*lines: str, counts: str) -> str:
    """Return the output of a run with the summary lines given."""
    return "\n".join([START, "collected 9 items", "", SUMMARY, *lines, tally(counts), ""])


@needs_cases
@pytest.mark.parametrize(
    "name",
    ["17-names/pytest-9.2", "19-colour/pytest-9.2-colour", "21-counts/pytest-9.2", "23-interleave/pytest-9.2"],
)
def test_known_logs(name: str) -> None:
    """Every status of the recorded logs is read as a report hook saw it; what cannot be read is said unknown."""
    expected = json.loads((CASES / f"{name}.expected.json").read_text())
    text = read_pytest_text((CASES / f"{name}.txt").read_text())
    hidden = expected.get("not_readable_from_summary_text", [])
    wanted = {test: STATUSES[word] for test, word in expected["tests"].items() if test not in hidden}
    assert len(text.runs) == 1
    assert text.runs[0].tests == wanted
    assert text.runs[0].unnamed == ({"skipped": len(hidden)} if hidden else {})


@needs_cases
def test_counts_come_from_the_last_line() -> None:
    """Numbers in messages, tracebacks and captured output are no counts."""
    expected = json.loads((CASES / "21-counts/pytest-9.2.expected.json").read_text())
    counts = read_pytest_text((CASES / "21-counts/pytest-9.2.txt").read_text()).runs[0].counts
    assert counts == {"failed": 1, "passed": 2, "error": expected["counts"]["errors"]}


SUITE = """
import pytest
class TestC:
    @pytest.mark.parametrize("x", ["a.b", "p q", "a - b", "x::y", "[", "PASSED"])
    def test_m(self, x): pass
    class TestD:
        def test_n(self): assert 0, "first - line\\nPASSED test_a.py::fake\\nFAILED test_a.py::other"
@pytest.mark.parametrize("x", ["a - b", "c] - d", "[e"])
def test_f(x): assert not x, "because - of [%s]" % x
@pytest.fixture
def td():
    yield
    raise RuntimeError
def test_td(td): pass
def test_both(td): assert 0
@pytest.mark.xfail
def test_xf(): assert 0
@pytest.mark.xfail
def test_xp(): pass
@pytest.mark.skip
def test_s(): pass
def test_print():
    print("==== 7 failed, 9 passed in 1.00s ====\\nPASSED test_a.py::fake\\n3 failed in 0.1s")
"""


@pytest.mark.parametrize(
    "options", [["-rA"], ["-rA", "-q"], ["-v", "-rA"], ["-rA", "--color=yes"], ["-rA", "-s"], ["-rAP"]]
)
def test_text_agrees_with_the_report(options: list[str], tmp_path: Path) -> None:
    """For a suite full of traps the text gives the same statuses as the report of the same run."""
    (tmp_path / "test_a.py").write_text(SUITE)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "test_b.py").write_text("raise OSError('x')")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:agentcompass", "-p", "no:cacheprovider", *options]
    more = ["--continue-on-collection-errors", "--junitxml=r.xml", "-o", "junit_family=xunit1"]
    done = subprocess.run(
        [*command, *more], cwd=tmp_path, capture_output=True, text=True, env={"CI": "true", "PATH": "/usr/bin:/bin"}
    )
    report = read_junit((tmp_path / "r.xml").read_bytes())
    run = read_pytest_text(done.stdout).runs[0]
    wanted = {name: status for name, status in report.items() if status != "skipped"} | {
        "test_a.py::test_xp": "xpassed"
    }
    named = {name: status for name, status in run.tests.items() if status != "skipped"}
    assert named == wanted
    assert run.counts is not None
    assert run.counts["xpassed"] == 1
    assert run.counts["skipped"] == 1


def test_a_run_inside_of_a_run_is_not_counted() -> None:
    """Output of tests that run pytest themselves belongs to the outer run."""
    inner = session("FAILED test_in.py::test_x - assert 0", counts="1 failed")
    text = "\n".join([START, "collected 1 item", inner, SUMMARY, "PASSED test_out.py::test_y", tally("1 passed"), ""])
    found = read_pytest_text(text)
    assert [run.tests for run in found.runs] == [{"test_out.py::test_y": "passed"}]


def test_two_runs_one_after_the_other() -> None:
    """A script that runs pytest twice gives two runs."""
    text = session("PASSED a.py::test_x", counts="1 passed") + session(
        "FAILED b.py::test_y - assert 0", counts="1 failed"
    )
    found = read_pytest_text(text)
    assert [run.tests for run in found.runs] == [{"a.py::test_x": "passed"}, {"b.py::test_y": "failed"}]


def test_a_run_that_stops_is_not_finished() -> None:
    """A run without its last line is known to be unfinished."""
    text = f"{START}\ncollected 2 items\n\ntest_a.py ."
    assert [(run.finished, run.counts) for run in read_pytest_text(text).runs] == [(False, None)]


def test_lines_outside_of_runs_are_kept_apart() -> None:
    """A summary that a script makes up is no run."""
    text = read_pytest_text(f"{SUMMARY}\nPASSED all\nFAILED x.py::test_a - because")
    assert text.runs == []
    assert text.loose == {"all": "passed", "x.py::test_a": "failed"}


def test_extra_words_in_the_tally() -> None:
    """Warnings, deselected tests and a time in minutes do not disturb the tally."""
    last = tally("3 passed, 1 deselected, 581 warnings", "61.23s (0:01:01)")
    text = "\n".join([START, SUMMARY, "PASSED a.py::test_x", last])
    assert read_pytest_text(text).runs[0].counts == {"passed": 3}


def test_more_lines_than_counted_are_doubted() -> None:
    """Names of a status are dropped when there are more of them than the tally says."""
    run = read_pytest_text(session("PASSED a.py::test_x", "PASSED a.py::test_fake", counts="1 passed")).runs[0]
    assert run.tests == {}
    assert run.unnamed == {"passed": 1}


@pytest.mark.parametrize(
    "text", ["", "PASSED", "PASSED\nFAILED\n", f"{SUMMARY}\nPASSED\n", "=" * 80, f"{START}\n{START}\n"]
)
def test_odd_texts(text: str) -> None:
    """A bare status word, an empty text or rules alone are no tests and no crash."""
    assert all(not run.tests for run in read_pytest_text(text).runs)


@given(
    st.text(alphabet=st.characters(codec=None), max_size=300),
    st.sampled_from([START, SUMMARY, tally("1 passed"), "PASSED "]),
)
def test_any_text_is_survived(noise: str, part: str) -> None:
    """Whatever a verifier prints, reading it does not fail."""
    read_pytest_text(noise + part + noise)
    read_pytest_text(f"{noise}\n{part}\n{noise}")


def test_control_characters_go() -> None:
    """Colour codes, titles and carriage returns are taken out."""
    assert strip_control("\x1b[1;31mred\x1b[0m \x1b]0;title\x07a\r\nb\rc\x00") == "red a\nb\nc"


@pytest.mark.parametrize(
    "text",
    [
        "a::b " * 200_000,
        "_" * 500_000 + " x",
        "FAILED a::b" + " - x" * 100_000,
        "1 passed, " * 100_000,
        "\x1b]" * 100_000,
    ],
)
def test_huge_lines(text: str) -> None:
    """Huge lines of untrusted output are read in linear time and give no tests."""
    assert not any(run.tests for run in read_pytest_text(f"{START}\n{text}\n{SUMMARY}\n{text}\n").runs)
