"""Rules of compose files: one plain service becomes hints, more becomes a derived file that shares nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.benchmarks.terminal_bench.compose import ComposeFile, read_compose, seconds, service_hints
from pytest_agentcompass.benchmarks.terminal_bench.fields import megabytes
from pytest_agentcompass.benchmarks.terminal_bench.templates import expand, interpolate
from pytest_agentcompass.errors import TaskLoadError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def compose(folder: Path, text: str, environ: dict[str, str] | None = None) -> ComposeFile:
    """Write and read a compose file."""
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text("FROM x\n")
    (folder / "docker-compose.yaml").write_text(text)
    return read_compose(folder / "docker-compose.yaml", environ or {})


def hints(folder: Path, text: str, base: dict[str, Any] | None = None, **environ: str) -> dict[str, Any]:
    """Return the hints of a compose file."""
    file = compose(folder / "task", text, environ)
    return service_hints(file, "main" if base else "client", base or {}, build_timeout=5.0, content="c0ffee" * 10)


def derived(found: dict[str, Any]) -> dict[str, Any]:
    """Return the derived compose file."""
    data = json.loads(Path(found["compose"]["file"]).read_text())
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize(
    "build", [".", "{context: .}", "{dockerfile: Dockerfile}", "\n      context: .\n      dockerfile: Dockerfile"]
)
def test_forms_of_build(build: str, tmp_path: Path) -> None:
    """A build may be a path or a table, with the task folder as the default context."""
    found = hints(tmp_path, f"services:\n  client:\n    build: {build}\n")
    assert found["build"] == {"context": str(tmp_path / "task"), "dockerfile": "Dockerfile", "timeout_seconds": 5.0}


def test_fields_of_a_service(tmp_path: Path) -> None:
    """Everything that a plain container can have is taken over."""
    text = """
services:
  bench:
    image: org/x:${TAG:-1}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: sh -c "sleep infinity"
    environment: ["TEST_DIR=${T_BENCH_TEST_DIR}", "A=x = y", "N=04", "P=$$HOME"]
    working_dir: /w
    user: "1000:1000"
    hostname: h
    platform: linux/amd64
    extra_hosts: ["a:1.2.3.4"]
    tmpfs: /t
    shm_size: 64m
    ports: ["80:80"]
    deploy: {resources: {limits: {cpus: '1.5', memory: 2G}}}
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ./data:/data:ro
      - cache:/cache
    healthcheck: {test: [CMD, curl, "a b"], interval: 1m30s, retries: 4}
volumes: {cache: {}}
"""
    file = compose(tmp_path / "task", text)
    found = service_hints(file, "client", {}, build_timeout=5.0, content="c")
    assert found == {
        "image": "org/x:1",
        "command": ["sh", "-c", "sleep infinity"],
        "env_variables": {"TEST_DIR": "/tests", "A": "x = y", "N": "04", "P": "$HOME"},
        "workdir": "/w",
        "user": "1000:1000",
        "hostname": "h",
        "platform": "linux/amd64",
        "extra_hosts": {"a": "1.2.3.4"},
        "tmpfs": ["/t"],
        "shm_size_mb": 64,
        "mounts": [{"source": str(tmp_path / "task" / "data"), "target": "/data", "read_only": True}],
        "resources": {"cpus": 1.5, "memory_mb": 2048},
        "healthcheck": {"command": "curl 'a b'", "interval": 90.0, "retries": 4},
    }
    assert file.log_dirs == ["/logs"]


def test_environment_as_a_map_keeps_text(tmp_path: Path) -> None:
    """Values that YAML would convert stay as they are written."""
    text = "services:\n  client:\n    image: x\n    environment: {A: 04, B: no, C: 1.10, D: 12:30, E: 'x'}\n"
    assert hints(tmp_path, text)["env_variables"] == {"A": "04", "B": "no", "C": "1.10", "D": "12:30", "E": "x"}


def test_host_variables_and_missing_ones(tmp_path: Path) -> None:
    """Host variables are put in; one that is not set is empty and noted."""
    file = compose(tmp_path / "task", "services:\n  client: {image: 'x${A}${AGENTCOMPASS_NONE}'}\n", {"A": "1"})
    assert service_hints(file, "client", {}, build_timeout=1.0, content="c") == {"image": "x1"}
    assert "AGENTCOMPASS_NONE" in file.notes[0]


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("deploy: 3", "deploy"),
        ("deploy: {resources: x}", "deploy.resources"),
        ("volumes: {a: b}", "volumes"),
        ("healthcheck: often", "healthcheck"),
        ("healthcheck: {test: x, retries: many}", "healthcheck.retries"),
        ("tmpfs: {a: b}", "tmpfs"),
        ("command: {a: b}", "command"),
        ("environment: 3", "environment"),
        ("build: [a]", "build"),
        ("cpus: many", "cpus"),
    ],
)
def test_wrong_shapes(field: str, key: str, tmp_path: Path) -> None:
    """A field of the wrong shape is an error that names file and key."""
    with pytest.raises(TaskLoadError, match=rf"docker-compose\.yaml: services\.client\.?.*{key}"):
        hints(tmp_path, f"services:\n  client:\n    image: x\n    {field}\n")


def test_no_network(tmp_path: Path) -> None:
    """`network_mode: none` is the policy no-network in every phase."""
    found = hints(tmp_path, "services:\n  client: {image: x, network_mode: none}\n")
    assert found["run_network_policy"] == found["evaluation_network_policy"] == "no-network"


@pytest.mark.parametrize(
    "extra",
    [
        "privileged: true",
        "cap_add: [NET_ADMIN]",
        "entrypoint: [x]",
        "networks: [a]",
        "network_mode: host",
        "env_file: e",
    ],
)
def test_what_needs_compose(extra: str, tmp_path: Path) -> None:
    """Features that the plain path lacks go through compose."""
    assert "compose" in hints(tmp_path, f"services:\n  client:\n    image: x\n    {extra}\n")


TWO = """
services:
  client:
    build: {context: .}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    environment: {A: "$$x"}
    volumes: ["./:/app", "${T_BENCH_TASK_LOGS_PATH}:/logs"]
    depends_on: {db: {condition: service_healthy}}
  db:
    image: postgres
    container_name: fixed
    volumes: ["./init:/init", "data:/data"]
volumes: {data: {}}
networks: {default: {internal: true}}
"""


def test_derived_file(tmp_path: Path) -> None:
    """A derived file has no fixed names, absolute paths, no writable mount of the task, and types again."""
    file = compose(tmp_path / "task", TWO)
    data = derived(found := service_hints(file, "client", {}, build_timeout=5.0, content="c0ffee" * 10))
    client, other = data["services"]["client"], data["services"]["db"]
    assert found["compose"]["service"] == "client"
    assert "container_name" not in client
    assert "container_name" not in other
    assert client["build"]["context"] == str(tmp_path / "task")
    assert client["image"].startswith("agentcompass/compose-c0ffee")
    assert client["environment"] == {"A": "$$x"}
    assert "volumes" not in client
    assert file.uploads == [[str(tmp_path / "task"), "/app"]]
    assert [item["read_only"] for item in other["volumes"] if item["type"] == "bind"] == [True]
    assert data["networks"]["default"]["internal"] is True


def test_derived_file_is_content_addressed(tmp_path: Path) -> None:
    """The same compose file gives the same derived file; elsewhere it has the same name in another folder."""
    first, again = (Path(hints(tmp_path, TWO)["compose"]["file"]) for _ in range(2))
    (tmp_path / "moved").mkdir()
    moved = Path(hints(tmp_path / "moved", TWO)["compose"]["file"])
    assert first == again
    assert (moved.name, moved.parent == first.parent) == (first.name, False)


def test_implied_main(tmp_path: Path) -> None:
    """In TB2 the service `main` is implied, and merged with what the task says of it."""
    base = {"build": {"context": ".", "dockerfile": "Dockerfile"}}
    only_side = derived(hints(tmp_path, "services:\n  side: {image: y}\n", base))
    assert sorted(only_side["services"]) == ["main", "side"]
    assert only_side["services"]["main"]["command"] == ["sh", "-c", "sleep infinity"]
    merged = hints(tmp_path, "services:\n  main:\n    environment: {A: b}\n", base)
    assert merged["env_variables"] == {"A": "b"}
    assert merged["build"]["dockerfile"] == "Dockerfile"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A", "1"),
        ("${A}", "1"),
        ("${B:-2}", "2"),
        ("${E:-2}", "2"),
        ("${E-2}", ""),
        ("${A:+3}", "3"),
        ("${B:+3}", ""),
        ("$$A", "$A"),
        ("$1", "$1"),
    ],
)
def test_interpolation(text: str, value: str) -> None:
    """Variables follow compose's rules."""
    assert interpolate(text, {"A": "1", "E": ""}, set()) == value


def test_required_variable() -> None:
    """`${X:?why}` says why."""
    with pytest.raises(TaskLoadError, match="why"):
        interpolate("${X:?why}", {}, set())


def test_expand() -> None:
    """An unset host variable without a default is an error; an empty one takes the default."""
    assert expand("${A:-x} ${B}", {"A": "", "B": ""}, "k") == "x "
    with pytest.raises(TaskLoadError, match="C is not set"):
        expand("${C}", {}, "k")


@pytest.mark.parametrize(
    ("text", "size"), [("4G", 4096), ("512m", 512), ("1073741824", 1024), ("1.5g", 1536), ("2 GiB", 2048), ("x", None)]
)
def test_sizes(text: str, size: int | None) -> None:
    """Sizes are read in MiB."""
    assert megabytes(text) == size


@pytest.mark.parametrize(("text", "value"), [("5", 5.0), ("1m30s", 90.0), ("500ms", 0.5), ("1h", 3600.0)])
def test_durations(text: str, value: float) -> None:
    """Durations are read in seconds."""
    assert seconds(text) == value
