"""What is wrong with a request as a whole, and what with single tasks."""

from __future__ import annotations

import pytest
from planning_fakes import Recipe, make_registry, make_request

from pytest_agentcompass.contracts.task import TaskSpec
from pytest_agentcompass.planning.preflight import check_tasks, static_problems

IMAGE = {"image": "i"}


def test_what_every_task_lacks_is_the_requests_problem() -> None:
    """A provider that cannot do what all tasks ask is named once for the request."""
    request = make_request(environment={"id": "plain"})
    tasks = [TaskSpec("a", environment=IMAGE), TaskSpec("b", environment=IMAGE)]
    assert static_problems(request, tasks, make_registry()) == [
        "environment 'plain' has no images; the task asks for one"
    ]
    assert check_tasks(request, tasks, make_registry()).tasks == {}


def test_what_one_task_lacks_stays_with_it() -> None:
    """A capability that a single task needs does not take the request down."""
    request = make_request(environment={"id": "plain"})
    tasks = [TaskSpec("a", environment=IMAGE), TaskSpec("b"), TaskSpec("c", environment={"resources": {"cpu": 1}})]
    found = check_tasks(request, tasks, make_registry())
    assert found.request == ()
    assert list(found.tasks) == ["a", "c"]
    assert "task 'c': environment.resources.cpu: unknown key" in found.tasks["c"][0]


@pytest.mark.parametrize("policy", ["no-network", {"mode": "allowlist", "hosts": ["a.b"]}])
def test_policies_that_cannot_be_enforced(policy: object) -> None:
    """A policy that the provider lacks, and a switch that it cannot make, are said before anything opens."""
    request = make_request(environment={"id": "plain", "run_network_policy": policy})
    problems = static_problems(request, [TaskSpec("a")], make_registry())
    assert any("cannot enforce the run network policy" in problem for problem in problems)
    assert any("cannot switch its network policy between phases" in problem for problem in problems)


def test_harness_and_environment_must_fit() -> None:
    """`harness.supports` is asked for each distinct environment."""
    request = make_request(harness="picky")
    tasks = [TaskSpec("a", environment={"image": "good"}), TaskSpec("b", environment={"image": "bad"})]
    assert list(check_tasks(request, tasks, make_registry()).tasks) == ["b"]
    assert "harness 'picky' cannot work in environment 'box'" in static_problems(request, tasks[1:], make_registry())[0]


def test_unknown_recipe_and_no_tasks() -> None:
    """An unknown recipe is the request's problem; a request without tasks has none here."""

    class Known(Recipe):
        id = "known"

    request = make_request(execution={"enabled_recipes": ["knwn"]})
    assert "did you mean 'known'" in static_problems(request, [TaskSpec("a")], make_registry(Known))[0]
    assert static_problems(make_request(), [], make_registry()) == []
