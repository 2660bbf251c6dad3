"""The words after `--agentcompass`."""

from __future__ import annotations

import pytest

from pytest_agentcompass.components.yaml_file import typed
from pytest_agentcompass.config.layers import SHORT_FORMS
from pytest_agentcompass.config.words import short_forms_help, split_words
from pytest_agentcompass.errors import ConfigError


def test_words_are_sorted_in_order() -> None:
    """Settings, node ids and paths are told apart and keep their order."""
    words = split_words(
        ["a/b.agentcompass.yaml", "limit=3", "agentcompass::main::t=1::attempt1", "../agentcompass::x", "tests",
         "model=m", "dir/x=y.yaml", "t.py::test[a=b]", "-"]
    )  # fmt: skip
    assert words.paths == ("a/b.agentcompass.yaml", "tests", "dir/x=y.yaml", "-")
    assert words.node_ids == ("agentcompass::main::t=1::attempt1", "../agentcompass::x", "t.py::test[a=b]")
    assert [setting.key for setting in words.settings] == ["benchmark.limit", "model.id"]
    assert [setting.text for setting in words.settings] == ["limit=3", "model=m"]


def test_double_colon_in_a_value_is_still_a_setting() -> None:
    """A known key before `=` wins over a `::` behind it; an unknown one is a node id."""
    assert typed(split_words(["sample_ids=[a::b]"]).tree) == {"benchmark": {"sample_ids": ["a::b"]}}
    assert split_words(["odd=name.py::test"]).node_ids == ("odd=name.py::test",)


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("benchmark=b", "benchmark.id", "b"),
        ("benchmark.path=a b # c", "benchmark.params.path", "a b # c"),
        ("benchmark.params.limit=3", "benchmark.params.limit", 3),
        ("benchmark.limit=3", "benchmark.limit", 3),
        ("harness.mode.deep=x", "harness.params.mode.deep", "x"),
        ("environment.image=a:b", "environment.image", "a:b"),
        ("environment.env_variables.A=1", "environment.env_variables.A", 1),
        ("model.params.temperature=0", "model.params.temperature", 0),
        ("attempts=3", "execution.attempts.k", 3),
        ("timeout=1.5", "execution.run_timeout_seconds", 1.5),
        ("keep_environment=true", "execution.keep_environment", True),
        ("run_name=007", "output.run_name", "007"),
        ("sample_ids=a", "benchmark.sample_ids", ["a"]),
        ("sample_ids=[a, 'b c']", "benchmark.sample_ids", ["a", "b c"]),
        ("harness.command=echo 'a': *x & y", "harness.params.command", "echo 'a': *x & y"),
        ("harness.command='x'", "harness.params.command", "x"),
        ("base_url=http://h:80/v1?a=b", "model.base_url", "http://h:80/v1?a=b"),
        ("model=", "model.id", None),
    ],
)
def test_keys_and_values(word: str, path: str, value: object) -> None:
    """Short forms and flat params stand for full keys; only lists, maps and quotes are parsed as YAML."""
    tree = typed(split_words([word]).tree)
    for part in path.split("."):
        assert list(tree) == [part]
        tree = tree[part]
    assert tree == value


def test_section_maps() -> None:
    """A whole section may be given as a map, with its params flat."""
    tree = typed(split_words(["benchmark={id: b, limit: 2, path: x}", "execution={attempts: {k: 2}}"]).tree)
    assert tree == {"benchmark": {"id": "b", "limit": 2, "params": {"path": "x"}}, "execution": {"attempts": {"k": 2}}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench=x"], "'bench=x': unknown key 'bench'; did you mean 'benchmark'?"),
        (["benchmarks.limit=x"], "did you mean 'benchmark'?"),
        (["benchmark..x=3"], "has an empty part"),
        (["benchmark.=3"], "has an empty part"),
        (["execution=3"], "execution needs a key of its section (execution.KEY=VALUE)"),
        (["limit=[1"], "'limit=[1': value:"),
        (["benchmark={a: 1, a: 2}"], "key 'a' is given twice"),
        (["limit=1", "limit=2"], "benchmark.limit is given twice with different values: 'limit=1' and 'limit=2'"),
        (["attempts=1", "execution.attempts.k=2"], "execution.attempts.k is given twice"),
        (["execution={attempts: {k: 1}}", "attempts=2"], "execution.attempts.k is given twice"),
        (["harness.a=1", "harness.a.b=1"], "harness.params.a is given twice"),
    ],
)
def test_wrong_words(words: list[str], message: str) -> None:
    """A wrong word is refused with the word, the reason and the nearest keys."""
    with pytest.raises(ConfigError) as caught:
        split_words(words)
    assert message in str(caught.value)


def test_same_value_twice_is_no_contradiction() -> None:
    """Two forms of one key that agree are fine."""
    assert typed(split_words(["attempts=2", "execution.attempts.k=2"]).tree) == {"execution": {"attempts": {"k": 2}}}


def test_help_lists_every_short_form() -> None:
    """The table for --help and the docs names each short form with its full key."""
    lines = short_forms_help()
    for name, (key, what) in SHORT_FORMS.items():
        assert any(line.split()[0] == name and key in line and what in line for line in lines)


def test_a_text_that_begins_like_a_list_is_told_how_to_be_written() -> None:
    """A value with a bracket in front that is no YAML names the quoted form, and that form is taken."""
    quoted = "'[ -f a ] && echo ''b'''"
    with pytest.raises(ConfigError) as caught:
        split_words(["harness.command=[ -f a ] && echo 'b'"])
    assert caught.value.message.endswith(f"; a text that begins with [ stands in quotes: {quoted}")
    words = split_words([f"harness.command={quoted}"])
    assert typed(words.tree) == {"harness": {"params": {"command": "[ -f a ] && echo 'b'"}}}
