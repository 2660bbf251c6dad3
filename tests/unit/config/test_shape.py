"""Reading a tree as a model wants it, and naming what is wrong with it."""

from __future__ import annotations

import pytest

from pytest_agentcompass.components.shape import shape, validate
from pytest_agentcompass.components.yaml_file import load_yaml_text
from pytest_agentcompass.contracts.environment import EnvironmentSpec
from pytest_agentcompass.contracts.request import BenchmarkSpec, ExecutionSpec, ModelSpec
from pytest_agentcompass.errors import ConfigError


def test_text_fields_get_text_as_written_at_any_depth() -> None:
    """Text, lists of text and maps of text are as written; free data is typed by the strict rules."""
    spec = validate(
        EnvironmentSpec,
        load_yaml_text(
            "workdir: 007\nsetup: [1.10, no]\nenv_variables: {A: on, V: 1.10, M: 0755, E: , S: 12345e67}\n"
            "params: {a: 1.10, b: no}\nresources: {cpus: 1.5, memory_mb: 512}\n"
            "run_network_policy: {mode: allowlist, hosts: [0x1F]}",
            "f",
        ),
    )
    assert spec.workdir == "007"
    assert spec.setup == ("1.10", "no")
    assert spec.env_variables == {"A": "on", "V": "1.10", "M": "0755", "E": "", "S": "12345e67"}
    assert spec.params == {"a": 1.1, "b": "no"}
    assert spec.resources.memory_mb == 512
    assert spec.run_network_policy is not None
    assert spec.run_network_policy.hosts == ("0x1F",)


@pytest.mark.parametrize(
    ("wanted", "written", "value"),
    [
        (str, "1.10", "1.10"),
        (str | None, "~", None),
        (int | None, "3", 3),
        (int | str, "007", "007"),
        (int | str, "7", 7),
        (bool | int, "true", True),
        (list[str], "[no, 1]", ["no", "1"]),
        (dict[str, list[str]], "{a: [1.0]}", {"a": ["1.0"]}),
    ],
)
def test_annotations_decide(wanted: object, written: str, value: object) -> None:
    """An annotation decides how a scalar is read; where it allows both, the strict rules do."""
    found = shape(load_yaml_text(written, "f"), wanted)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("model", "written", "message"),
    [
        (EnvironmentSpec, "a: 1", "f:1: x.a: unknown key 'a'; "),
        (EnvironmentSpec, "resources:\n  cpu: 1", "f:2: x.resources.cpu: unknown key 'cpu'; did you mean 'cpus'?"),
        (EnvironmentSpec, "env_variables:\n  A: ~", "f:2: x.env_variables.A: must be a text, not None"),
        (EnvironmentSpec, "setup: ls", "f:1: x.setup: must be a list, not 'ls'"),
        (EnvironmentSpec, "build: {}", "f:1: x.build.context: is required and not set"),
        (EnvironmentSpec, "build: here", "f:1: x.build: must be a mapping of keys to values, not 'here'"),
        (EnvironmentSpec, "evaluation_environment_mode: fresch", "must be 'reuse', 'none' or 'fresh', not 'fresch'"),
        (EnvironmentSpec, "run_network_policy: nonet", "run_network_policy.mode: must be 'public', 'no-network'"),
        (EnvironmentSpec, "run_network_policy: allowlist", "network mode allowlist needs hosts"),
        (BenchmarkSpec, "id: b\nlimit: 0", "f:2: x.limit: must be greater than or equal to 1, not 0"),
        (BenchmarkSpec, "id: ~", "f:1: x.id: must be a text, not None"),
        (ExecutionSpec, "keep_environment: yes", "f:1: x.keep_environment must be true or false, not yes"),
        (ExecutionSpec, "run_timeout_seconds: 12:30", "must be a plain number such as 750 or 12.5, not 12:30"),
        (ExecutionSpec, "attempts: {k: true}", "x.attempts.k must be a whole number, not true"),
        (ExecutionSpec, "attempts: {k: '3'}", "x.attempts.k must be a whole number, not '3'"),
        (ExecutionSpec, "retry_pattern_list: ['(']", "'(' is no regular expression"),
        (ModelSpec, "api_protocol: [openai-chat, x]", "f:1: x.api_protocol[1]: must be 'openai-chat'"),
    ],
)
def test_complaints_name_place_key_value_and_choice(model: type, written: str, message: str) -> None:
    """A refused value is named with file, line, dotted key, what came and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        validate(model, load_yaml_text(written, "f"), "x")
    assert message in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    """A tree with several faults names each on a line of its own."""
    with pytest.raises(ConfigError) as caught:
        validate(EnvironmentSpec, load_yaml_text("setup: a\nbuild: {}\nzzz: 1", "f"), "x")
    assert len(str(caught.value).splitlines()) == 3


def test_a_key_is_never_shown() -> None:
    """The value of a refused api_key stays out of the message."""
    with pytest.raises(ConfigError) as caught:
        validate(ModelSpec, load_yaml_text("api_key: [sk-very-secret]", "f"), "model")
    assert "very" not in str(caught.value)
