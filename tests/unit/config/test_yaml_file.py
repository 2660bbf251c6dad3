"""The strict YAML loader: text as written, types only where they are meant, errors with a place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.components import yaml_file
from pytest_agentcompass.components.yaml_file import (
    Map,
    Scalar,
    boolean,
    integer,
    line_at,
    line_of,
    load_yaml_file,
    load_yaml_mapping,
    load_yaml_text,
    number,
    text,
    typed,
    where,
)
from pytest_agentcompass.errors import ConfigError

CASE = Path(__file__).parents[4] / "shared" / "cases" / "11-yaml-typing"


@pytest.mark.parametrize(
    "written",
    ["no", "yes", "on", "off", "y", "007", "0755", "0o17", "0x1F", "1_2", "12:30:45", "2024-01-01", ".inf", ".nan",
     "+5", "1.", ".5", "NULL", "Null", "TRUE", "1e999", "01.5", "-", "1e", "\u0661"],
)  # fmt: skip
def test_yaml_1_1_surprises_stay_text(written: str) -> None:
    """What YAML 1.1 would convert but JSON would not is the text as written."""
    assert typed(load_yaml_text(f"a: {written}" if written != "-" else 'a: "-"', "f")) == {"a": written}


@pytest.mark.parametrize(
    ("written", "value"),
    [("7", 7), ("-7", -7), ("0", 0), ("1.10", 1.1), ("1e3", 1000.0), ("-1.5E-2", -0.015), ("true", True),
     ("False", False), ("null", None), ("~", None), ("", None), ("12345678901234567890", 12345678901234567890)],
)  # fmt: skip
def test_json_scalars_are_typed(written: str, value: object) -> None:
    """Plain scalars that are JSON (or null as YAML writes it) get its type."""
    found = typed(load_yaml_text(f"a: {written}", "f"))["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("written", ['"7"', "'true'", '"null"', '""', "|\n  7", "!!str 7", "! 7"])
def test_quoted_scalars_are_text(written: str) -> None:
    """Quotes, block style and !!str make any scalar a text."""
    node = load_yaml_text(f"a: {written}", "f")["a"]
    assert isinstance(typed(node), str)
    assert text(node) == typed(node)


@pytest.mark.parametrize("written", ["no", "007", "1.10", "1e3", "true", "2024-01-01", "12:30", "0123456"])
def test_text_field_gets_text_as_written(written: str) -> None:
    """A consumer that asks for text never sees a converted value."""
    assert text(load_yaml_text(written, "f")) == written


def test_plain_data_holds_no_wrappers() -> None:
    """`typed` gives ordinary data that JSON can carry; a Scalar itself cannot be used as text by accident."""
    tree = load_yaml_text("a: [1, {b: no}]\nc: x", "f")
    assert json.dumps(typed(tree)) == '{"a": [1, {"b": "no"}], "c": "x"}'
    assert not isinstance(tree["c"], str)
    with pytest.raises(TypeError):
        json.dumps(tree)


@pytest.mark.parametrize(
    ("reader", "written", "message"),
    [
        (text, "~", "f:1: id must be a text (quote it if it looks like something else), not null"),
        (text, "[a]", "f:1: id must be a text (quote it if it looks like something else), not a list"),
        (text, "{a: 1}", "f:1: id must be a text (quote it if it looks like something else), not a mapping"),
        (number, "12:30", "f:1: id must be a plain number such as 750 or 12.5, not 12:30"),
        (number, "true", "f:1: id must be a plain number such as 750 or 12.5, not true"),
        (number, "'5'", "f:1: id must be a plain number such as 750 or 12.5, not '5'"),
        (integer, "1.5", "f:1: id must be a whole number, not 1.5"),
        (boolean, "yes", "f:1: id must be true or false, not yes"),
    ],
)
def test_readers_refuse_with_place_and_value(reader: object, written: str, message: str) -> None:
    """A wrong scalar is named with file, line, field, what is allowed and what came."""
    with pytest.raises(ConfigError) as caught:
        reader(load_yaml_text(written, "f"), "id")  # type: ignore[operator]
    assert str(caught.value) == message


def test_empty_text_only_where_it_is_allowed() -> None:
    """`KEY:` is the empty text for a reader that takes it, and an error for one that does not."""
    node = load_yaml_text("a:", "f")["a"]
    assert text(node, "a", empty=True) == ""
    with pytest.raises(ConfigError, match="not empty"):
        text(node, "a")
    with pytest.raises(ConfigError, match="not null"):
        text(load_yaml_text("~", "f"), "a", empty=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f:3:1: key 'a' is given twice (first on line 1)"),
        ("x:\n  - k: 1\n    k: 1", "f:3:5: key 'k' is given twice (first on line 2)"),
        ("{a: 1, 'a': 2}", "f:1:8: key 'a' is given twice (first on line 1)"),
        ("a: b: c", "f:1:5: broken YAML: mapping values are not allowed in this context"),
        ("a: 1\n---\nb: 2", "f:2:1: a second YAML document starts here; a file holds one"),
        ("a: !!python/name:os.system x", "f:1:4: the tag 'tag:yaml.org,2002:python/name:os.system' is not allowed"),
        ("a: !!int 5", "f:1:4: the tag 'tag:yaml.org,2002:int' is not allowed (only !!str is)"),
        ("a: &x [*x]", "f:1:8: the alias *x names nothing that is complete here"),
        ("? [a]\n: 1", "f:1:3: a key must be a text, not a list or mapping"),
        ("'': 1\n~: 2\n? \n: 3", "f:3:2: a key is empty"),
        ("ok: 1\na: \x07", "f:2: holds a character that YAML does not allow"),
        ("ok: 1\na: \udcff", "f:2: holds a "),
    ],
)
def test_broken_files_are_named_with_their_place(content: str, message: str) -> None:
    """Every refusal names source, line and, where it is known, column."""
    with pytest.raises(ConfigError) as caught:
        load_yaml_text(content, "f")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("loader", [yaml.BaseLoader, getattr(yaml, "CBaseLoader", yaml.BaseLoader)])
@pytest.mark.parametrize(
    "content", ["a: [no, 'x', 1]\nb: {c: |\n    t\n  }\n", "a: [1", "a: '", "- a\nb: 1", "a: \x00"]
)
def test_both_parsers_agree(loader: type, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without libyaml a text has the same tree, or is refused with the same kind of error."""
    reference = _outcome(content)
    monkeypatch.setattr(yaml_file, "_Loader", loader)
    assert _outcome(content) == reference


def _outcome(content: str) -> object:
    try:
        return load_yaml_text(content, "f")
    except ConfigError:
        return "refused"


def test_aliases_and_merge_keys() -> None:
    """An alias repeats a part; `<<` brings in what the mapping does not set itself."""
    tree = load_yaml_text("base: &b {x: 1, y: no}\nuse:\n  <<: *b\n  y: 2\nlist: {<<: [*b, {z: 3}]}", "f")
    assert typed(tree["use"]) == {"y": 2, "x": 1}
    assert typed(tree["list"]) == {"x": 1, "y": "no", "z": 3}
    assert typed(tree["base"]) == {"x": 1, "y": "no"}
    with pytest.raises(ConfigError, match="<< takes a mapping"):
        load_yaml_text("a: {<<: 3}", "f")


def test_growing_aliases_are_refused() -> None:
    """A small file cannot stand for billions of values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="when its aliases are written out"):
        load_yaml_text("\n".join(lines), "f")


def test_deep_nesting_is_refused() -> None:
    """Nesting that would exhaust the interpreter's stack is an error with a place."""
    with pytest.raises(ConfigError, match=r"f:1:101: is nested deeper than 100 levels"):
        load_yaml_text("[" * 200 + "]" * 200, "f")


def test_lines_are_known() -> None:
    """Each node knows its line; a path leads to the deepest line that exists."""
    tree = load_yaml_text("a: 1\nb:\n  - c: 1\n    d: 2\n", "suite.yaml")
    assert where(tree["b"][0]["d"]) == "suite.yaml:4"
    assert line_of(tree, "b") == 2
    assert line_of(tree, "zzz") == 0
    assert line_at(tree, ("b", 0, "d")) == 4
    assert line_at(tree, ("b", 0, "missing")) == 3
    assert line_at(tree, ("b", 7)) == 2


def test_files(tmp_path: Path) -> None:
    """Files are UTF-8, with or without BOM; others, and missing ones, are named."""
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: caf\xc3\xa9\r\nb: 1\r\n")
    assert typed(load_yaml_file(path)) == {"a": "caf\u00e9", "b": 1}
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r"a\.yaml:2: is no UTF-8 text"):
        load_yaml_file(path)
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_yaml_file(tmp_path / "none.yaml")
    path.write_text("# nothing\n")
    assert load_yaml_mapping(path) == {}
    path.write_text("- a\n")
    with pytest.raises(ConfigError, match=r"a\.yaml:1: the file's top level must be a mapping"):
        load_yaml_mapping(path)


_LEAVES = (
    st.text(alphabet=st.characters(exclude_categories=["Cs"]))
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
)


def _containers(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4)


@given(st.recursive(_LEAVES, _containers, max_leaves=12))
def test_json_is_read_as_json(value: object) -> None:
    """Any ASCII JSON text is read as `json.loads` reads it (JSON's escaped surrogate pairs apart)."""
    content = json.dumps(value)
    if "\\ud" in content.lower():
        return
    assert typed(load_yaml_text(content, "f")) == json.loads(content)


@given(st.text())
def test_any_text_is_read_or_refused(content: str) -> None:
    """No input makes anything but a tree or a ConfigError."""
    try:
        tree = load_yaml_text(content, "f")
    except ConfigError:
        return
    assert isinstance(tree, (Map, list, Scalar))


@pytest.mark.skipif(not CASE.is_dir(), reason="the shared case files are not beside this checkout")
def test_shared_case() -> None:
    """Ids and environment values of the shared case come out as written; its doubled keys are named."""
    tasks = load_yaml_mapping(CASE / "typing.suite.yaml")["tasks"]
    assert [text(task["id"]) for task in tasks[:7]] == ["no", "007", "1_2", "12:30:45", "2024-01-01", "1.10", "1e3"]
    with pytest.raises(ConfigError, match=r"typing\.suite\.yaml:24: id must be a text"):
        text(tasks[7]["id"], "id")
    values = [text(value, empty=True) for value in tasks[7]["env"].values()]
    assert values == ["on", "1.10", "0755", "0123456", "", "12345e67"]
    with pytest.raises(ConfigError, match="not 12:30"):
        number(tasks[7]["timeout"], "timeout")
    with pytest.raises(ConfigError, match=r"dupkeys\.suite\.yaml:6:5: key 'verify' is given twice"):
        load_yaml_mapping(CASE / "dupkeys.suite.yaml")
