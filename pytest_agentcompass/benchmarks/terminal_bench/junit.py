"""Reading the JUnit file that the verifier's own pytest wrote: node ids and statuses."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from ...errors import EvaluationError

__all__ = ["MAX_REPORT_BYTES", "read_junit"]

MAX_REPORT_BYTES = 50_000_000
_WORSE = ("passed", "xfailed", "skipped", "failed", "error")


def read_junit(content: bytes) -> dict[str, str]:
    """Return statuses by node id of a pytest JUnit report of the family `xunit1`.

    A test that passes against its xfail mark is `passed` here: the format does not tell. Raises
    EvaluationError when the report is broken or holds declarations that no report has.
    """
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise EvaluationError("the verifier's JUnit report holds a document type declaration and is not read")
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise EvaluationError(f"the verifier's JUnit report is not valid XML: {error}") from error
    tests: dict[str, str] = {}
    for case in root.iter("testcase"):
        name, status = _node_id(case), _status(case)
        if name not in tests or _WORSE.index(status) > _WORSE.index(tests[name]):
            tests[name] = status
    return tests


def _status(case: ElementTree.Element) -> str:
    if case.find("error") is not None:
        return "error"
    if case.find("failure") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"


def _node_id(case: ElementTree.Element) -> str:
    """Return `file::Class::name` out of the attributes file, classname and name."""
    name = _unescape(case.get("name", ""))
    path, classname = case.get("file", ""), case.get("classname", "")
    if not path:
        return f"{classname.replace('.', '/')}.py::{name}" if classname else _collector(name)
    module = path.removesuffix(".py").replace("/", ".").lstrip(".")
    if not classname and name == module:
        return path
    classes = classname[len(module) :].strip(".") if classname.startswith(module) else ""
    return "::".join([path, *(part for part in classes.split(".") if part), name])


def _collector(dotted: str) -> str:
    """Return the file behind a collection error, which is named by its module alone."""
    return f"{dotted.replace('.', '/')}.py" if dotted and "::" not in dotted else dotted


def _unescape(text: str) -> str:
    """Undo pytest's escapes of characters that XML cannot hold."""
    return re.sub(
        r"#x([0-9A-F]{2,4})", lambda match: chr(int(match[1], 16)) if int(match[1], 16) < 32 else match[0], text
    )
