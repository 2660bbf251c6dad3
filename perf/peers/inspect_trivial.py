"""200 trivial samples in inspect_ai: `inspect_trivial.py COUNT CONCURRENCY WITH_COMMANDS LOG_DIR` (its own Python)."""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, exact, scorer
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

COUNT, CONCURRENCY, COMMANDS, LOGS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4]


@solver
def answer():
    """Answer without a model, with one command where the sample has a sandbox."""

    async def solve(state, generate):
        if COMMANDS:
            await sandbox().exec(["sh", "-c", "echo done > answer"])
        state.output.completion = "done"
        return state

    return solve


@scorer(metrics=[accuracy()])
def command():
    """Score by the status of one command."""

    async def score(state, target):
        found = await sandbox().exec(["sh", "-c", "test -f answer"])
        return Score(value=CORRECT if found.success else INCORRECT)

    return score


samples = [Sample(id=f"t{number}", input="say done", target="done") for number in range(COUNT)]
task = Task(
    dataset=samples,
    solver=answer(),
    scorer=command() if COMMANDS else exact(),
    sandbox="local" if COMMANDS else None,
    name="trivial",
)
(log,) = eval(task, model="mockllm/model", log_dir=LOGS, max_samples=CONCURRENCY, display="none", max_subprocesses=8)
solved = sum(sample.scores[name].value == CORRECT for sample in log.samples for name in sample.scores)
print(f"solved {solved}")
sys.exit(0 if solved == COUNT else 1)
