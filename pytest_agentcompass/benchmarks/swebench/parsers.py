"""From a test log to statuses by test name: the seven Python parsers, and those of the `swebench` package.

Our parsers give exactly the maps of the official harness, oddities included (ids that are cut at a blank,
names out of nested runs), because the required tests of the datasets were recorded with them. They were
compared with swebench 5.0.2.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import EvaluationError, nearest

if TYPE_CHECKING:
    from .rows import Row

__all__ = ["OWN_PARSERS", "StatusMap", "parse_log", "parser_problem"]

StatusMap = dict[str, str]

_PASSED, _FAILED, _SKIPPED, _ERROR = "PASSED", "FAILED", "SKIPPED", "ERROR"
_WORDS = (_FAILED, _PASSED, _SKIPPED, _ERROR, "XFAIL")
_COUNT = re.compile(r"\[\d+\]")
_COLOUR = re.compile(r"\[(\d+)m")
_NO_CONTROL = dict.fromkeys(range(1, 32))
_OK_ENDS = (" ... ok", " ... OK", " ...  OK")
_VERSION_TEST = "--version is equivalent to version"
_GLUED = "Applying sites.0002_alter_domain_unique...test_no_migrations"
# A result that django's runner prints behind a message of several lines: the name, what came between, "ok".
_LATE_OK = tuple(
    re.compile(rf"^(.*?)\s\.\.\.\s{between}\nok$", re.MULTILINE)
    for between in (
        r"Testing against Django installed in (?s:.*?) silenced\)\.",
        r"Internal Server Error: /.*/",
        r"System check identified no issues \(0 silenced\)",
    )
)


def _summary_lines(log: str, change: Callable[[str], str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield status and first word of the name of every line that begins with a status word."""
    for line in log.split("\n"):
        line = change(line) if change else line
        if not line.startswith(_WORDS):
            continue
        words = (line.replace(" - ", " ") if line.startswith(_FAILED) else line).split()
        if len(words) > 1 and not _is_count(words[0], words[1]):
            yield words[0], words[1]


def _is_count(status: str, name: str) -> bool:
    """Whether a line only counts skipped tests: `SKIPPED [3] file:line: reason`."""
    return status == _SKIPPED and _COUNT.fullmatch(name) is not None


def _pytest(log: str) -> StatusMap:
    return {name: status for status, name in _summary_lines(log)}


def _matplotlib(log: str) -> StatusMap:
    def numbered(line: str) -> str:
        return line.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3")

    return {name: status for status, name in _summary_lines(log, numbered)}


def _pytest_options(log: str) -> StatusMap:
    return {_short_option(name): status for status, name in _summary_lines(log)}


def _short_option(name: str) -> str:
    """Reduce a parameter that is an absolute path to its last part; what follows the last bracket is dropped."""
    opening = name.find("[")
    closing = name.rfind("]")
    if opening < 0 or closing < opening:
        return name
    option = name[opening + 1 : closing]
    if option.startswith("/") and not option.startswith("//") and "*" not in option:
        option = "/" + option.rpartition("/")[2]
    return f"{name[:opening]}[{option}]"


def _pytest_v2(log: str) -> StatusMap:
    found: StatusMap = {}
    for raw in log.split("\n"):
        line = _COLOUR.sub("", raw).translate(_NO_CONTROL)
        if line.startswith(_WORDS):
            words = (line.split(" - ", 1)[0] if line.startswith(_FAILED) else line).split()
            if len(words) > 1 and not _is_count(words[0], words[1]):
                found[" ".join(words[1:])] = words[0]
        elif line.endswith(_WORDS):
            words = line.split()
            if len(words) > 1:
                found[" ".join(words[:-1])] = words[-1]
    return found


def _seaborn(log: str) -> StatusMap:
    found: StatusMap = {}
    for line in log.split("\n"):
        words = line.split()
        if len(words) < 2:
            continue
        if line.startswith(_FAILED):
            found[words[1]] = _FAILED
        elif f" {_PASSED} " in line:
            if words[1] == _PASSED:
                found[words[0]] = _PASSED
        elif line.startswith(_PASSED):
            found[words[1]] = _PASSED
    return found


def _sympy(log: str) -> StatusMap:
    lines = log.split("\n")
    found: StatusMap = {name: _FAILED for line in lines if (name := _sympy_heading(line)) is not None}
    ends = ((" E", _ERROR), (" F", _FAILED), (" ok", _PASSED))
    for line in (line.strip() for line in lines):
        if line.startswith("test_"):
            found.update((line.split()[0], status) for end, status in ends if line.endswith(end))
    return found


def _sympy_heading(line: str) -> str | None:
    """Return `path.py:test` of a traceback's heading: what stands between the line's first and last blank."""
    first, last = line.find(" "), line.rfind(" ")
    middle = line.rfind(".py:", first + 1, last) if first >= 0 else -1
    return None if middle < 0 else line[first + 1 : last]


def _django(log: str) -> StatusMap:
    found: StatusMap = {}
    running: str | None = None
    for line in (line.strip() for line in log.split("\n")):
        if _VERSION_TEST in line:
            found[_VERSION_TEST] = _PASSED
        if " ... " in line:
            running = line.split(" ... ")[0]
        _django_line(line, found)
        if line.startswith("ok") and running is not None:
            found[running] = _PASSED
    for pattern in _LATE_OK:
        found.update((match[1], _PASSED) for match in pattern.finditer(log))
    return found


def _django_line(line: str, found: StatusMap) -> None:
    ending = next((end for end in _OK_ENDS if line.endswith(end)), None)
    if ending is not None:
        if line.startswith(_GLUED):
            line = line.split("...", 1)[1].strip()
        found[line.removesuffix(ending)] = _PASSED
    if " ... skipped" in line:
        found[line.split(" ... skipped")[0]] = _SKIPPED
    for word, status in (("FAIL", _FAILED), ("ERROR", _ERROR)):
        if line.endswith(f" ... {word}"):
            found[line.split(f" ... {word}")[0]] = status
        if line.startswith(f"{word}:") and len(words := line.split()) > 1:
            found[words[1]] = status


#: parser names of the datasets -> our functions
OWN_PARSERS: dict[str, Callable[[str], StatusMap]] = {
    f"parse_log_{name}": function
    for function, names in (
        (_pytest, ("pytest", "astroid", "flask", "marshmallow", "pvlib", "pyvista", "sqlfluff", "xarray")),
        (_pytest_options, ("pytest_options", "pydicom", "requests", "pylint")),
        (_pytest_v2, ("pytest_v2", "astropy", "scikit", "sphinx")),
        (_django, ("django",)),
        (_sympy, ("sympy",)),
        (_matplotlib, ("matplotlib",)),
        (_seaborn, ("seaborn",)),
    )
    for name in names
}


def parse_log(name: str, log: str, row: Row) -> StatusMap:
    """Return the statuses that the parser called *name* reads out of *log*.

    EvaluationError when the parser is not known, needs a package that is not installed, or fails.
    """
    own = OWN_PARSERS.get(name)
    if own is not None:
        return own(log)
    problem = parser_problem(name)
    if problem:
        raise EvaluationError(problem)
    try:
        return dict(_official()[name](log, _official_spec(row)))
    except KeyError:
        raise EvaluationError(
            f"log_parser {name!r} is not known; {nearest(name, [*OWN_PARSERS, *_official()])}"
        ) from None
    except (IndexError, AttributeError, TypeError, ValueError) as error:
        raise EvaluationError(f"log_parser {name!r} of the swebench package failed: {error!r}") from error


def parser_problem(name: str) -> str | None:
    """Return why the parser called *name* cannot be had here, or None; nothing heavy is imported."""
    if name in OWN_PARSERS:
        return None
    if importlib.util.find_spec("swebench") is None:
        return (
            f"log_parser {name!r} comes from the swebench package, which is not installed; "
            "install it with: pip install 'pytest-agentcompass[swebench-parsers]' (>=5.0.2,<6)"
        )
    return None


_import_lock = threading.Lock()


def _official() -> dict[str, Callable[[str, Any], StatusMap]]:
    """Return the parsers of the swebench package.

    Its `harness` package imports datasets and modal and reads a `.env` file into the environment. A
    stand-in for that package lets the parsers be imported without any of it.
    """
    name = "swebench.harness"
    with _import_lock:
        borrowed = None
        if name not in sys.modules:
            spec = importlib.util.find_spec("swebench")
            borrowed = types.ModuleType(name)
            borrowed.__path__ = (
                [f"{place}/harness" for place in (spec.submodule_search_locations or [])] if spec else []
            )
            sys.modules[name] = borrowed
        try:
            parsers = importlib.import_module(f"{name}.log_parsers")
        except ImportError as error:
            raise EvaluationError(f"the parsers of the swebench package cannot be imported: {error}") from error
        finally:
            if borrowed is not None and sys.modules.get(name) is borrowed:
                del sys.modules[name]
    registry: dict[str, Callable[[str, Any], StatusMap]] = parsers.PARSER_REGISTRY
    return registry


def _official_spec(row: Row) -> Any:
    return importlib.import_module("swebench.types").TestSpec(
        instance_id=row.instance_id,
        image=row.image,
        eval_script_list=row.eval_script.split("\n"),
        repo=row.repo,
        version=row.version,
        FAIL_TO_PASS=list(row.fail_to_pass),
        PASS_TO_PASS=list(row.pass_to_pass),
        log_parser=row.log_parser,
        eval_type=row.eval_type,
    )
