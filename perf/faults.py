"""Fault injection: kill runs at random moments, resume them, and check that nothing was lost, repeated or left.

    python perf/faults.py                       40 x SIGKILL on the host, 30 attempts a run
    python perf/faults.py --environment docker  10 x SIGKILL on Docker, 10 attempts a run (--image NAME)
    python perf/faults.py --how term            the same with SIGTERM to the pytest process
    python perf/faults.py --how worker          SIGKILL to one xdist worker of a run with -n 2

After each round: every attempt has exactly one record, no attempt that had a score when the signal came ran
again, nothing of ours is left (process, folder, container, network), and the summary's figures equal those of
an undisturbed run. Prints one line a round; the exit status is 1 when any round broke a rule.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

Counts = Counter[str]


def main() -> int:
    """Run the rounds and report."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        lab = Lab(Path(name), options)
        wanted = lab.undisturbed()
        faults = 0
        for number in range(1, options.rounds + 1):
            problems = lab.round(number, wanted)
            faults += bool(problems)
            print(f"round {number:>2}: {lab.story}: {'; '.join(problems) if problems else 'ok'}", flush=True)
    print(f"{options.rounds} rounds on {options.environment} ({options.how}), {faults} broke a rule")
    return 1 if faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", choices=("host_process", "docker"), default="host_process")
    parser.add_argument("--how", choices=("kill", "term", "worker"), default="kill")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--attempts", type=int)
    parser.add_argument("--image", default="pytest-agentcompass-test:bookworm")
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()
    docker = options.environment == "docker"
    options.rounds = options.rounds or (10 if docker else 40)
    options.attempts = options.attempts or (10 if docker else 30)
    return options


class Lab:
    """A folder with a suite whose agents log every start outside the sandbox."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.random = random.Random(options.seed)
        self.story = ""
        self.duration = 1.0
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (folder / "conftest.py").write_text(_CONFTEST, encoding="utf-8")
        (folder / "tasks.yaml").write_text(self._tasks(), encoding="utf-8")

    def _tasks(self) -> str:
        lines = ["tasks:"]
        for number in range(self.options.attempts):
            answer = "yes" if number % 3 else "no"
            lines += [
                f"  - id: t{number:02}",
                "    instruction: write the answer",
                f"    verify: sleep 0.02; grep -q {answer} answer.txt",
            ]
            if self.options.environment == "docker":
                lines.append(f"    image: {self.options.image}")
        return "\n".join(lines) + "\n"

    def undisturbed(self) -> dict[str, Any]:
        """Return the figures of a run that nobody disturbs."""
        start = time.monotonic()
        run = self._start("calm")
        run.wait()
        self.duration = time.monotonic() - start
        return self._figures("calm")

    def round(self, number: int, wanted: dict[str, Any]) -> list[str]:
        """Disturb one run, resume it until it ends by itself, and return the rules that it broke."""
        name = f"r{number}"
        problems: list[str] = []
        self.story = ""
        for attempt in range(self.random.choice((1, 1, 2, 3))):
            run = self._start(name, resume=attempt > 0)
            moment = self.random.uniform(0.1, 1.1) * self.duration
            self._strike(run, moment)
            before, scored = self._starts(), self._scored(name)
            self.story += f"{self.options.how} at {moment:.2f} s ({len(scored)} scored) "
            if run.returncode in (0, 1):
                break  # it was over before the signal came (or a dead worker was replaced)
        else:
            self._start(name, resume=True).wait()
            again = self._starts() - before
            problems += [f"{task} ran again although it had a score" for task in sorted(scored) if again[task]]
        records = list((self._path(name) / "attempts").glob("*/*/*/record.json"))
        if len(records) != self.options.attempts:
            problems.append(f"{len(records)} records of {self.options.attempts}")
        if self._figures(name) != wanted:
            problems.append("the summary differs from that of an undisturbed run")
        return problems + self._left(name)

    def _strike(self, run: subprocess.Popen[bytes], moment: float) -> None:
        try:
            run.wait(moment)
        except subprocess.TimeoutExpired:
            if self.options.how == "term":
                run.send_signal(signal.SIGTERM)
            elif self.options.how == "kill":
                os.killpg(run.pid, signal.SIGKILL)
            else:
                children = _children(run.pid)
                if children:
                    os.kill(self.random.choice(children), signal.SIGKILL)
        run.wait()

    def _start(self, name: str, resume: bool = False) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--agentcompass"]
        command += ["benchmark=tasks", "benchmark.path=tasks.yaml", "harness=logged"]
        command += [f"environment={self.options.environment}"]
        resume = resume and (self._path(name) / "run.json").exists()
        command.append(f"--agentcompass-resume={name}" if resume else f"--agentcompass-run-id={name}")
        if self.options.how == "worker":
            command += ["-n", "2"]
        elif self.random.random() < 0.5:
            command += ["concurrency=4"]
        elif self.options.environment == "host_process" and self.random.random() < 0.3:
            command += ["-n", "2"]
        if not resume and self._path(name).exists():
            shutil.rmtree(self._path(name))
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)

    def _path(self, name: str) -> Path:
        return self.folder / "agentcompass-results" / "run" / name

    def _starts(self) -> Counts:
        log = self.folder / "starts.log"
        return Counter(log.read_text(encoding="utf-8").split()) if log.exists() else Counter()

    def _scored(self, name: str) -> set[str]:
        found = set()
        for path in (self._path(name) / "attempts").glob("*/*/*/record.json"):
            record = json.loads(path.read_bytes())
            if record["score"] is not None:
                found.add(record["task_id"])
        return found

    def _figures(self, name: str) -> dict[str, Any]:
        summary = json.loads((self._path(name) / "summary.json").read_bytes())
        request = summary["requests"][0]
        counts = {key: value for key, value in request["report"]["attempts"].items() if key != "discarded_tries"}
        outcomes = {task["task_id"]: [item["outcome"] for item in task["attempts"]] for task in request["tasks"]}
        return {"headline": request["report"]["headline"], "attempts": counts, "outcomes": outcomes}

    def _left(self, name: str) -> list[str]:
        problems = []
        folders = list(
            (Path(tempfile.gettempdir()) / f"agentcompass-{os.getuid()}" / "host_process").glob("t[0-9][0-9]-*")
        )
        if folders:
            problems.append(f"{len(folders)} folders of attempts are left")
        if agents := _agents(str(self.folder)):
            problems.append(f"{len(agents)} agents still run")
        if self.options.environment == "docker":
            for what in (["ps", "-aq"], ["network", "ls", "-q"], ["volume", "ls", "-q"]):
                command = ["docker", *what, "--filter", f"label=agentcompass.run={name}"]
                found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
                if found:
                    problems.append(f"{len(found)} left of docker {what[0]}")
        return problems


def _children(pid: int) -> list[int]:
    """Return the child processes of *pid* that are Python (xdist's workers)."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[1] == str(pid) and b"execnet" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, IndexError):
            continue
    return found


def _agents(folder: str) -> list[int]:
    """Return the processes that work below *folder*'s runs: agents that outlived them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if b"agent-of-" + folder.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


_CONFTEST = '''
import os
from pathlib import Path

from pytest_agentcompass import BaseHarness, RunResult

FOLDER = Path(__file__).parent


class Logged(BaseHarness):
    """Logs its start outside the sandbox, then works for a moment."""

    id = "logged"

    async def run_task(self, session, prepared, req, plan):
        with (FOLDER / "starts.log").open("a") as log:
            log.write(prepared.task_id + "\\n")
        script = f": agent-of-{FOLDER}; sleep 0.05; echo yes > answer.txt"
        done = await session.exec(script, shell=True, timeout=prepared.run_timeout_seconds)
        return RunResult(agent_output=done.output)


def pytest_agentcompass_register(registry):
    registry.add("harness", Logged)
'''


if __name__ == "__main__":
    raise SystemExit(main())
