"""The Docker environment's decisions that need no engine: processes, output, compose files, owners, settings."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
from docker.errors import APIError
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.components.context import AttemptContext, set_current_attempt
from pytest_agentcompass.components.owner import process_start_time
from pytest_agentcompass.contracts.environment import EnvironmentSpec, Resources
from pytest_agentcompass.environments.docker.base import final_base
from pytest_agentcompass.environments.docker.compose_file import rewrite
from pytest_agentcompass.environments.docker.engine import with_retries
from pytest_agentcompass.environments.docker.exec import finish, new_marker
from pytest_agentcompass.environments.docker.images import Once
from pytest_agentcompass.environments.docker.memory import parse_count
from pytest_agentcompass.environments.docker.owner import is_left_over, labels, owner_is_dead
from pytest_agentcompass.environments.docker.processes import Baseline, Process, leftovers, parse, tree
from pytest_agentcompass.environments.docker.scripts import SNAPSHOT
from pytest_agentcompass.environments.docker.settings import DockerParams, split_secrets
from pytest_agentcompass.environments.docker.stream import Capped
from pytest_agentcompass.errors import SandboxError
from pytest_agentcompass.redaction import add_secret

OPEN = "0" * 12
SETUP = OPEN + "a" * 12
AGENT, OTHER = "1" * 24, "2" * 24


def _process(pid: int, parent: int, **given: Any) -> Process:
    values = {"session": pid, "start": 1000, "uid": "0", "gid": "0", "readable": True, "marker": "", "listens": False}
    return Process(pid=pid, parent=parent, **{**values, "name": f"p{pid}", **given})


def _table(*processes: Process) -> dict[int, Process]:
    init = _process(1, 0, session=1, start=100, name="docker-init")
    return {process.pid: process for process in (init, *processes)}


# ---------------------------------------------------------------- processes


def test_snapshot_script_on_this_machine() -> None:
    """The script's output is parsed: this test's own process is seen, with a marker and a listening socket."""
    import socket

    marker = new_marker()
    with socket.create_server(("127.0.0.1", 0)):
        child = subprocess.Popen(["sleep", "30"], env={**os.environ, "AGENTCOMPASS_EXEC": marker})
        try:
            text = subprocess.run(["sh", "-c", SNAPSHOT], capture_output=True, text=True, check=True).stdout
        finally:
            child.kill()
            child.wait()
    found = parse(text)
    assert found[os.getpid()].listens
    assert (found[child.pid].marker, found[child.pid].parent) == (marker, os.getpid())
    assert not found[child.pid].listens
    assert found[child.pid].start >= int(process_start_time())


def test_parse_survives_odd_names() -> None:
    """Names with blanks, parentheses and line ends do not shift the fields; zombies are left out."""
    rest = " ".join(["0"] * 17)
    text = (
        "5\n"
        f"P 7 0 0 1 - 0 (a) (b)) S 1 7 7 {rest} \n\0\n"
        f"P 8 1000 1000 0 - 0 (new\nline) S 1 8 8 {rest} \n\0\n"
        f"P 9 0 0 1 - 0 (dead) Z 1 9 9 {rest} \n\0\n"
        "P broken\n\0"
    )
    found = parse(text)
    assert {pid: item.name for pid, item in found.items()} == {7: "a) (b)", 8: "new\nline"}


def test_tree_holds_children_orphans_and_sessions() -> None:
    """Children, marked orphans, members of a session, and unmarked orphans begun since belong to the command."""
    table = _table(
        _process(10, 0, marker=AGENT),
        _process(11, 10, session=10),
        _process(12, 1, marker=AGENT),
        _process(13, 1, session=10),
        _process(14, 1, start=1001, readable=False),
        _process(15, 14, start=1002, readable=False),
        _process(20, 1, marker=OTHER),
        _process(21, 1, start=500, readable=False),
        _process(22, 1, session=1, start=2000),
    )
    assert tree(table, AGENT, since=1000) == {10, 11, 12, 13, 14, 15}


def test_tree_never_holds_pid_1_or_another_commands_processes() -> None:
    """Neither the sandbox's first process nor what another command started is killed at a time limit."""
    table = _table(_process(10, 0, marker=AGENT), _process(20, 10, marker=OTHER), _process(30, 0, marker=OTHER))
    assert tree(table, AGENT, since=0) == {10}


def test_leftovers_are_what_the_sandbox_did_not_start() -> None:
    """What ran when it was opened stays with its descendants, setup's processes too; the agent's goes."""
    table = _table(
        _process(7, 1, session=1, start=101),
        _process(8, 7, session=1, start=9000),
        _process(9, 8, start=9001),
        _process(30, 1, marker=SETUP, start=150),
        _process(40, 1, marker=AGENT, start=300),
        _process(41, 40, session=40, start=301),
        _process(42, 1, start=302),
        _process(43, 1, start=303, readable=False),
        _process(44, 0, marker=AGENT, start=120),
    )
    kill, stay = leftovers(table, Baseline(150, OPEN), keep_services=True)
    assert kill == {40, 41, 42, 43, 44}
    assert stay == []


def test_services_stay_with_their_family() -> None:
    """A process that listens stays, with its parents up to the first of the agent's and its children."""
    table = _table(
        _process(40, 1, marker=AGENT, start=300),
        _process(41, 40, marker=AGENT, start=301, listens=True),
        _process(42, 41, marker=AGENT, start=302),
        _process(43, 40, marker=AGENT, start=303),
    )
    kill, stay = leftovers(table, Baseline(150, OPEN), keep_services=True)
    assert (kill, [item.pid for item in stay]) == ({43}, [40, 41, 42])
    assert leftovers(table, Baseline(150, OPEN), keep_services=False) == ({40, 41, 42, 43}, [])


def test_children_of_a_service_that_is_pid_1() -> None:
    """Without an init, what pid 1 itself starts later stays; orphans with a marker or no visible environment go."""
    service = _process(1, 0, session=1, start=100, name="cron")
    table = {
        1: service,
        50: _process(50, 1, start=400),
        51: _process(51, 50, start=401),
        52: _process(52, 1, start=402, marker=AGENT),
        53: _process(53, 1, start=403, readable=False),
    }
    kill, _ = leftovers(table, Baseline(150, OPEN), keep_services=False)
    assert kill == {52, 53}


# ---------------------------------------------------------------- output


@given(st.lists(st.binary(max_size=40)), st.integers(2, 50))
def test_capped_keeps_head_and_tail(pieces: list[bytes], limit: int) -> None:
    """Whatever the pieces, what is kept is the head and the tail, and the rest is counted."""
    capped, whole = Capped(limit), b"".join(pieces)
    for piece in pieces:
        capped.add(piece)
    assert capped.truncated == (len(whole) > limit)
    if len(whole) <= limit:
        assert capped.text() == whole.decode("utf-8", "replace")
    else:
        head, tail = whole[: limit // 2], whole[len(whole) - (limit - limit // 2) :]
        cut = f"\n[... {len(whole) - limit} bytes cut ...]\n"
        assert capped.text() == head.decode("utf-8", "replace") + cut + tail.decode("utf-8", "replace")


def test_markers_have_one_length() -> None:
    """The snapshot script cuts markers by their length, with or without the session's prefix."""
    assert {len(new_marker()), len(new_marker("abc")), len(new_marker("x" * 12))} == {24}
    assert new_marker() != new_marker()


def test_finish_raises_the_cancellation_only_afterwards() -> None:
    """What must not be left half done is finished although its caller was cancelled twice."""
    done = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.append(True)

    async def main() -> None:
        task = asyncio.ensure_future(finish(work()))
        for _ in range(2):
            await asyncio.sleep(0.01)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == [True]


def test_finish_passes_results_and_errors() -> None:
    """The awaited thing's own result or error comes through."""

    async def fail() -> None:
        raise SandboxError("no")

    assert asyncio.run(finish(asyncio.sleep(0, "yes"))) == "yes"
    with pytest.raises(SandboxError, match="no"):
        asyncio.run(finish(fail()))


def test_memory_counters_of_both_cgroup_versions() -> None:
    """The counter is found in either version's file, and is 0 where there is none."""
    assert parse_count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == 3
    assert parse_count("low 0\noom 4\noom_kill 2\noom_group_kill 0\n") == 2
    assert parse_count("oom_kill_disable 0\n") == 0


# ---------------------------------------------------------------- images, owners, settings


@pytest.mark.parametrize("lasting", [True, False])
def test_once_makes_each_value_once_and_keeps_lasting_failures(lasting: bool) -> None:
    """A value or a lasting failure is made once per key; another failure is tried again."""
    calls: list[str] = []

    def good() -> str:
        calls.append("good")
        return "value"

    def bad() -> str:
        calls.append("bad")
        raise SandboxError("broken", lasting=lasting)

    once = Once()
    assert [once.get("a", good) for _ in range(3)] == ["value"] * 3
    for _ in range(3):
        with pytest.raises(SandboxError, match="broken"):
            once.get("b", bad)
    assert calls == ["good"] + ["bad"] * (1 if lasting else 3)
    once.clear()
    assert once.get("a", good) == "value"
    assert calls[-1] == "good"


def test_server_errors_are_tried_again() -> None:
    """A server error of the engine is tried again after cleaning up, and counted; a refusal is not."""
    failing = [APIError("x", response=_response(500)), APIError("x", response=_response(503))]
    log: list[str] = []

    def create() -> str:
        log.append("create")
        if failing:
            raise failing.pop()
        return "id"

    assert with_retries(create, lambda: log.append("count"), lambda: log.append("clean")) == "id"
    assert log == ["create", "count", "clean", "create", "count", "clean", "create"]
    failing.append(APIError("x", response=_response(404)))
    with pytest.raises(APIError):
        with_retries(create, lambda: None, lambda: None)
    assert log[7:] == ["create"]


def _response(status: int) -> requests.Response:
    response = requests.Response()
    response.status_code = status
    return response


def test_owner_is_dead_only_when_sure(tmp_path: Path) -> None:
    """The living, other machines' and unmarked things are never taken for left over."""
    set_current_attempt(AttemptContext("r", "main", "t", 1, tmp_path, labels={"extra": "1"}))
    try:
        mine = labels()
        labels_of_kept = {"agentcompass.keep": labels(keep=True)["agentcompass.keep"]}
    finally:
        set_current_attempt(None)
    assert mine["extra"] == "1"
    assert not owner_is_dead(mine)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert owner_is_dead({**mine, "agentcompass.owner_pid": str(child.pid)})
    assert owner_is_dead({**mine, "agentcompass.owner_start": "1"})
    assert owner_is_dead({**mine, "agentcompass.boot_id": "an earlier boot"})
    assert not owner_is_dead({**mine, "agentcompass.host": "elsewhere", "agentcompass.boot_id": "x"})
    assert not owner_is_dead({})
    dead = {**mine, "agentcompass.owner_start": "1"}
    assert is_left_over(dead)
    assert not is_left_over({**dead, **labels_of_kept})
    assert is_left_over({**dead, **labels_of_kept}, kept=True)


def test_an_owner_that_nobody_waited_for_is_dead(tmp_path: Path) -> None:
    """A killed run whose parent has not read its exit status yet holds no sandbox any more."""
    set_current_attempt(AttemptContext("r", "main", "t", 1, tmp_path))
    try:
        mine = labels()
    finally:
        set_current_attempt(None)
    child = subprocess.Popen(["sleep", "60"])
    try:
        marks = {**mine, "agentcompass.owner_pid": str(child.pid)}
        marks["agentcompass.owner_start"] = process_start_time(child.pid)
        assert not owner_is_dead(marks)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert owner_is_dead(marks)
    finally:
        child.kill()
        child.wait()


def test_secrets_are_split_off() -> None:
    """Variables that hold a known secret are kept apart from those that may be seen."""
    add_secret("value-of-a-secret")
    seen, hidden = split_secrets({"A": "b", "K": "Bearer value-of-a-secret"})
    assert (seen, hidden) == ({"A": "b"}, {"K": "Bearer value-of-a-secret"})


# ---------------------------------------------------------------- compose files

_CONFIG: dict[str, Any] = {
    "name": "x",
    "services": {
        "client": {
            "build": {"context": "/t"},
            "image": "shared",
            "container_name": "fixed",
            "ports": [{"target": 80}],
            "networks": {"n": None},
            "deploy": {"resources": {"limits": {"cpus": 1, "memory": "5"}}},
            "volumes": [
                {"type": "bind", "source": "/t/data", "target": "/d"},
                {"type": "bind", "source": "/else", "target": "/e"},
                {"type": "volume", "source": "v", "target": "/v"},
            ],
        },
        "side": {"image": "shared", "labels": ["a=b"]},
    },
    "networks": {"n": {"name": "fixed"}, "out": {"external": True, "name": "out"}},
    "volumes": {"v": None},
}


def _made(tmp_path: Path) -> Any:
    return rewrite(_CONFIG, name="proj", labels={"ours": "1"}, private=lambda path: tmp_path / path.name)


def test_everything_is_labelled_and_renamed(tmp_path: Path) -> None:
    """Services, networks and volumes carry our labels and names of the attempt; external ones stay as they are."""
    before = json.dumps(_CONFIG)
    made = _made(tmp_path)
    assert made.data["name"] == "proj"
    assert made.services["side"]["labels"] == {"a": "b", "ours": "1"}
    assert made.data["networks"]["n"] == {"name": "proj_n", "labels": {"ours": "1"}}
    assert made.data["networks"]["default"] == {"name": "proj_default", "labels": {"ours": "1"}}
    assert made.data["networks"]["out"] == {"external": True, "name": "out"}
    assert made.data["volumes"]["v"] == {"name": "proj_v", "labels": {"ours": "1"}}
    client = made.services["client"]
    assert client["networks"] == {"n": {"aliases": ["fixed"]}}
    assert "container_name" not in client
    assert "ports" not in client
    assert len(made.notes) == 1
    assert json.dumps(_CONFIG) == before


def test_built_image_is_used_by_whoever_names_it(tmp_path: Path) -> None:
    """A service that names the image which another one builds gets the built one."""
    made = _made(tmp_path)
    made.set_image("client", "built:1")
    assert [service["image"] for service in made.services.values()] == ["built:1", "built:1"]
    assert "build" not in made.services["client"]


def test_mounts_of_the_task_folder_are_copied(tmp_path: Path) -> None:
    """Bind mounts inside of the task's folder get a private copy, others stay."""
    root = tmp_path / "t"
    (root / "data").mkdir(parents=True)
    config = json.loads(json.dumps(_CONFIG).replace("/t/data", str(root / "data")))
    made = rewrite(config, name="p", labels={}, private=lambda path: Path("/copy$") / path.name)
    assert made.copy_mounts(root) == ["/d"]
    assert [volume["source"] for volume in made.services["client"]["volumes"]] == ["/copy$$/data", "/else", "v"]


def test_names_of_services() -> None:
    """Services find each other by their own names, host names, container names and aliases."""
    services = {
        "client": {"container_name": "fixed", "hostname": "box"},
        "pages": {"networks": {"default": {"aliases": ["web"]}, "other": None}},
        "plain": {"networks": ["default"]},
    }
    made = rewrite({"services": services}, name="p", labels={}, private=lambda path: path)
    assert made.names == ["box", "client", "fixed", "pages", "plain", "web"]


def test_isolation(tmp_path: Path) -> None:
    """no-network makes every network internal without a gateway; what cannot be isolated is refused."""
    made = _made(tmp_path)
    with pytest.raises(SandboxError, match="network out is external"):
        made.isolate("no-network")
    del made.data["networks"]["out"]
    made.isolate("no-network")
    assert all(network["internal"] and network["driver_opts"] for network in made.data["networks"].values())
    made.services["side"]["network_mode"] = "host"
    with pytest.raises(SandboxError, match="service side uses network_mode host"):
        made.isolate("no-network")


def test_the_environment_section_wins(tmp_path: Path) -> None:
    """Limits, user, variables (with dollars) and command of the section replace the service's own."""
    made = _made(tmp_path)
    spec = EnvironmentSpec(
        user="7", command=("echo", "$X"), env_variables={"A": "$1"}, resources=Resources(cpus=2, memory_mb=64)
    )
    assert made.fit("client", spec, DockerParams(), []) == {}
    client = made.services["client"]
    assert (client["user"], client["command"], client["environment"]) == ("7", ["echo", "$$X"], {"A": "$$1"})
    assert (client["cpus"], client["mem_limit"], client["pids_limit"], client["init"]) == (2, "64m", 4096, True)
    assert client["deploy"]["resources"]["limits"] == {}


# ---------------------------------------------------------------- bases


@pytest.mark.parametrize(
    ("text", "target", "base"),
    [
        ("FROM a:1\n", None, "a:1"),
        ("# FROM x\nfrom --platform=linux/amd64 a AS one\n", None, "a"),
        ("FROM a AS one\nFROM b AS two\nFROM one\n", None, "a"),
        ("FROM a AS one\nFROM b AS two\n", "ONE", "a"),
        ("FROM a\n", "none", None),
        ("FROM scratch\n", None, None),
        ("ARG B=x\nFROM $B\n", None, None),
        ("FROM a AS a\n", None, None),
        ("", None, None),
    ],
)
def test_final_base(text: str, target: str | None, base: str | None) -> None:
    """The base is what the last stage, or the wanted one, starts from through other stages; unknown where it varies."""
    assert final_base(text, target) == base
