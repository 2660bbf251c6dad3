"""200 trivial tasks in AgentCompass: `agentcompass_trivial.py COUNT CONCURRENCY WITH_COMMANDS DIR` (its own Python)."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from agentcompass import run_evaluation
from agentcompass.benchmarks.config import RuntimeBenchmarkConfig
from agentcompass.runtime import (
    BENCHMARKS,
    HARNESSES,
    BaseBenchmark,
    BaseHarness,
    PreparedTask,
    RunResult,
    TaskInput,
    TaskOutput,
    TaskSpec,
    TaskStatus,
)

COUNT, CONCURRENCY, COMMANDS, FOLDER = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", Path(sys.argv[4])


@dataclass(slots=True)
class TrivialConfig(RuntimeBenchmarkConfig):
    """No settings of its own."""


@BENCHMARKS.register()
class Trivial(BaseBenchmark):
    """Tasks with a fixed answer."""

    id = "trivial"
    description = "trivial"
    parallel_attempts_safe = True
    evaluation_environment_mode = "reuse" if COMMANDS else "none"
    config_class = TrivialConfig

    def load_tasks(self, req):
        return [
            TaskSpec(task_id=f"t{number}", question="say done", category="c", ground_truth="done")
            for number in range(COUNT)
        ]

    async def prepare_task(self, task, env, req, plan):
        return PreparedTask(
            task_id=task.task_id,
            category=task.category,
            ground_truth=task.ground_truth,
            input=TaskInput(prompt=task.question),
            output=TaskOutput(answer="done"),
            metadata={},
        )

    async def evaluate(self, task, prepared, result, req, plan, env=None):
        correct = result.final_answer == task.ground_truth
        if COMMANDS:
            found = await env.exec(f"test -f {FOLDER}/{task.task_id}", shell=True)
            correct = found.returncode == 0
        result.metrics = {"correct": correct}
        return result


@HARNESSES.register()
class Answer(BaseHarness):
    """Answers without a model, with one command when asked."""

    id = "answer"
    description = "answer"
    parallel_attempts_safe = True

    def supports(self, environment, model):
        return True

    async def start_session(self, env, req, plan):
        return env

    async def run_task(self, session, prepared, req, plan):
        if COMMANDS:
            await session.exec(f"echo done > {FOLDER}/{prepared.task_id}", shell=True)
        return RunResult(
            task_id=prepared.task_id, status=TaskStatus.COMPLETED, category=prepared.category, final_answer="done"
        )


FOLDER.mkdir(parents=True, exist_ok=True)
report = run_evaluation(
    benchmark="trivial",
    harness="answer",
    model="none",
    task_concurrency=CONCURRENCY,
    results_dir=str(FOLDER / "results"),
    progress="none",
    log_level="ERROR",
    benchmark_params={"model": "none"},
)
counts = report["metrics"]["series"][0]["counts"]
print(f"solved {report['metrics']['series'][0]['value']} of {json.dumps(counts)}")
sys.exit(0 if report["metrics"]["series"][0]["value"] == 1.0 else 1)
