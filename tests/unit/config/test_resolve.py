"""Layers, precedence, provenance, variables and refusals of the resolved configuration."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
from config_fakes import resolve

from pytest_agentcompass.components.yaml_file import Map, load_yaml_text, typed
from pytest_agentcompass.config.layers import merge
from pytest_agentcompass.config.resolve import ResolvedRequest, RunConfig, default_user_config
from pytest_agentcompass.config.show import show_config
from pytest_agentcompass.errors import ConfigError
from pytest_agentcompass.redaction import MASK, known_secrets

Write = Callable[[str, str], Path]
BASE = ("benchmark=bench", "harness=agent")


def own(config: RunConfig) -> ResolvedRequest:
    """Return the command line's request, which must exist."""
    assert config.request is not None
    return config.request


def test_merge_is_recursive_and_changes_neither_input() -> None:
    """Mappings merge, scalars and lists replace, and the result shares no mapping with its inputs."""
    low = load_yaml_text("a: {x: 1, y: [1, 2]}\nb: 1\nd: {e: {f: 1}}", "low")
    high = load_yaml_text("a: {y: [3], z: 2}\nb: {c: 1}", "high")
    before = copy.deepcopy((typed(low), typed(high)))
    merged = merge(low, high)
    assert typed(merged) == {"a": {"x": 1, "y": [3], "z": 2}, "b": {"c": 1}, "d": {"e": {"f": 1}}}
    merged["d"]["e"]["f"] = merged["a"]["new"] = merged["b"]["new"] = Map()
    assert (typed(low), typed(high)) == before


def test_command_line_request(tmp_path: Path) -> None:
    """`benchmark=` makes a request named by it (or by `name=`), each value with its origin."""
    request = own(resolve(tmp_path, *BASE, "benchmark.version=1.10", "sample_ids=[007, no]", "attempts=3", "model=m"))
    assert request.name == "bench"
    assert request.request.benchmark.params == {"version": "1.10"}
    assert request.request.benchmark.sample_ids == ("007", "no")
    assert request.request.execution.attempts.k == 3
    assert request.request.model.id == "m"
    assert request.provenance["execution.attempts.k"] == "command line"
    assert own(resolve(tmp_path, *BASE, "name=nightly")).name == "nightly"
    assert resolve(tmp_path, "limit=3").request is None
    assert resolve(tmp_path).request is None


def test_environment_defaults_to_the_benchmarks(tmp_path: Path) -> None:
    """Without `environment=` the benchmark's default is taken, and the origin says so."""
    request = own(resolve(tmp_path, *BASE))
    assert request.request.environment.id == "box"
    assert request.provenance["environment.id"] == "default of benchmark 'bench'"
    assert own(resolve(tmp_path, *BASE, "environment=crate")).request.environment.id == "crate"


def test_files_from_low_to_high(tmp_path: Path, write: Write) -> None:
    """User file, project file above rootdir, named files in order, then the command line."""
    user = write("home/config.yaml", "harnesses: {agent: {mode: user, steps: 1}}\nexecution: {max_retries: 1}")
    write("agentcompass.yaml", "harnesses: {agent: {mode: project}}\nexecution: {max_retries: 2, pass_threshold: 0.5}")
    first = write("one.yaml", "execution: {max_retries: 3, attempts: {k: 2}}")
    second = write("two.yaml", "execution: {max_retries: 4}")
    root = tmp_path / "sub" / "dir"
    root.mkdir(parents=True)
    request = own(resolve(root, *BASE, "attempts=5", user_config=user, config_files=[first, second]))
    assert request.request.harness.params == {"mode": "project", "steps": 1}
    execution = request.request.execution
    assert (execution.max_retries, execution.pass_threshold, execution.attempts.k) == (4, 0.5, 5)
    assert request.provenance["execution.max_retries"].endswith("two.yaml:1")
    assert request.request.metadata.config_paths == tuple(
        str(path) for path in (user, tmp_path / "agentcompass.yaml", first, second)
    )


def test_nearest_project_file_alone_is_read(tmp_path: Path, write: Write) -> None:
    """Only the nearest `agentcompass.yaml` upward counts."""
    write("agentcompass.yaml", "execution: {max_retries: 1, attempts: {k: 9}}")
    write("a/agentcompass.yaml", "execution: {max_retries: 2}")
    execution = own(resolve(tmp_path / "a", *BASE)).request.execution
    assert (execution.max_retries, execution.attempts.k) == (2, 1)


def test_config_entry_of_another_component_is_not_used(tmp_path: Path, write: Write) -> None:
    """Params come from the entry of the chosen component alone, its common fields included."""
    write(
        "agentcompass.yaml",
        "benchmarks: {bench: {limit: 7, count: 2}, needy: {path: x}}\nenvironments: {box: {user: me}}",
    )
    request = own(resolve(tmp_path, *BASE, "benchmark.count=3")).request
    assert (request.benchmark.limit, request.benchmark.params) == (7, {"count": 3})
    assert request.environment.user == "me"
    assert own(resolve(tmp_path, *BASE, "environment=crate")).request.environment.user is None


def test_options(tmp_path: Path, write: Write) -> None:
    """Process options: built in, config `runtime`, command line; a relative folder stands beside its file."""
    write("conf/agentcompass.yaml", "runtime: {results_dir: out, deadline_seconds: 60, provider_limits: {crate: 2}}")
    config = resolve(tmp_path / "conf", "runtime.deadline_seconds=90", "runtime.provider_limits.box=1", "concurrency=8")
    options = config.options
    assert options.results_dir == tmp_path / "conf" / "out"
    assert (options.deadline_seconds, options.cleanup_grace_seconds) == (90.0, 30.0)
    assert options.provider_limits == {"crate": 2, "box": 1}
    assert options.task_concurrency == 8
    assert options.provenance["deadline_seconds"] == "command line"
    assert resolve(tmp_path).options.results_dir == tmp_path / "agentcompass-results"
    assert resolve(tmp_path, "deadline=5").options.deadline_seconds == 5


def test_reuse_belongs_to_the_request(tmp_path: Path) -> None:
    """`runtime.reuse` goes into the request, the rest of `runtime` into the options."""
    config = resolve(tmp_path, *BASE, "runtime.reuse=true", "runtime.reuse_run_id=r1", "runtime.log_level=debug")
    assert own(config).request.runtime.reuse_run_id == "r1"
    assert config.options.log_level == "debug"


def test_paths_are_relative_to_where_they_are_written(tmp_path: Path, write: Write) -> None:
    """Local paths of a config file are relative to it, those of the command line to the working directory."""
    conf = write("conf/c.yaml", "benchmarks: {bench: {path: data, options: {x_file: f, name: n, url_path: s3://b/k}}}")
    params = own(resolve(tmp_path, *BASE, config_files=[conf])).request.benchmark.params
    assert params["path"] == str(tmp_path / "conf" / "data")
    assert params["options"] == {"x_file": str(tmp_path / "conf" / "f"), "name": "n", "url_path": "s3://b/k"}
    words = (
        *BASE,
        "benchmark.path=d",
        "environment.build={context: here}",
        "environment.mounts=[{source: m, target: /m}]",
    )
    request = own(resolve(tmp_path, *words, config_files=[conf])).request
    assert request.benchmark.params["path"] == str(tmp_path / "d")
    assert request.environment.build is not None
    assert request.environment.build.context == str(tmp_path / "here")
    assert request.environment.mounts[0].source == str(tmp_path / "m")
    home = own(resolve(tmp_path, *BASE, "benchmark.path=~/d", environ={"HOME": "/home/me"})).request
    assert home.benchmark.params["path"] == "/home/me/d"


def test_variables(tmp_path: Path) -> None:
    """`${NAME}` is resolved as a whole value, typed by its field; `:-` gives a default, `$${` is literal."""
    words = (*BASE, "attempts=${K}", "benchmark.version=${V}", "harness.mode=${NONE:-fast}", "model=${EMPTY:-m}")
    request = own(resolve(tmp_path, *words, environ={"K": "3", "V": "1.10", "EMPTY": ""})).request
    assert request.execution.attempts.k == 3
    assert request.benchmark.params["version"] == "1.10"
    assert request.harness.params["mode"] == "fast"
    assert request.model.id == "m"
    setup = own(resolve(tmp_path, *BASE, "environment.setup=['echo $${X}']")).request.environment.setup
    assert setup == ("echo ${X}",)


@pytest.mark.parametrize("value", ["x${V}", "${V}/x", "${V}${V}", "${V", "${1A}", "${V:?no}"])
def test_variables_inside_longer_texts_are_refused(tmp_path: Path, value: str) -> None:
    """A variable that is not the whole value is an error that names the key."""
    with pytest.raises(ConfigError, match=r"benchmark\.params\.version: .* must be the whole value"):
        resolve(tmp_path, *BASE, f"benchmark.version={value}", environ={"V": "v"})


def test_unset_variable_names_variable_key_and_place(tmp_path: Path, write: Write) -> None:
    """An unset variable is an error only where its value would be used."""
    write("agentcompass.yaml", "\nharnesses:\n  agent:\n    mode: ${NOT_SET}\n  other: {x: '${NOT_SET}'}")
    with pytest.raises(ConfigError) as caught:
        resolve(tmp_path, *BASE)
    assert "agentcompass.yaml:4: harness.params.mode: the environment variable NOT_SET is not set" in str(caught.value)
    assert own(resolve(tmp_path, *BASE, "harness.mode=x")).request.harness.params == {"mode": "x"}


def test_secrets_are_masked_everywhere(tmp_path: Path) -> None:
    """The resolved key is a secret: known to the scrub, absent from repr, dump and show-config."""
    words = (*BASE, "model=m", "api_key=${MY_KEY}", "environment.env_variables.DB_PASSWORD=hunter2222")
    request = own(resolve(tmp_path, *words, environ={"MY_KEY": "sk-resolve-secret"}))
    assert {"sk-resolve-secret", "hunter2222"} <= known_secrets()
    assert request.request.model.api_key is not None
    assert request.request.model.api_key.get_secret_value() == "sk-resolve-secret"
    shown = show_config([request])
    for text in (shown, repr(request), request.request.model_dump_json()):
        assert "sk-resolve-secret" not in text
    assert "hunter2222" not in shown
    assert ["model.api_key", MASK, "command", "line"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("benchmark=bnch",), "command line: benchmark 'bnch' is not known; did you mean 'bench'?"),
        (("benchmark=bench",), "which harness? benchmark 'bench' needs one: harness=ID; known: agent, other, talker"),
        (("benchmark=bench", "harness=none"), "which harness?"),
        (("benchmark=free", "harness=agent"), "benchmark 'free' makes its own runs: leave the harness out"),
        (("benchmark=bench", "harness=agnt"), "harness 'agnt' is not known; did you mean 'agent'?"),
        ((*BASE, "environment=bx"), "environment 'bx' is not known; did you mean 'box'?"),
        (("benchmark=bench", "harness=talker"), "which model? harness 'talker' needs one: model=ID"),
        (("benchmark=needy", "harness=agent"), "command line: benchmark.path: is required and not set"),
        ((*BASE, "benchmark.pth=x"), "unknown key 'pth' of benchmark 'bench'; did you mean 'path'?"),
        ((*BASE, "benchmark.limt=x"), "unknown key 'limt' of benchmark 'bench'; did you mean 'limit'?"),
        ((*BASE, "harness.mod=x"), "unknown key 'mod' of harness 'agent'; did you mean 'mode'?"),
        ((*BASE, "model.temperature=0"), "(what is sent with every call: model.params.temperature)"),
        (("benchmark=loose", "harness=other", "benchmark.limt=1"), "did you mean 'limit'?"),
        ((*BASE, "benchmark.count=x"), "command line: benchmark.count must be a whole number, not x"),
        ((*BASE, "execution.attempt.k=2"), "execution.attempt: unknown key 'attempt'; did you mean 'attempts'?"),
        ((*BASE, "environment.resources.cpu=2"), "unknown key 'cpu'; did you mean 'cpus'?"),
        ((*BASE, "strategy=pas"), "execution.attempts.strategy: 'pas' is not known; did you mean 'pass'?"),
        ((*BASE, "timeout=12:30"), "must be a plain number such as 750 or 12.5, not 12:30"),
        ((*BASE, "name= "), "name= must be a readable text"),
        (("runtime.results=x",), "unknown key 'results' of runtime; did you mean 'results_dir'?"),
        (
            ("runtime.open_rates.bx=1",),
            "unknown key 'bx' of runtime.open_rates (no such environment); did you mean 'box'?",
        ),
        (("concurrency=-1",), "task_concurrency must be 0 or more, not -1"),
        (("concurrency=many",), "task_concurrency must be a whole number, not many"),
        (("budget.usd=",), "command line: runtime.budget.usd is empty; write a number, or null for none"),
        (("deadline=",), "runtime.deadline_seconds is empty; write a number, or null for none"),
        ((*BASE, "limit="), "benchmark.limit is empty; write a number, or null for none"),
        ((*BASE, "attempts="), "execution.attempts.k is empty; write a number"),
        ((*BASE, "keep_environment="), "execution.keep_environment is empty; write true or false"),
        (("budget.usd=0",), "runtime.budget.usd: must be greater than 0, not 0"),
        (("budget.tokens=-5",), "runtime.budget.tokens: must be greater than 0, not -5"),
        (("budget.tokens=1k",), "runtime.budget.tokens must be a whole number, not 1k"),
        (("budget.wall_seconds=10min",), "must be a plain number such as 750 or 12.5, not 10min"),
        (("budget.usd=inf",), "must be a plain number such as 750 or 12.5, not inf"),
        (("runtime.progress=loud",), "runtime.progress: must be 'auto', 'on' or 'off', not 'loud'"),
    ],
)
def test_refused_settings(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """A setting that cannot be used is refused with its key, the value and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        resolve(tmp_path, *words)
    assert message in str(caught.value)


def test_null_takes_a_limit_away(tmp_path: Path) -> None:
    """An empty word is refused, since it may come from a variable that is not set; `null` says it on purpose."""
    assert resolve(tmp_path, "budget.usd=null", "deadline=~").options.budget.usd is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("models: {m: {}}", "agentcompass.yaml:1: 'models' cannot stand in a config file: the model is always given"),
        ("model: m", "'model' cannot stand in a config file"),
        ("benchmark: {}", "agentcompass.yaml:1: unknown key 'benchmark' of a config file; did you mean 'benchmarks'?"),
        ("\nbenchmarks: {bnch: {}}", "agentcompass.yaml:2: unknown key 'bnch' of benchmarks (no such benchmark)"),
        ("benchmarks: {bench: {id: x}}", "benchmarks.bench cannot set its own id"),
        ("execution:\n  retries: 3", "agentcompass.yaml:2: unknown key 'retries' of section 'execution'"),
        ("runtime:\n  result_dir: 3", "agentcompass.yaml:2: unknown key 'result_dir' of section 'runtime'"),
        ("execution: 3", "agentcompass.yaml:1: 'execution' must be a mapping of keys to values"),
        ("plugins: a", "agentcompass.yaml:1: 'plugins' must be a list, as in plugins: [a, b]"),
        ("plugins: [no_such_module_zzz]", "plugins: module 'no_such_module_zzz' cannot be imported"),
        ("execution: {max_retries: 1, max_retries: 2}", "key 'max_retries' is given twice"),
    ],
)
def test_refused_config_files(tmp_path: Path, write: Write, content: str, message: str) -> None:
    """A config file is refused with file, line, key and the nearest known ones."""
    write("agentcompass.yaml", content)
    with pytest.raises(ConfigError) as caught:
        resolve(tmp_path, *BASE)
    assert message in str(caught.value)


def test_missing_config_file(tmp_path: Path) -> None:
    """A file named on the command line must exist; the user's own need not."""
    with pytest.raises(ConfigError, match=r"nope\.yaml: cannot be read"):
        resolve(tmp_path, config_files=[tmp_path / "nope.yaml"])
    assert resolve(tmp_path, user_config=tmp_path / "nope.yaml").config_paths == ()
    assert default_user_config().name == "config.yaml"


def test_extensions(tmp_path: Path, write: Write) -> None:
    """Recipe folders are relative to their file and replaced as a list."""
    write("agentcompass.yaml", "recipe_dirs: [r, /abs]\nplugins: [json]")
    config = resolve(tmp_path)
    assert config.recipe_dirs == (tmp_path / "r", Path("/abs"))
    assert config.plugins == ("json",)
    assert resolve(tmp_path, "recipe_dirs=mine").recipe_dirs == (tmp_path / "mine",)


def test_values_of_a_script_or_marker(tmp_path: Path) -> None:
    """Plain Python values make a request too; the command line lies on top."""
    config = resolve(tmp_path, "attempts=2")
    request = config.resolve(
        {
            "benchmark": {"id": "bench", "version": "1.10", "count": 3},
            "harness": "agent",
            "attempts": 7,
            "sample_ids": ["1"],
        },
        name="marked",
        source="test_x.py::test",
    )
    assert request.request.benchmark.params == {"version": "1.10", "count": 3}
    assert request.request.benchmark.sample_ids == ("1",)
    assert request.request.execution.attempts.k == 2
    assert request.provenance["benchmark.params.version"] == "test_x.py::test"
    with pytest.raises(ConfigError, match="did you mean 'benchmark'"):
        config.resolve({"benchmrk": "bench"}, name="n", source="s")


def test_show_config_tells_origins(tmp_path: Path, write: Write) -> None:
    """Each line shows key, value and origin, defaults included."""
    write("agentcompass.yaml", "harnesses: {agent: {mode: fast}}")
    config = resolve(tmp_path, *BASE, "attempts=2")
    lines = [line.split() for line in show_config([own(config)], config.options).splitlines()]
    assert ["harness.params.mode", "fast", "agentcompass.yaml:1"] in lines
    assert ["execution.attempts.k", "2", "command", "line"] in lines
    assert ["environment.id", "box", "default", "of", "benchmark", "'bench'"] in lines
    assert ["execution.max_retries", "0", "built-in", "default"] in lines
    plain = show_config([own(resolve(tmp_path, *BASE))])
    assert next(line for line in plain.splitlines() if line.startswith("  execution.attempts.k ")).endswith(
        "built-in default"
    )
