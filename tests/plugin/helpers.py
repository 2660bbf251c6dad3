"""A folder in which whole pytest runs with the plugin happen, and what such a run left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["TASKS", "Result", "Running", "Suite", "cases", "heed_interrupts", "task"]

#: the words that run `tasks.yaml`
TASKS = ("--agentcompass", "benchmark=tasks", "benchmark.path=tasks.yaml")
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|rerun|warnings?|xfailed)\b")
_INI = "[pytest]\nfilterwarnings = error\n"
_DEADLINE = 60.0


def task(task_id: str, verify: str = "true", **fields: Any) -> dict[str, Any]:
    """Return a task that passes (or, with `verify="false"`, fails) whatever the agent does."""
    return {"id": task_id, "instruction": "work", "verify": verify, **fields}


def cases(nodeids: list[str]) -> list[str]:
    """Return the task and attempt of each node id."""
    return ["::".join(nodeid.split("::")[-2:]) for nodeid in nodeids]


def heed_interrupts() -> None:
    """Let the child have its Ctrl-C although a test run in the background ignores it, and hands that on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Result:
    """What a pytest run printed, and the run directory that it left."""

    ret: int
    out: str
    err: str
    folder: Path

    @property
    def counts(self) -> dict[str, int]:
        """The outcomes of pytest's last line, `error` and `warning` in the singular."""
        lines = [line for line in self.out.splitlines() if re.search(r"^=* ?.*\bin [\d.]+s", line)]
        found = _COUNT.findall(lines[-1]) if lines else []
        return {name.removesuffix("s") if name.startswith(("error", "warn")) else name: int(n) for n, name in found}

    @property
    def nodeids(self) -> list[str]:
        """The node ids that `-q --collect-only` or `-v` printed, in order."""
        found = []
        for line in self.out.splitlines():
            hit = re.match(r"(\S*::\S*attempt\d+\]?)", line)
            if hit and "ERROR" not in line:
                found.append(hit[1])
        return found

    @property
    def run_dirs(self) -> list[Path]:
        """The run directories, the oldest first."""
        found = [path.parent for path in self.folder.glob("agentcompass-results/*/*/run.json")]
        return sorted(found, key=lambda path: path.stat().st_ctime_ns if len(found) == 1 else _started(path))

    @property
    def run_dir(self) -> Path:
        """The newest run directory."""
        return self.run_dirs[-1]

    def records(self) -> dict[str, dict[str, Any]]:
        """Return the stored records by `task::attempt` (with several requests by `request::task::attempt`)."""
        found = [json.loads(path.read_bytes()) for path in sorted(self.run_dir.glob("attempts/*/*/*/record.json"))]
        many = len({record["request"] for record in found}) > 1
        return {
            (f"{record['request']}::" if many else "") + f"{record['task_id']}::{record['attempt']}": record
            for record in found
        }

    def modes(self) -> dict[str, str]:
        """Return the failure mode of each record."""
        return {name: record["failure_mode"] for name, record in self.records().items()}

    def verdicts(self) -> dict[str, bool | None]:
        """Return whether each recorded attempt passed; None where it has no score."""
        return {name: record["passed"] for name, record in self.records().items()}

    def run_info(self) -> dict[str, Any]:
        """Return `run.json`, read strictly."""
        return _strict(self.run_dir / "run.json")

    def summary(self) -> dict[str, Any]:
        """Return `summary.json`, read strictly."""
        return _strict(self.run_dir / "summary.json")

    def request_summary(self, index: int = 0) -> dict[str, Any]:
        """Return the report of one request."""
        found: dict[str, Any] = self.summary()["requests"][index]
        return found

    def junit(self, path: Path | None = None) -> list[ElementTree.Element]:
        """Return the test cases of a JUnit file (ours, when no other is named), read strictly."""
        return list(ElementTree.parse(path or self.run_dir / "junit.xml").iter("testcase"))

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the events (of one kind)."""
        rows = [json.loads(line) for line in (self.run_dir / "events.jsonl").read_bytes().splitlines()]
        return [row for row in rows if not kind or row["kind"] == kind]

    def check_clean(self) -> None:
        """Check that no fault of ours or of pytest's was shown."""
        for text in ("INTERNALERROR", "Traceback (most recent call last)", "not torn down properly"):
            assert text not in self.out + self.err, self.out + self.err


def _started(path: Path) -> str:
    return str(_strict(path / "run.json").get("started_at"))


def _strict(path: Path) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise ValueError(f"{path}: {name} is no JSON")

    found: dict[str, Any] = json.loads(path.read_bytes().decode("utf-8"), parse_constant=refuse)
    return found


@dataclass
class Running:
    """A pytest run that goes on; it leads a process group of its own."""

    process: subprocess.Popen[str]
    suite: Suite

    def wait_for(self, what: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until *what* holds; fails with the output when the run ends first."""
        end = time.monotonic() + seconds
        while not what():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                out, err = self.process.communicate()
                raise AssertionError(f"it did not come to that:\n{out}\n{err}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to the run, or to its whole process group (as a terminal does)."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def end(self, seconds: float = _DEADLINE) -> Result:
        """Wait for the end."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"the run did not end within {seconds} s:\n{out}\n{err}") from None
        return Result(self.process.returncode, out, err, self.suite.path)


@dataclass
class Suite:
    """A folder with tasks files, conftest.py files and tests, in which pytest is run as a user runs it."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.write("pytest.ini", _INI)
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        home, temporary = self.path.parent / "home", self.path.parent / "tmp"
        for folder in (home, temporary):
            folder.mkdir(exist_ok=True)
        self.env = {**kept, "HOME": str(home), "TMPDIR": str(temporary), "COLUMNS": "240", "NO_COLOR": "1"}

    def write(self, name: str, text: str) -> Path:
        """Write a file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def tasks(self, *tasks: dict[str, Any], name: str = "tasks.yaml") -> Path:
        """Write a tasks file."""
        return self.write(name, yaml.safe_dump({"suite": "tested", "tasks": list(tasks)}, sort_keys=False))

    def requests(self, *requests: dict[str, Any], name: str = "s.agentcompass.yaml", **fields: Any) -> Path:
        """Write a suite of requests; a request without a benchmark runs `tasks.yaml`."""
        default = {"benchmark": {"id": "tasks", "params": {"path": "tasks.yaml"}}, "harness": {"id": "nop"}}
        suite = {"version": 1, "name": "suite", **fields, "requests": [{**default, **request} for request in requests]}
        return self.write(name, yaml.safe_dump(suite, sort_keys=False))

    def start(self, *args: str, cwd: str = ".", **env: str) -> Running:
        """Start pytest in the folder."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *args],
            cwd=self.path / cwd,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        return Running(process, self)

    def run(self, *args: str, cwd: str = ".", **env: str) -> Result:
        """Run pytest in the folder to its end."""
        return self.start(*args, cwd=cwd, **env).end()

    def collect(self, *args: str, cwd: str = ".") -> Result:
        """Collect only, and print the node ids."""
        return self.run(*args, "--collect-only", "-q", cwd=cwd)

    def sandboxes(self) -> list[Path]:
        """Return the working directories of attempts that are left."""
        return [path for path in (self.path.parent / "tmp").glob("agentcompass-*/host_process/*") if path.is_dir()]
