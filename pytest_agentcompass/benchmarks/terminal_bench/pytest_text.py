"""Reading pytest's printed output: names and counts of each run, and what the text cannot tell.

Pure functions over untrusted text. Only pytest's own frame is believed: the rule `test session starts`,
the summary block and the last counts line of the same width. Text inside of captured output, tracebacks
or messages of several lines decides nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

__all__ = ["STATUSES", "PytestRun", "PytestText", "read_pytest_text", "strip_control"]

#: the word in the text -> the status on the record
STATUSES = {
    "PASSED": "passed",
    "FAILED": "failed",
    "ERROR": "error",
    "SKIPPED": "skipped",
    "XFAIL": "xfailed",
    "XPASS": "xpassed",
}
_COUNTED = {
    "passed": "passed",
    "failed": "failed",
    "error": "error",
    "errors": "error",
    "skipped": "skipped",
    "xfailed": "xfailed",
    "xpassed": "xpassed",
}
_WORSE = ("passed", "xfailed", "skipped", "xpassed", "failed", "error")
_LONGEST = 20_000
_CUTS = 100
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_START = re.compile(r"^=+ test session starts =+$")
_SUMMARY = re.compile(r"^=+ short test summary info =+$")
_TALLY = r"(?:no tests ran|\d+ [a-z][a-z ]*(?:, \d+ [a-z][a-z ]*)*)"
_COUNTS = re.compile(rf"^(?P<rule>=+ )?(?P<tally>{_TALLY}) in \d+(?:\.\d+)?s(?: \([0-9:, a-z]+\))?(?: =+)?$")
_LINE = re.compile(
    r"^(?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS|SUBFAIL(?:ED)?(?:\(.*?\)|\[.*?\])*) (?P<rest>\S.*)$"
)
_FOLDED = re.compile(r"^\[(\d+)\] ")
_VERBOSE = re.compile(
    r"^(?P<id>\S.*?::\S.*?) (?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))?(?: +\[ *\d+%\])?$"
)
_PROGRESS = re.compile(r"\[ *\d+%\]$")
_HEADING = re.compile(r"^_{3,} (?:ERROR at (?:setup|teardown) of |ERROR collecting )?(?P<title>.+?) _{3,}$")


@dataclass(slots=True)
class PytestRun:
    """One run of pytest: statuses by node id and the tally that it printed.

    *finished*: whether the tally came; *framed*: whether the run began with pytest's opening rule;
    *named*: how many lines named a test, by status.
    """

    tests: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] | None = None
    finished: bool = True
    named: Counter[str] = field(default_factory=Counter)
    framed: bool = True

    @property
    def unnamed(self) -> dict[str, int]:
        """How many tests of a status were counted and cannot be named from the text."""
        named = self.named
        counts = self.counts or {}
        return {status: count - named[status] for status, count in counts.items() if count > named[status]}


@dataclass(slots=True)
class PytestText:
    """All runs of a text, in order; *loose* holds summary lines outside of any run (scripts print such)."""

    runs: list[PytestRun] = field(default_factory=list)
    loose: dict[str, str] = field(default_factory=dict)

    @property
    def framed(self) -> int:
        """How many runs of pytest began with its opening rule, finished or not."""
        return sum(run.framed for run in self.runs)


def strip_control(text: str) -> str:
    """Return *text* without colour codes and control characters, with Unix line ends."""
    return _CONTROL.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")


def read_pytest_text(text: str) -> PytestText:
    """Return what pytest printed in *text*."""
    # Patterns are not let loose on the endless lines of programs: no line of pytest's frame is that long.
    lines = [line if len(line) <= _LONGEST else "" for line in strip_control(text).split("\n")]
    found = PytestText()
    position = 0
    for start, end, finished in _spans(lines):
        _loose(lines[position:start], found)
        found.runs.append(_read_run(lines[start : end + 1], finished))
        position = end + 1
    _loose(lines[position:], found)
    return found


def _spans(lines: list[str]) -> list[tuple[int, int, bool]]:
    """Return first and last line of each outermost run, and whether it came to its end."""
    open_runs: list[int] = []
    spans: list[tuple[int, int, bool]] = []
    for number, line in enumerate(lines):
        if _START.match(line):
            open_runs.append(number)
        elif (match := _COUNTS.match(line)) and _is_tally(match["tally"]):
            _close(lines, number, match, open_runs, spans)
    starts = [(start, _last_line(lines, start), False) for start in open_runs]
    return _outermost(lines, sorted(spans + starts))


def _close(
    lines: list[str], number: int, match: re.Match[str], open_runs: list[int], spans: list[tuple[int, int, bool]]
) -> None:
    line = lines[number]
    if not match["rule"]:
        if not open_runs:
            _close_quiet(lines, number, spans)
        return
    if open_runs and _same_width(lines[open_runs[-1]], line):
        spans.append((open_runs.pop(), number, True))


def _same_width(first: str, second: str) -> bool:
    """Whether two rules are as wide as the same terminal (a title that does not fit is wider)."""
    return abs(len(first) - len(second)) <= 1 or second.startswith("= ")


def _close_quiet(lines: list[str], number: int, spans: list[tuple[int, int, bool]]) -> None:
    """Take a tally without rules (`-q`): a new run where progress was printed since the last one, else its true end."""
    start = max((end + 1 for _, end, _ in spans), default=0)
    if spans and not any(_PROGRESS.search(line) for line in lines[start:number]):
        spans[-1] = (spans[-1][0], number, True)
    else:
        spans.append((start, number, True))


def _last_line(lines: list[str], start: int) -> int:
    later = (number for number in range(start + 1, len(lines)) if _START.match(lines[number]))
    return next(later, len(lines)) - 1


def _outermost(lines: list[str], spans: list[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """Drop runs inside of another (tests that run pytest); of two quiet candidates the last holds."""
    kept: list[tuple[int, int, bool]] = []
    for span in spans:
        if kept and span[0] <= kept[-1][1]:
            if span[1] > kept[-1][1]:
                kept[-1] = (kept[-1][0], span[1], kept[-1][2] and span[2])
            continue
        kept.append(span)
    return kept


def _is_tally(text: str) -> bool:
    if text == "no tests ran":
        return True
    words = [part.split(" ", 1)[1] for part in text.split(", ")]
    return any(word in _COUNTED or word in ("deselected", "warning", "warnings", "rerun") for word in words)


def _tally(line: str) -> dict[str, int] | None:
    match = _COUNTS.match(line)
    if match is None:
        return None
    counts: dict[str, int] = {}
    for part in [] if match["tally"] == "no tests ran" else match["tally"].split(", "):
        number, word = part.split(" ", 1)
        status = _COUNTED.get(word) or ("failed" if word == "subtests failed" else None)
        if status:
            counts[status] = counts.get(status, 0) + int(number)
    return counts


def _read_run(lines: list[str], finished: bool) -> PytestRun:
    counts = _tally(lines[-1]) if finished else None
    summary = max((number for number, line in enumerate(lines) if _SUMMARY.match(line)), default=None)
    body = lines if summary is None else lines[:summary]
    verbose = _verbose(body)
    framed = any(_START.match(line) for line in lines)
    run = PytestRun(counts=counts, finished=finished, framed=framed)
    entries = _entries([] if summary is None else lines[summary + 1 :], counts, verbose, _titles(body))
    listed = {name for name, _ in entries}
    for name, status in [*((name, status) for name, status in verbose.items() if name not in listed), *entries]:
        run.named[status] += 1
        _put(run.tests, name, status)
    _respect(run)
    return run


def _put(tests: dict[str, str], name: str, status: str) -> None:
    """Keep the worse of two statuses: the last phase of a test wins over the phases that went well."""
    if name not in tests or _WORSE.index(status) > _WORSE.index(tests[name]):
        tests[name] = status


def _respect(run: PytestRun) -> None:
    """Drop names of a status that the tally does not know at all: they come out of somebody's message."""
    if run.counts is not None:
        run.tests = {name: status for name, status in run.tests.items() if run.counts.get(status)}


def _verbose(lines: list[str]) -> dict[str, str]:
    """Return what `-v` printed, one line per test; a name that came with two words is left to the summary."""
    found: dict[str, str] = {}
    clashing = set()
    for line in lines:
        match = _VERBOSE.match(line)
        if match and "::" in match["id"] and " " not in match["id"].partition("[")[0]:
            status = STATUSES[match["word"]]
            clashing |= {match["id"]} if found.get(match["id"], status) != status else set()
            found[match["id"]] = status
    return {name: status for name, status in found.items() if name not in clashing}


def _titles(lines: list[str]) -> set[str]:
    """Return the headings of tracebacks: `TestC.test_m[x]` for `path::TestC::test_m[x]`."""
    return {match["title"] for line in lines if (match := _HEADING.match(line))}


def _entries(
    lines: list[str], counts: dict[str, int] | None, known: dict[str, str], titles: set[str]
) -> list[tuple[str, str]]:
    """Return names and statuses of a summary block.

    Statuses come in blocks (`-r` order). A word that comes again after its block has ended starts a line of a
    message, as does one whose rest is no node id; with the tally at hand, surplus lines of a status are cut.
    """
    blocks: list[tuple[str, list[str]]] = []
    for line in lines:
        match = _LINE.match(line)
        if match is None or _FOLDED.match(match["rest"]):
            continue
        status = STATUSES.get(match["word"], "failed")
        name = _node_id(match["rest"], status, known, titles)
        if name is None or (counts is not None and not counts.get(status)):
            continue
        if blocks and blocks[-1][0] == status:
            blocks[-1][1].append(name)
        elif not any(earlier == status for earlier, _ in blocks):
            blocks.append((status, [name]))
    return [(name, status) for status, names in blocks for name in _within(names, (counts or {}).get(status))]


def _within(names: list[str], count: int | None) -> list[str]:
    """Return *names*, or only those that stand in no doubt when there are more than the tally says."""
    unique = list(dict.fromkeys(names))
    return unique if count is None or len(unique) <= count else []


def _node_id(rest: str, status: str, known: dict[str, str], titles: set[str]) -> str | None:
    """Return the node id at the start of a summary line, or None when there is none.

    `id - message` is ambiguous when the id holds ` - `: ids seen elsewhere in the text decide, then brackets.
    """
    if status == "passed":
        return rest if _is_node_id(rest) else None
    cuts = [match.start() for match in re.finditer(" - ", rest)][:_CUTS]
    options = [rest[:cut] for cut in cuts] + [rest]
    for option in options:
        if option in known or _title(option) in titles:
            return option
    for option in options:
        if _is_node_id(option) and _is_balanced(option):
            return option
    return options[0] if _is_node_id(options[0]) else None


def _title(node_id: str) -> str:
    head, mark, tail = node_id.partition("::")
    if not mark:
        return head
    name, bracket, rest = tail.partition("[")
    return name.replace("::", ".") + bracket + rest


def _is_node_id(text: str) -> bool:
    path, mark, _ = text.partition("::")
    if mark:
        return bool(path) and "[" not in path
    return bool(re.fullmatch(r"[^\s]+(?: [^\s]+)*\.\w{1,5}|[\w./-]+", text)) and ("." in text or "/" in text)


def _is_balanced(text: str) -> bool:
    return "[" not in text.partition("::")[2] or text.endswith("]")


def _loose(lines: list[str], found: PytestText) -> None:
    """Take summary lines that stand under a summary rule but in no run: a script's own words."""
    under = False
    for line in lines:
        if _SUMMARY.match(line):
            under = True
            continue
        match = _LINE.match(line) if under else None
        if match and not _FOLDED.match(match["rest"]):
            status = STATUSES.get(match["word"], "failed")
            name = _node_id(match["rest"], status, {}, set()) or match["rest"].split(" - ")[0].strip()
            _put(found.loose, name, status)
