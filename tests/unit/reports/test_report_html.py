"""report.html: one page that holds everything, runs nothing but its own script, and adds up."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentcompass import redaction
from pytest_agentcompass.contracts.metrics import MetricContract
from pytest_agentcompass.contracts.record import AttemptRecord
from pytest_agentcompass.metrics.report import build_report
from pytest_agentcompass.reports.html_report import html_opening, html_report
from pytest_agentcompass.reports.summary import RequestResult, build_summary
from pytest_agentcompass.reports.write import write_reports
from pytest_agentcompass.results.layout import attempt_path
from pytest_agentcompass.results.merge import merge_runs
from pytest_agentcompass.results.rundir import RunDirectory

MakeRecord = Callable[..., AttemptRecord]
MakeRun = Callable[..., RunDirectory]
ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=60)
HOSTILE = b"\x00\x1b[31m\x7f\xc2\x85\xef\xbf\xbf</pre></script><script>x()</script><img onerror=x>\"'&amp;\xff".decode(
    errors="surrogateescape"
)
VOID = frozenset({"meta", "input"})
# Words of one text each: as lists they would be eighty lines.
_TAGS = (
    "html head meta title style body header main section article div span p ul li h1 h2 h3 b small code pre a table "
    "thead tbody tr th td details summary svg rect form input button output footer script"
)
_ATTRIBUTES = (
    "lang charset http-equiv content name class id href hidden role type placeholder aria-label aria-hidden aria-live "
    "scope tabindex x width height data-outcome data-request data-mode"
)
TAGS = frozenset(_TAGS.split())
ATTRIBUTES = frozenset(_ATTRIBUTES.split())


class Page(HTMLParser):
    """A strict walk: every tag is known and closed in order, every attribute is one of ours."""

    def __init__(self, document: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.rows: list[tuple[str, list[str]]] = []
        self.blocks: list[str] = []
        self.policy = ""
        self.inline: dict[str, str] = {}
        self.text = ""
        self.feed(document.decode("utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check a tag, and keep what tests look at."""
        values = dict(attrs)
        assert tag in TAGS, tag
        assert set(values) <= ATTRIBUTES, values
        assert len(values) == len(attrs)
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        if tag == "a":
            self.links.append(values["href"] or "")
        if tag == "tr" and values.get("class"):
            self.rows.append((values["class"] or "", []))
        if tag == "td" and self.rows:
            self.rows[-1][1].append("")
        if tag == "pre":
            self.blocks.append("")
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last, and no other."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep text where it belongs."""
        inner = self.open[-1] if self.open else ""
        if inner in ("style", "script"):
            self.inline[inner] = data
            return
        self.text += data
        if "td" in self.open and self.rows and self.rows[-1][1]:
            self.rows[-1][1][-1] += data
        if inner == "pre":
            self.blocks[-1] += data

    def unknown_decl(self, data: str) -> None:
        """Refuse what is no HTML."""
        raise AssertionError(data)

    handle_pi = handle_comment = unknown_decl

    @property
    def attempts(self) -> list[list[str]]:
        """The cells of the attempts' rows."""
        return [cells for _, cells in self.rows]


def result(name: str, records: list[AttemptRecord], planned: list[Any] | None = None, k: int = 1) -> RequestResult:
    """Make the result of one request."""
    planned = planned or [(item.request, item.task_id, item.attempt) for item in records]
    return RequestResult(name, build_report(records, planned, MetricContract(), k=k, request=name), records, planned)


def record_path(request: str, task_id: str, attempt: int) -> str:
    """Stand in for the run directory."""
    return f"{attempt_path(request, task_id, attempt)}/record.json"


def document(
    *requests: RequestResult, info: dict[str, Any] | None = None, problems: tuple[str, ...] = (), present: Any = None
) -> bytes:
    """Write the page of some requests."""
    opening = html_opening(build_summary(info or {"run_id": "x"}, requests, problems), requests)
    return b"".join(html_report(opening, requests, record_path, present or (lambda folder: [])))


def page_of(run: RunDirectory) -> Page:
    """Write the reports of a run directory and walk its page."""
    write_reports(run)
    return Page((run.path / "report.html").read_bytes())


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    """Register a secret for one test."""
    monkeypatch.setattr(redaction, "_values", set())
    monkeypatch.setattr(redaction, "_pattern", None)
    monkeypatch.setattr(redaction, "_bytes_pattern", None)
    redaction.add_secret("hunter2-secret")
    return "hunter2-secret"


# -- what it shows ------------------------------------------------------------------------------


def test_each_planned_attempt_is_a_row(make_record: MakeRecord) -> None:
    """Ten cells: request, task, attempt, outcome, failure mode, score, seconds, cost, category, reason."""
    error = make_record("error", task="e", durations={"run": 61.25}, usage={"cost_usd": 0.125}, category="web")
    records = [make_record("passed", task="p"), make_record("failed", task="f", attempt=2), error]
    planned = [("r", "p", 1), ("r", "f", 2), ("r", "e", 1), ("r", "m", 1)]
    page = Page(document(result("r", records, planned)))
    assert [outcome for outcome, _ in page.rows] == ["passed", "failed", "error", "missing"]
    assert page.attempts[0] == ["r", "p", "1", "passed", "", "1", "0.0", "", "", ""]
    assert page.attempts[1][:9] == ["r", "f", "2", "failed", "", "0", "0.0", "", ""]
    assert page.attempts[1][9].startswith("not solved")
    assert page.attempts[2][:9] == ["r", "e", "1", "error", "environment_error", "", "61.2", "$0.12", "web"]
    assert page.attempts[2][9].startswith("the environment failed: image foo:1 is not there")
    assert page.attempts[3][9] == "planned, but there is no record of it"


def test_counts_are_those_of_the_summary(make_run: MakeRun) -> None:
    """Rows by outcome, and every request's sum of outcomes, equal summary.json and add up to the plan."""
    tasks = {
        "one": {"a": ["passed", "failed", "error"], "b": ["missing", "passed", "satisfied"]},
        "two": {"a": ["failed", "failed"], "c": ["no_solution", "missing"]},
    }
    run = make_run(tasks)
    page = page_of(run)
    summary = json.loads((run.path / "summary.json").read_bytes())
    shown = Counter((cells[0], outcome) for outcome, cells in page.rows)
    for request in summary["requests"]:
        counts = request["report"]["attempts"]
        found = [shown[request["name"], word] for word in ("passed", "failed", "error", "skipped", "missing")]
        assert found == [counts[name] for name in ("passed", "failed", "errors", "skipped", "missing")]
        assert sum(found) == counts["planned"]
    sums = re.findall(
        r"(\d+) attempts planned =[^=]*? missing(\d+) passed(\d+) failed(\d+) errors(\d+) skipped(\d+) missing",
        page.text,
    )
    assert [tuple(map(int, item)) for item in sums] == [(10, 2, 3, 1, 2, 2), (6, 2, 1, 1, 1, 1), (4, 0, 2, 0, 1, 1)]


def test_the_headline_has_its_denominator_and_its_interval(make_record: MakeRecord) -> None:
    """Share, of how many tasks, 95 percent interval; with errors also over what was scored and the best case."""
    records = [make_record(kind, task=str(place)) for place, kind in enumerate(["passed", "failed", "error", "error"])]
    text = Page(document(result("r", records))).text
    assert "25.0% of 4 tasks solved" in text
    assert re.search(r"95% interval \d+\.\d-\d+\.\d%", text)
    assert "50.0% over 2 scored tasks, best case 75.0%" in text


def test_several_requests_have_a_common_row(make_record: MakeRecord) -> None:
    """The average over all tasks is labelled; a single request has no second row that says the same."""
    one, two = result("one", [make_record("passed", "one")]), result("two", [make_record("failed", "two")])
    assert "50.0% over 2 tasks of all requests, each weighs the same" in Page(document(one, two)).text
    assert "All requests" not in Page(document(one)).text


def test_errors_stand_apart_from_failures(make_record: MakeRecord) -> None:
    """Failure modes come with outcome, number and fault; errors are grouped by cause, with places."""
    records = [make_record("error", task=f"e{place}") for place in range(5)]
    records += [make_record("failed", task="f", failure_mode="agent_timeout"), make_record("failed", task="g")]
    text = Page(document(result("r", records))).text
    assert "errorenvironment_error5the environment failedthe infrastructure" in text
    assert "failedagent_timeout1the agent ran out of timethe agent" in text
    assert "failed-1graded, and not solvedthe agent" in text
    assert "5 × environment_error: the environment failed: image foo:1 is not there r::e0::attempt1" in text
    assert "and 2 more" in text


def test_when_all_passed_it_says_so(make_record: MakeRecord) -> None:
    """No table of reasons where there is none."""
    assert "Every attempt passed." in Page(document(result("r", [make_record("passed")]))).text


def test_spending_includes_discarded_tries(make_record: MakeRecord) -> None:
    """Cost and tokens of tries that were thrown away cost money too, and are named."""
    retry = {"usage": {"cost_usd": 0.5, "input_tokens": 1000}}
    usage = {"cost_usd": 1.0, "input_tokens": 2000, "output_tokens": 30, "judge_cost_usd": 0.25}
    text = Page(document(result("r", [make_record("passed", usage=usage, retries=(retry,))]))).text
    assert "cost $1.50 (discarded tries $0.50)" in text
    assert "judges $0.25" in text
    assert "tokens 3,000 in, 30 out" in text


def test_gates_come_first(make_record: MakeRecord) -> None:
    """The verdict with its meaning, each gate with figure and reasons, a common reason once; also in the title."""
    gates = [
        {"gate": "pass@1 >= 0.5", "verdict": "FAIL", "figure": "20.0% of 4 tasks", "why": ["needs >= 50.0%", "both"]},
        {"gate": "errors <= 2%", "verdict": "PASS", "figure": "0.0%", "why": ["both"]},
    ]
    page = Page(document(result("r", [make_record("failed")]), info={"run_id": "x", "gates": gates}))
    assert "FAIL - run x" in page.text
    assert "FAIL1 of 2 gates does not hold" in page.text
    assert "pass@1 >= 0.520.0% of 4 tasksneeds >= 50.0%" in page.text.replace("\n", "")
    assert page.text.count("both") == 1
    assert page.text.index("does not hold") < page.text.index("tasks solved")


def test_without_gates_there_is_no_verdict(make_record: MakeRecord) -> None:
    """No gate, no word of gates."""
    text = Page(document(result("r", [make_record("failed")]))).text
    assert "gate" not in text
    assert "run x" in text


def test_what_is_partial_is_in_view(make_record: MakeRecord) -> None:
    """Reasons and damaged files stand before the figures."""
    planned = [("r", "a", 1), ("r", "b", 1)]
    page = Page(document(result("r", [make_record("passed", task="a")], planned), problems=("x/record.json: torn",)))
    assert "r: 1 planned attempt has no record" in page.text
    assert "x/record.json: torn" in page.text
    assert page.text.index("torn") < page.text.index("tasks solved")


def test_a_run_of_nothing_is_a_page(tmp_path: Path) -> None:
    """No request, or a request without attempts."""
    run = RunDirectory.create(tmp_path, run_id="empty")
    page = page_of(run)
    assert "This run holds no request." in page.text
    assert page.rows == []
    empty = RequestResult("r", build_report([], [], MetricContract(), k=1, request="r"), [], [])
    text = Page(document(empty)).text
    assert "0 attempts planned" in text
    assert "No attempt was planned." in text


def test_a_merged_run_has_all_attempts(make_run: MakeRun, tmp_path: Path) -> None:
    """Attempts of all parts are rows of the page of the whole, and their links lead into it."""
    info = [{"metadata": {"name": "r"}, "benchmark": {"id": "b"}}]
    parts = [make_run({"r": {"a": ["passed"]}}, info), make_run({"r": {"b": ["failed"]}}, info)]
    merged = merge_runs([part.path for part in parts], tmp_path / "merged", allow_gaps=True)
    page = page_of(merged)
    assert [cells[1] for cells in page.attempts] == ["a", "b"]
    for link in page.links:
        assert (merged.path / link).exists(), link


# -- what lies behind an attempt ----------------------------------------------------------------


def test_links_lead_to_what_exists(make_run: MakeRun) -> None:
    """Record, logs, trajectory, panes and recording of a failed attempt where they are there, and nothing else."""
    run = make_run({"r": {"Task One": ["failed"], "b": ["error"], "c": ["passed"]}})
    folder = run.attempt_dir("r", "Task One", 1)
    for name in ("logs", "panes"):
        (folder / name).mkdir()
    for name in ("trajectory.jsonl", "recording.cast", "other.txt"):
        (folder / name).write_text("x")
    page = page_of(run)
    for link in page.links:
        assert (run.path / link).exists(), link
    base = attempt_path("r", "Task One", 1)
    found = [link.removeprefix(f"{base}/") for link in page.links if link.startswith(base)]
    assert found == ["record.json", "record.json", "logs/", "trajectory.jsonl", "panes/", "recording.cast"]


def test_passed_attempts_are_not_looked_up(make_record: MakeRecord) -> None:
    """Nobody asks what lies in the folder of an attempt that passed, was skipped, or has no record."""
    asked: list[str] = []

    def present(folder: str) -> list[str]:
        asked.append(folder)
        return []

    records = [make_record(kind, task=kind) for kind in ("passed", "satisfied", "failed", "error")]
    planned = [("r", task, 1) for task in ("passed", "satisfied", "failed", "error", "missing")]
    document(result("r", records, planned), present=present)
    assert asked == [f"{attempt_path('r', task, 1)}/" for task in ("failed", "error")]


def test_a_failed_attempt_unfolds_to_its_failure_text(make_record: MakeRecord) -> None:
    """Expectation and output of agent and verifier, lines kept; a passed attempt has none."""
    record = make_record(
        "failed", details={"expected": "42"}, final_answer="41", verifier_output="one\ntwo\n", agent_output="hm\n"
    )
    page = Page(document(result("r", [record, make_record("passed", task="t2", agent_output="fine")])))
    assert len(page.blocks) == 1
    assert "expected: 42\n  came:     41" in page.blocks[0]
    assert "--- verifier output, all (2) ---\none\ntwo\n--- agent output, all (1) ---\nhm" in page.blocks[0]
    assert "fine" not in page.text


def test_long_outputs_are_cut(make_record: MakeRecord) -> None:
    """Megabytes of output make no page of megabytes, also where escapes make text longer."""
    for output in ("x" * 3_000_000, "<\n" * 500_000, "\x00" * 100_000, "\u4e2d\n" * 100_000):
        record = make_record("failed", agent_output=output, verifier_output=output)
        small = len(document(result("r", [make_record("failed")])))
        assert len(document(result("r", [record]))) < small + 45_000


def test_many_failures_share_the_room(make_record: MakeRecord) -> None:
    """Two thousand failures with 20 kB of output each make a page of a few megabytes, with every cut stated."""
    output = "".join(f"line {n} of <output> & more\n" for n in range(500))
    records = [make_record("failed", task=f"t{n}", agent_output=output, verifier_output=output) for n in range(2000)]
    whole = document(result("r", records))
    assert len(whole) < 6_000_000
    page = Page(whole)
    assert len(page.blocks) == 2000
    assert all("last lines" in block for block in page.blocks)


def test_rows_come_in_parts(make_record: MakeRecord) -> None:
    """The page is written part by part, and a body of the table holds at most a hundred rows."""
    records = [make_record("passed", task=f"t{n}") for n in range(250)]
    requests = [result("r", records)]
    opening = html_opening(build_summary({}, requests), requests)
    parts = list(html_report(opening, requests, record_path, lambda folder: []))
    assert max(part.count(b"<tr class=") for part in parts) == 100
    assert b"".join(parts).count(b'<tr class="passed">') == 250


# -- nothing in it is anybody else's ------------------------------------------------------------


def test_the_policy_names_what_is_inline(make_record: MakeRecord) -> None:
    """Nothing is loaded; style and script are allowed by the hashes of what the page holds."""
    page = Page(document(result("r", [make_record("failed")])))
    assert page.policy.startswith("default-src 'none'; ")
    assert "unsafe" not in page.policy
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.inline[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in page.policy
    assert page.tags["script"] == page.tags["style"] == 1
    assert "url(" not in page.inline["style"]
    assert not re.search(r"https?:|innerHTML|eval\(", page.inline["script"])


def test_hostile_texts_are_only_text(make_record: MakeRecord) -> None:
    """Markup is shown, control characters and lone surrogates are visible, the file is valid UTF-8."""
    record = make_record("failed", HOSTILE, HOSTILE, agent_output=HOSTILE, verifier_output=HOSTILE, category=HOSTILE)
    page = Page(document(result(HOSTILE, [record]), info={"run_id": HOSTILE, "status": HOSTILE}))
    assert page.tags["script"] == 1
    assert page.tags["img"] == 0
    for text in (page.attempts[0][1], page.blocks[0]):
        assert "#x00" in text
        assert "#x7F#x85#xFFFF</pre></script><script>x()</script><img onerror=x>\"'&amp;#xDCFF" in text


@settings(max_examples=60, deadline=None)
@given(text=ANY_TEXT, kind=st.sampled_from(["passed", "failed", "error", "satisfied"]))
def test_any_text_anywhere_is_only_text(make_record: MakeRecord, text: str, kind: str) -> None:
    """Whatever stands in any text field, the page has the same tags and attributes, balanced, and decodes."""

    def page(value: str) -> Page:
        record = make_record(
            kind,
            value,
            value,
            category=value,
            model=value,
            agent_output=value,
            verifier_output=value,
            final_answer=value,
            started_at=value,
            tests={value: value},
            issues=({"phase": value, "severity": value, "code": value, "message": value},),
            durations={value: 0.25},
            usage={value: 1},
            details={"expected": value},
        )
        gate = {"gate": value, "verdict": "FAIL", "figure": value or "-", "why": [value]}
        info = {"run_id": value, "status": value or "-", "started_at": value or "-", "gates": [gate]}
        info |= {"host": {"name": value or "-"}, "versions": {"python": value}}
        stored = {name: {"id": value or "-"} for name in ("benchmark", "harness", "model", "environment")}
        found = result(value, [record])
        found = RequestResult(value, found.report, found.records, found.planned, stored)
        return Page(document(found, info=info, problems=(value,)))

    assert page(text).tags == page("plain").tags


@pytest.mark.parametrize(
    "path", ["javascript:alert(1)/record.json", "//host/x/record.json", 'a" onclick="x/record.json']
)
def test_no_path_leaves_the_run_directory_as_a_url(make_record: MakeRecord, path: str) -> None:
    """A path is no scheme, no host and no attribute."""
    requests = [result("r", [make_record("failed")])]
    opening = html_opening(build_summary({}, requests), requests)
    page = Page(b"".join(html_report(opening, requests, lambda *key: path, lambda folder: ["logs"])))
    for link in page.links:
        assert not re.match(r"[a-z]+:|//", link)
        assert '"' not in link


def test_secrets_are_masked(make_record: MakeRecord, secret: str) -> None:
    """A key that an agent, a verifier or an error printed, or that a name holds, is not in the page."""
    fields = {
        "agent_output": f"key {secret}",
        "verifier_output": f"{secret}\n",
        "category": secret,
        "details": {"expected": secret},
    }
    issues = ({"phase": "run", "severity": "error", "code": "environment_error", "message": f"401 for {secret}"},)
    records = [
        make_record("failed", task=f"t-{secret}", **fields),
        make_record("error", task="e", issues=issues),
        make_record("passed", task="p", failure_mode="agent_error", issues=issues),
    ]
    whole = document(result("r", records), info={"run_id": "x", "status": secret}, problems=(secret,))
    assert secret.encode() not in whole
    assert b"[redacted]" in whole


def test_a_request_name_as_the_script_compares_it(make_record: MakeRecord) -> None:
    """The name that a count chooses attempts by is the one in their rows, also when it is long."""
    name = "long name " * 30
    whole = document(result(name, [make_record("failed", name)]))
    chosen = re.findall(r'data-request="([^"]*)"', whole.decode())
    assert set(chosen) == {Page(whole).attempts[0][0]}
