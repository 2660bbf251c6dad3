"""The same trivial work with the peers and with us, in one table.

    python perf/peers/run.py --peers DIR [--samples 200] [--attempts 20] [--repeats 3] [--image NAME] [--only WORD]

DIR holds one virtual environment per peer: DIR/inspect-ai, DIR/agentcompass, DIR/terminal-bench, DIR/harbor. One
that is missing is a row "not installed". The runs are interleaved (each repeat runs all of a workload's programs
once), so that other load on the machine hits them alike; medians are printed. Start-up is included: a user waits
for it too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import process_cost
import workloads

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@dataclass(frozen=True, slots=True)
class Program:
    """One program on one workload.

    *command* gets a new empty folder and returns the words to run. *solved* counts in that folder what was solved,
    *wanted* of it makes the run valid: terminal-bench and Harbor end with status 0 when every attempt failed.
    """

    workload: str
    name: str
    binary: Path
    command: Callable[[Path], list[str]]
    solved: Callable[[Path], int] = lambda folder: 0
    wanted: int = 0


def ours(*settings: str) -> Callable[[Path], list[str]]:
    """Return the command of our run with *settings*."""

    def command(folder: Path) -> list[str]:
        words = [sys.executable, "-m", "pytest", "-q", "--agentcompass", *settings]
        return [*words, f"--agentcompass-results={folder / 'results'}", "--rootdir", str(folder)]

    return command


def in_process(peers: Path, data: Path, samples: int) -> list[Program]:
    """Return the programs of the two workloads without containers, eight at a time."""
    inspect, compass = peers / "inspect-ai/bin/python", peers / "agentcompass/bin/python"
    workloads.write_answers(data / "answers.jsonl", samples)
    workloads.write_commands(data / "commands.jsonl", samples)
    python = Path(sys.executable)
    programs = []
    for with_commands, file, title in (
        ("0", "answers.jsonl", f"{samples} answers, no command"),
        ("1", "commands.jsonl", f"{samples} x agent command + verify command on the host"),
    ):

        def peer(binary: Path, script: str, flag: str = with_commands) -> Callable[[Path], list[str]]:
            return lambda folder: [str(binary), str(HERE / script), str(samples), "8", flag, str(folder / "out")]

        programs += [
            Program(title, "inspect_ai", inspect, peer(inspect, "inspect_trivial.py")),
            Program(title, "AgentCompass", compass, peer(compass, "agentcompass_trivial.py")),
            Program(
                title,
                "pytest-agentcompass",
                python,
                ours("benchmark=tasks", f"benchmark.path={data / file}", "harness=oracle", "concurrency=8"),
            ),
        ]
    return programs


def in_containers(peers: Path, data: Path, attempts: int, image: str) -> list[Program]:
    """Return the programs that run one container task *attempts* times, four at a time."""
    tb, harbor, python = peers / "terminal-bench/bin/tb", peers / "harbor/bin/harbor", Path(sys.executable)
    title1, title2 = f"TB1 task x {attempts} on Docker, oracle", f"TB2 task x {attempts} on Docker, oracle"
    workloads.write_tb1(data / "tb1/trivial", image)
    workloads.write_tb2(data / "tb2/trivial", image)
    common = ["--n-attempts", str(attempts)]

    def run_tb(folder: Path) -> list[str]:
        words = [str(tb), "run", "-p", str(data / "tb1"), "-a", "oracle", *common, "--n-concurrent", "4"]
        return [*words, "--output-path", str(folder / "runs")]

    def run_harbor(folder: Path) -> list[str]:
        words = [str(harbor), "run", "-p", str(data / "tb2"), "-a", "oracle", *common, "--n-concurrent", "4"]
        return [*words, "-o", str(folder / "jobs"), "-y", "-q"]

    def run_ours(path: str) -> Callable[[Path], list[str]]:
        settings = ("benchmark=terminal_bench", f"benchmark.path={data / path}", "harness=oracle")
        return ours(*settings, "environment=docker", f"attempts={attempts}", "concurrency=4")

    return [
        Program(title1, "terminal-bench", tb, run_tb, solved_by_tb, attempts),
        Program(title1, "pytest-agentcompass", python, run_ours("tb1")),
        Program(title2, "Harbor", harbor, run_harbor, solved_by_harbor, attempts),
        Program(title2, "pytest-agentcompass", python, run_ours("tb2")),
    ]


def solved_by_tb(folder: Path) -> int:
    """Return how many trials of terminal-bench were resolved."""
    found = [json.loads(path.read_text()) for path in folder.glob("runs/*/results.json")]
    return sum(result["n_resolved"] for result in found)


def solved_by_harbor(folder: Path) -> int:
    """Return how many trials of Harbor got the reward 1."""
    found = [json.loads(path.read_text()).get("verifier_result") for path in folder.glob("jobs/*/*/result.json")]
    return sum((result or {}).get("rewards", {}).get("reward") == 1 for result in found)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a run: no telemetry, no look-ups at the start that only a network can answer.

    Where Compose is installed as `docker-compose` alone, it becomes the plugin that the peers need.
    """
    compose = shutil.which("docker-compose")
    if compose:
        plugin = folder / ".docker/cli-plugins/docker-compose"
        plugin.parent.mkdir(parents=True)
        plugin.symlink_to(compose)
    return {
        **os.environ,
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HARBOR_TELEMETRY": "off",
        "PYTHONPATH": str(ROOT),
    }


def measure(programs: list[Program], repeats: int) -> dict[Program, list[process_cost.Cost]]:
    """Run every installed program *repeats* times, interleaved."""
    costs: dict[Program, list[process_cost.Cost]] = {program: [] for program in programs}
    for number in range(repeats):
        for program in programs:
            if not program.binary.exists():
                continue
            with tempfile.TemporaryDirectory() as name:
                cost = process_cost.run(program.command(Path(name)), Path(name), environment(Path(name)))
                solved = program.solved(Path(name))
            if not cost.status and solved != program.wanted:
                cost = replace(cost, status=-1, output=f"{cost.output}\nsolved {solved} of {program.wanted}")
            costs[program].append(cost)
            print(
                f"[{number + 1}] {program.name}: {program.workload}: {cost.wall:.1f} s, status {cost.status}",
                file=sys.stderr,
            )
            if cost.status:
                print(cost.output[-3000:], file=sys.stderr)
    return costs


def table(costs: dict[Program, list[process_cost.Cost]]) -> str:
    """Return the medians as a Markdown table."""
    lines = ["| workload | program | wall s | CPU s | peak MB |", "|---|---|---|---|---|"]
    for program, found in costs.items():
        good = [cost for cost in found if cost.status == 0]
        if not program.binary.exists():
            cells = "not installed | | "
        elif not good:
            cells = f"failed (status {found[0].status}) | | " if found else "not run | | "
        else:
            medians = [statistics.median(getattr(cost, name) for cost in good) for name in ("wall", "cpu", "peak_mb")]
            cells = f"{medians[0]:.1f} | {medians[1]:.1f} | {medians[2]:.0f}"
        lines.append(f"| {program.workload} | {program.name} | {cells} |")
    return "\n".join(lines)


def docker_answers() -> bool:
    """Tell whether a Docker engine can be used."""
    return bool(shutil.which("docker")) and subprocess.run(["docker", "version"], capture_output=True).returncode == 0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path("peers"))
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--attempts", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--image", default=os.environ.get("AGENTCOMPASS_PERF_IMAGE", "agentcompass-base:bookworm"))
    parser.add_argument("--only", default="", help="only workloads whose name holds this text")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        programs = in_process(given.peers.absolute(), Path(name), given.samples)
        if docker_answers():
            programs += in_containers(given.peers.absolute(), Path(name), given.attempts, given.image)
        else:
            print("no Docker engine answers: the container workloads are left out", file=sys.stderr)
        print(table(measure([item for item in programs if given.only in item.workload], given.repeats)))


if __name__ == "__main__":
    main()
