"""Suite files: order, defaults, problems of single requests and refusals of whole files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from config_fakes import resolve

from pytest_agentcompass.config.resolve import ResolvedRequest, SuiteProblem
from pytest_agentcompass.errors import ConfigError

Write = Callable[[str, str], Path]
SUITE = """\
version: 1
name: nightly
task_concurrency: 4
runtime: {deadline_seconds: 3600, provider_limits: {box: 2}}
defaults:
  harness: {id: agent, mode: fast}
  model: {id: m1, params: {temperature: 0}}
  attempts: 3
requests:
  - name: zeta
    benchmark: {id: bench, path: data/x.jsonl, version: 1.10}
    environment: {env_variables: {A: on}}
  - name: alpha
    benchmark: bench
    harness: other
    execution: {max_retries: 5}
gates:
  - "zeta: pass@1 >= 0.5"
  - {request: alpha, at_least: 0.5}
"""


def good(item: ResolvedRequest | SuiteProblem) -> ResolvedRequest:
    """Return *item*, which must be usable."""
    assert isinstance(item, ResolvedRequest), item
    return item


def test_requests_in_order_with_defaults(tmp_path: Path, write: Write) -> None:
    """Requests keep their order and take the suite's defaults under their own values."""
    suite = resolve(tmp_path).read_suite(write("s.agentcompass.yaml", SUITE))
    first, second = (good(item) for item in suite.requests)
    assert (suite.name, first.name, second.name) == ("nightly", "zeta", "alpha")
    assert first.request.benchmark.params == {"path": str(tmp_path / "data/x.jsonl"), "version": "1.10"}
    assert first.request.environment.env_variables == {"A": "on"}
    assert second.request.environment.env_variables == {}
    assert first.request.harness.params == {"mode": "fast"}
    assert first.request.model.params == {"temperature": 0}
    assert second.request.execution.attempts.k == 3
    assert second.provenance["execution.max_retries"] == "s.agentcompass.yaml:16"
    assert second.request.metadata.source == "s.agentcompass.yaml:13"
    assert suite.gates == ("zeta: pass@1 >= 0.5", {"request": "alpha", "at_least": 0.5})


def test_choosing_another_component_drops_params_of_the_one_below(tmp_path: Path, write: Write) -> None:
    """`harness: other` in a request (or on the command line) does not inherit params meant for the default one."""
    path = write("s.agentcompass.yaml", SUITE)
    assert good(resolve(tmp_path).load_suite(path)[1]).request.harness.params == {}
    assert good(resolve(tmp_path, "harness=other").load_suite(path)[0]).request.harness.params == {}


def test_command_line_lies_over_each_request(tmp_path: Path, write: Write) -> None:
    """Settings override every request; options go config, suite, command line."""
    path = write("s.agentcompass.yaml", SUITE)
    write(
        "agentcompass.yaml",
        "runtime: {deadline_seconds: 1, cleanup_grace_seconds: 9}\nexecution: {task_concurrency: 2}",
    )
    suite = resolve(tmp_path, "attempts=1", "concurrency=16").read_suite(path)
    assert [good(item).request.execution.attempts.k for item in suite.requests] == [1, 1]
    assert (suite.options.task_concurrency, suite.options.deadline_seconds) == (16, 3600.0)
    assert suite.options.cleanup_grace_seconds == 9.0
    assert good(suite.requests[0]).request.execution.task_concurrency == 16
    again = resolve(tmp_path).read_suite(path).options
    assert (again.task_concurrency, again.provenance["task_concurrency"]) == (4, "s.agentcompass.yaml:3")
    assert resolve(tmp_path).options.task_concurrency == 2


@pytest.mark.parametrize("word", ["benchmark=bench", "name=x"])
def test_words_that_a_suite_excludes(tmp_path: Path, write: Write, word: str) -> None:
    """A suite names its own requests and benchmarks."""
    path = write("s.agentcompass.yaml", SUITE)
    with pytest.raises(ConfigError, match=r"cannot be given together with the suite"):
        resolve(tmp_path, word, "harness=agent").load_suite(path)


@pytest.mark.parametrize(
    ("request_text", "name", "message"),
    [
        (
            "{name: x, benchmark: bnch}",
            "x",
            "s.agentcompass.yaml:6: benchmark 'bnch' is not known; did you mean 'bench'?",
        ),
        ("{name: x, benchmrk: bench}", "x", "s.agentcompass.yaml:6: unknown key 'benchmrk' of request 'x'"),
        (
            "{name: x, benchmark: {id: bench, pth: y}}",
            "x",
            "s.agentcompass.yaml:6: unknown key 'pth' of benchmark 'bench'",
        ),
        ("{name: x}", "x", "s.agentcompass.yaml:6: which benchmark?"),
        ("{benchmark: bench}", "request 2", "s.agentcompass.yaml:6: request 2 has no name"),
        ("{name: ~, benchmark: bench}", "request 2", "name must be a text"),
        ("{name: ' ', benchmark: bench}", "request 2", "name must be a readable text"),
        ("text", "request 2", "s.agentcompass.yaml:6: a request must be a mapping"),
        ("{name: x, benchmark: bench, concurrency: 3}", "x", "'concurrency' belongs to the whole run"),
        ("{name: x, benchmark: bench, deadline: 3}", "x", "'deadline' belongs to the whole run"),
        (
            "{name: x, benchmark: bench, execution: {task_concurrency: 3}}",
            "x",
            "'task_concurrency' belongs to the whole run",
        ),
        (
            "{name: x, benchmark: bench, attempts: 2, execution: {attempts: {k: 3}}}",
            "x",
            "is given twice in request 'x'",
        ),
        ("{name: x, benchmark: bench, runtime: {results_dir: x}}", "x", "runtime.results_dir: unknown key"),
        ("{name: x, benchmark: bench, execution: 3}", "x", "execution must be a mapping of keys to values"),
        ("{name: x, benchmark: [bench]}", "x", "benchmark.id must be a text"),
        ("{name: x, benchmark: free}", "x", "makes its own runs"),
        ("{name: x, benchmark: bench, api_key: '${NOT_SET}'}", "x", "model.api_key: the environment variable NOT_SET"),
    ],
)
def test_a_bad_request_leaves_the_others(
    tmp_path: Path, write: Write, request_text: str, name: str, message: str
) -> None:
    """A request that cannot be used is a problem of its own, with file and line; the others still come."""
    text = "version: 1\ndefaults: {harness: agent}\n\nrequests:\n  - {name: a, benchmark: bench}\n"
    text += f"  - {request_text}\n  - {{name: z, benchmark: bench}}\n"
    first, problem, last = resolve(tmp_path).load_suite(write("s.agentcompass.yaml", text))
    assert (good(first).name, good(last).name) == ("a", "z")
    assert isinstance(problem, SuiteProblem)
    assert problem.name == name
    assert message in problem.message
    assert problem.message.startswith("s.agentcompass.yaml:6: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("requests: []", "s.agentcompass.yaml:1: a suite needs `version: 1`"),
        ("version: 2", "s.agentcompass.yaml:1: version must be 1, not 2"),
        ("version: true", "version must be 1, not True"),
        ("version: '1'", "version must be 1, not '1'"),
        ("version: 1", "a suite needs `requests:` (or `tasks:` of its own)"),
        ("version: 1\nrequests: x", "requests must be a list of requests that each have a name"),
        ("version: 1\nrequest: []", "yaml:2: unknown key 'request' of a suite; did you mean 'requests'?"),
        ("version: 1\nrecipe_dirs: [x]", "unknown key 'recipe_dirs'"),
        ("version: 1\nname: ~\nrequests: [{}]", "name must be a text"),
        ("version: 1\ntask_concurrency: many\nrequests: [{}]", "task_concurrency must be a whole number, not many"),
        ("version: 1\ntask_concurrency: -1\nrequests: [{}]", "task_concurrency must be 0 or more"),
        ("version: 1\nruntime: {reuse: true}\nrequests: [{}]", "unknown key 'reuse' of section 'runtime'"),
        ("version: 1\ndefaults: {name: x}\nrequests: [{}]", "unknown key 'name' of defaults"),
        ("version: 1\ngates: [~]\nrequests: [{name: a}]", "a gate must be an expression or a mapping"),
        ("version: 1\nrequests:\n- {name: a}\n- {name: a}", "yaml:4: request name 'a' is used twice (first on line 3)"),
        ("version: 1\nversion: 1", "s.agentcompass.yaml:2:1: key 'version' is given twice"),
        ("version: 1\nrequests: [", "s.agentcompass.yaml:3:1: broken YAML"),
        ("- a", "s.agentcompass.yaml:1: the file's top level must be a mapping"),
    ],
)  # fmt: skip
def test_broken_suites(tmp_path: Path, write: Write, content: str, message: str) -> None:
    """A suite that is broken as a whole is one error with file and line."""
    with pytest.raises(ConfigError) as caught:
        resolve(tmp_path).load_suite(write("s.agentcompass.yaml", content))
    assert message in str(caught.value)


def test_mapping_of_requests(tmp_path: Path, write: Write) -> None:
    """Requests may also be a mapping from name to request, in order."""
    text = "version: 1\ndefaults: {harness: agent}\nrequests:\n  b: {benchmark: bench}\n  a: {benchmark: bench}\n"
    assert [item.name for item in resolve(tmp_path).load_suite(write("s.agentcompass.yaml", text))] == ["b", "a"]


def test_inline_tasks(tmp_path: Path, write: Write) -> None:
    """A suite with `tasks:` of its own is one request for the benchmark `tasks` that reads this file."""
    path = write("mine.agentcompass.yaml", "version: 1\ntasks:\n  - {id: 007, whatever: no}\n")
    (problem,) = resolve(tmp_path).load_suite(path)
    assert isinstance(problem, SuiteProblem)
    assert "which harness?" in problem.message
    (item,) = resolve(tmp_path, "harness=agent").load_suite(path)
    request = good(item).request
    assert (request.name, request.benchmark.id, request.benchmark.params) == ("mine", "tasks", {"path": str(path)})
    write("mine.agentcompass.yaml", "version: 1\nname: n\ndefaults: {harness: agent}\ntasks: []\nrequests:\n"
          "  - {name: own, benchmark: tasks, limit: 1}\n  - {name: other, benchmark: bench}\n")  # fmt: skip
    own, other = (good(entry).request for entry in resolve(tmp_path).load_suite(path))
    assert own.benchmark.params == {"path": str(path)}
    assert (other.benchmark.id, other.benchmark.params) == ("bench", {})
