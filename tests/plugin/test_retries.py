"""Discarded tries: one verdict, one record, everything about them kept."""

from __future__ import annotations

import json

import pytest

from .helpers import TASKS, Suite, task

STEPS = {
    "t1": [{"fail": "environment_error", "fail_times": 1, "message": "first"}, {"run": "touch done"}],
    "t2": [{"output": "nothing done"}],
    "t3": [{"fail": "environment_error", "message": "always"}],
}
WORDS = (
    *TASKS, "harness=scripted", f"harness.tasks={json.dumps(STEPS)}", "retries=2",
    "execution.retry_min_delay_seconds=0", "execution.retry_max_delay_seconds=0",
)  # fmt: skip
DRIVERS = pytest.mark.parametrize("words", [[], ["-n2"], ["concurrency=3"]], ids=["serial", "n2", "engine"])


@pytest.fixture
def flaky(suite: Suite) -> Suite:
    """t1 succeeds at its second try, t2 fails, t3 never gets a sandbox."""
    suite.tasks(*(task(name, verify="test -f done") for name in STEPS))
    return suite


@DRIVERS
def test_a_retry_is_no_sample(flaky: Suite, words: list[str]) -> None:
    """Six tries are three samples: one outcome, record and test case each; a failed attempt is never tried again."""
    result = flaky.run(*WORDS, *words, "--junitxml=own.xml")
    assert result.ret == 1, result.out
    counts = {name: number for name, number in result.counts.items() if name != "rerun"}
    assert counts == {"passed": 1, "failed": 1, "error": 1}
    assert {name: len(record["retries"]) for name, record in result.records().items()} == {
        "t1::1": 1,
        "t2::1": 0,
        "t3::1": 2,
    }
    report = result.request_summary()["report"]
    assert report["attempts"]["planned"] == 3
    assert report["attempts"]["discarded_tries"] == 3
    assert report["headline"]["value"] == pytest.approx(1 / 3)
    assert len(result.junit()) == 3
    assert len(result.junit(flaky.path / "own.xml")) == 3
    assert result.counts.get("rerun", 0) == (0 if words == ["concurrency=3"] else 3)
    folder = result.run_dir / "attempts/tasks/t3/1/retries"
    assert sorted(path.name for path in folder.glob("*.json")) == ["1.json", "2.json"]
    assert "always" in folder.joinpath("1.json").read_text()
    assert flaky.sandboxes() == []
    result.check_clean()


def test_fixtures_are_made_anew_for_each_try(flaky: Suite) -> None:
    """Item-driven, a retry runs the item's fixtures again, and closes them in between."""
    flaky.write(
        "conftest.py",
        "import pytest\n@pytest.fixture(autouse=True)\ndef db(agentcompass_task):\n"
        "    with open('log', 'a') as file:\n        print('open', agentcompass_task.task_id, file=file)\n"
        "    yield\n"
        "    with open('log', 'a') as file:\n        print('close', agentcompass_task.task_id, file=file)\n",
    )
    result = flaky.run(*WORDS)
    log = (flaky.path / "log").read_text().split("\n")
    assert log[:4] == ["open t1", "close t1", "open t1", "close t1"]
    assert log.count("open t3") == log.count("close t3") == 3
    assert result.counts.pop("rerun") == 3


def test_patterns_choose_what_is_tried_again(flaky: Suite) -> None:
    """Only errors that match a pattern are tried again; an empty list means none."""
    for pattern, tries in (('["no such text"]', 0), ('["alw.ys"]', 2), ("[]", 0)):
        result = flaky.run(*WORDS, f"execution.retry_pattern_list={pattern}", "-k", "t3")
        assert len(result.records()["t3::1"]["retries"]) == tries


def test_class_and_module_fixtures_live_through_a_retry(flaky: Suite) -> None:
    """A retry makes fixtures of the attempt anew, those of the task, the request and the run live on."""
    flaky.write(
        "conftest.py",
        "import pytest\n"
        + "".join(
            f"@pytest.fixture(scope='{scope}', autouse=True)\ndef my_{scope}():\n"
            f"    with open('log', 'a') as file:\n        print('{scope}', file=file)\n"
            for scope in ("session", "module", "class")
        ),
    )
    flaky.run(*WORDS)
    log = (flaky.path / "log").read_text().split()
    assert {scope: log.count(scope) for scope in set(log)} == {"session": 1, "module": 1, "class": 3}


REFUSING_JUDGE = """
from pytest_agentcompass import InfrastructureError
from pytest_agentcompass.benchmarks.qa.benchmark import QaBenchmark

class Refusing(QaBenchmark):
    id = "refusing"
    tries = 0
    def evaluate(self, task, prepared, result, *rest):
        self.tries += 1
        result.usage.judge_input_tokens, result.usage.judge_cost_usd = 10, 0.25
        if self.tries == 1:
            raise InfrastructureError("not now", "environment_error")
        result.metrics["correct"] = result.final_answer == "42"
        return result

def pytest_agentcompass_register(registry):
    registry.add("benchmark", Refusing)
"""


def test_a_repeated_evaluation_pays_the_agent_once(suite: Suite) -> None:
    """Where only the evaluation is tried again the agent's spending counts once, each judge's every time."""
    suite.write("conftest.py", REFUSING_JUDGE)
    suite.write("q.jsonl", json.dumps({"id": "a", "question": "?", "answer": "42"}))
    steps = [{"answer": "42", "usage": {"input_tokens": 100, "cost_usd": 1.0}}]
    result = suite.run(
        "--agentcompass", "benchmark=refusing", "benchmark.path=q.jsonl", "harness=scripted",
        f"harness.steps={json.dumps(steps)}", "retries=1",
        "execution.retry_min_delay_seconds=0", "execution.retry_max_delay_seconds=0",
    )  # fmt: skip
    record = result.records()["a::1"]
    assert record["passed"] is True, result.out
    both = {"judge_input_tokens": 10, "judge_cost_usd": 0.25}
    assert record["usage"] == {"input_tokens": 100, "cost_usd": 1.0, **both}
    assert [(item["scope"], item["usage"]) for item in record["retries"]] == [("evaluation", both)]
    spent = [json.loads(line) for line in (result.run_dir / "spend.jsonl").read_text().splitlines()]
    assert (sum(line["usd"] for line in spent), sum(line["tokens"] for line in spent)) == (1.5, 120)
    assert result.summary()["totals"]["cost_usd"] == 1.0
    assert result.summary()["totals"]["judge_cost_usd"] == 0.5
    assert "judges $0.50" in (result.run_dir / "summary.md").read_text()


def test_a_resumed_evaluation_that_fails_again_does_not_run_the_agent_again(suite: Suite) -> None:
    """The agent works once, also where its evaluation fails in two sessions and is tried again in the second."""
    suite.write("conftest.py", REFUSING_JUDGE)
    suite.write("q.jsonl", json.dumps({"id": "a", "question": "?", "answer": "42"}))
    steps = [{"run": f"echo worked >> {suite.path}/log", "answer": "42", "usage": {"cost_usd": 1.0}}]
    words = ("--agentcompass", "benchmark=refusing", "benchmark.path=q.jsonl", "harness=scripted",
             f"harness.steps={json.dumps(steps)}", "execution.retry_max_delay_seconds=0")  # fmt: skip
    first = suite.run(*words)
    assert first.modes() == {"a::1": "environment_error"}, first.out
    again = suite.run(*words, "--agentcompass-resume=last", "retries=1")
    assert again.verdicts() == {"a::1": True}, again.out
    assert (suite.path / "log").read_text() == "worked\n"
    assert len(again.records()["a::1"]["retries"]) == 1
    spent = [json.loads(line)["usd"] for line in (again.run_dir / "spend.jsonl").read_text().splitlines()]
    assert sum(spent) == 1.75


def test_a_stopped_run_waits_for_no_retry(suite: Suite) -> None:
    """`-x` with workers: an attempt that waits for its next try does not hold up the end, and stays pending."""
    suite.tasks(task("flaky"), task("bad", verify="false"), task("other"))
    steps = {"flaky": [{"fail": "environment_error"}], "bad": [{"sleep": 1.0}]}
    suite.write("conftest.py", "import random\nrandom.uniform = lambda low, high: 900 if high == 30 else low\n")
    delays = ("execution.retry_min_delay_seconds=30", "execution.retry_max_delay_seconds=30")
    result = suite.run(
        *TASKS, "harness=scripted", f"harness.tasks={json.dumps(steps)}", "retries=1", *delays, "-n2", "-x"
    )
    assert result.ret == 2
    assert result.counts == {"failed": 1, "skipped": 1, "rerun": 1}, result.out
    assert list(result.records()) == ["bad::1"]
    again = suite.run("--agentcompass", "--agentcompass-resume=last", "retries=0")
    assert again.counts == {"failed": 1, "passed": 1, "error": 1}, again.out


@DRIVERS
def test_a_lasting_error_is_not_tried_again(suite: Suite, words: list[str]) -> None:
    """An error that says that it lasts (an image that does not exist) ends its attempt at the first try."""
    suite.tasks(task("lasts"), task("passes"))
    suite.write(
        "conftest.py",
        "from pytest_agentcompass import SandboxError, current_attempt\n"
        "from pytest_agentcompass.environments.host_process import HostProcessEnvironment\n"
        "class Picky(HostProcessEnvironment):\n    id = 'picky'\n"
        "    async def open(self, req, plan):\n"
        "        lasts = current_attempt().task_id == 'lasts'\n"
        "        with open(req.benchmark.params['path'] + '.log', 'a') as file:\n"
        "            print(current_attempt().task_id, file=file)\n"
        "        raise SandboxError('no such image', lasting=lasts)\n"
        "def pytest_agentcompass_register(registry):\n    registry.add('environment', Picky)\n",
    )
    delays = ("execution.retry_min_delay_seconds=0", "execution.retry_max_delay_seconds=0")
    result = suite.run(*TASKS, "harness=nop", "environment=picky", "retries=2", *delays, *words)
    assert result.ret == 1, result.out
    tries = {name: len(record["retries"]) for name, record in result.records().items()}
    assert tries == {"lasts::1": 0, "passes::1": 2}
    log = next(suite.path.glob("*.log")).read_text().split()
    assert (log.count("lasts"), log.count("passes")) == (1, 3)
