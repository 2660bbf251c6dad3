"""The eight steps of planning: order, precedence, purity."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from planning_fakes import Recipe, make_registry, make_request

from pytest_agentcompass.contracts.network import NetworkPolicy
from pytest_agentcompass.contracts.plan import ExecutionPlan
from pytest_agentcompass.contracts.request import RunRequest
from pytest_agentcompass.contracts.task import Artifact, TaskSpec
from pytest_agentcompass.errors import PlanningError
from pytest_agentcompass.planning.planner import Planner

NO_NETWORK = NetworkPolicy.model_validate("no-network")


def plan(req: RunRequest | None = None, task: TaskSpec | None = None, *recipes: type[Recipe]) -> ExecutionPlan:
    """Plan one attempt with fakes."""
    return Planner(make_registry(*recipes)).plan(req or make_request(), task or TaskSpec("t"))


@pytest.mark.parametrize(
    ("request_mode", "task_mode", "expected"),
    [(None, None, "reuse"), (None, "none", "none"), ("fresh", "none", "fresh"), ("reuse", "fresh", "reuse")],
)
def test_evaluation_mode_request_over_task_over_benchmark(
    request_mode: str | None, task_mode: str | None, expected: str
) -> None:
    """Step 1: the evaluation mode is the request's, else the task's, else the benchmark's."""
    environment = {"evaluation_environment_mode": request_mode} if request_mode else {}
    hints = {"evaluation_environment_mode": task_mode} if task_mode else {}
    found = plan(make_request(environment=environment), TaskSpec("t", environment=hints))
    assert found.evaluation_environment_mode == expected
    assert (found.evaluation_environment is not None) == (expected == "fresh")


def test_policies_request_over_task_and_public_at_last() -> None:
    """Steps 2 and 7: each phase's policy is the request's, else the task's hint, else public."""
    task = TaskSpec("t", environment={"run_network_policy": "no-network", "evaluation_network_policy": "no-network"})
    found = plan(make_request(environment={"evaluation_network_policy": "public"}), task)
    assert found.baseline_network_policy == NetworkPolicy()
    assert found.run_network_policy == NO_NETWORK
    assert found.evaluation_network_policy == NetworkPolicy()
    assert found.environment.run_network_policy == NO_NETWORK
    assert found.environment.baseline_network_policy == NetworkPolicy()


def test_request_wins_over_hints_field_by_field() -> None:
    """Step 3: set fields of the request win, variables merge by key and resources by field."""
    hints = {
        "id": "ignored",
        "image": "task-image",
        "workdir": "/task",
        "setup": ["a"],
        "resources": {"cpus": 1, "memory_mb": 100},
        "env_variables": {"A": "task", "B": "task"},
        "params": {"p": 1, "q": 1},
    }
    environment = {
        "workdir": None,
        "image": "mine",
        "resources": {"memory_mb": 200},
        "env_variables": {"B": "mine", "C": "mine"},
        "params": {"q": 2},
    }
    found = plan(make_request(environment=environment), TaskSpec("t", environment=hints)).environment
    assert (found.id, found.image, found.workdir, found.setup) == ("box", "mine", None, ("a",))
    assert (found.resources.cpus, found.resources.memory_mb) == (1, 200)
    assert found.env_variables == {"A": "task", "B": "mine", "C": "mine"}
    assert found.params == {"p": 1, "q": 2}


def test_an_image_replaces_a_build_and_the_other_way_round() -> None:
    """A request that names an image does not build the task's, nor the other way round."""
    build = TaskSpec("t", environment={"build": {"context": "/c"}})
    assert plan(make_request(environment={"image": "i"}), build).environment.build is None
    image = TaskSpec("t", environment={"image": "i"})
    assert plan(make_request(environment={"build": {"context": "/c"}}), image).environment.image is None
    assert plan(make_request(), build).environment.build is not None


def test_components_see_the_merged_environment() -> None:
    """Steps 4 and 5: benchmark and harness plan with hints and request already merged."""
    task = TaskSpec("t", environment={"image": "i", "run_network_policy": "no-network"})
    saw = plan(make_request(), task).benchmark_plan.data["saw"]
    assert (saw["id"], saw["image"], saw["run_network_policy"]["mode"]) == ("box", "i", "no-network")
    harness_plan = plan(make_request(harness="agent"), task).harness_plan
    assert harness_plan.inject_network_restriction_notice is True


def test_harness_free_gets_a_base_plan() -> None:
    """Without a harness the plan holds the request's own harness settings."""
    request = make_request(harness="none").model_copy(
        update={"harness": make_request().harness.model_copy(update={"id": "none", "params": {"a": 1}})}
    )
    assert plan(request).harness_plan.params == {"a": 1}


@pytest.mark.parametrize(
    ("execution", "task_seconds", "expected"),
    [
        ({}, None, None),
        ({}, 100.0, 100.0),
        ({"timeout_multiplier": 2}, 100.0, 200.0),
        ({"timeout_multiplier": 2, "run_timeout_seconds": 30, "evaluation_timeout_seconds": 30}, 100.0, 30.0),
        ({"timeout_multiplier": 2}, None, None),
    ],
)
def test_timeouts(execution: dict[str, Any], task_seconds: float | None, expected: float | None) -> None:
    """A limit is the request's own as it is, else the task's times the multiplier."""
    task = TaskSpec("t", run_timeout_seconds=task_seconds, evaluation_timeout_seconds=task_seconds)
    found = plan(make_request(execution=execution), task)
    assert (found.run_timeout_seconds, found.evaluation_timeout_seconds) == (expected, expected)


def test_inputs_stay_as_they_are() -> None:
    """Planning is pure: request and task are unchanged whatever the components do to what they are handed."""

    class Wild(Recipe):
        id = "wild"

        def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
            kept = copy.deepcopy(plan)
            plan.environment.params["x"] = plan.harness_plan.params["x"] = req.benchmark.params["x"] = "meddled"
            plan.artifacts.clear()
            task.metadata["x"] = "meddled"
            return kept

    request = make_request("meddler", environment={"params": {"p": [1]}, "env_variables": {"A": "1"}})
    task = TaskSpec("t", metadata={"m": [1]}, environment={"workdir": "/w"}, artifacts=(Artifact("/a"),))
    before = (request.model_dump_json(), copy.deepcopy(task))
    found = plan(request, task, Wild)
    assert (request.model_dump_json(), task) == before
    assert found.environment.params == {"p": [1]}
    assert "X" not in found.environment.env_variables
    assert found.artifacts == [Artifact("/a")]
    found.environment.params["p"].append(2)
    found.artifacts[0].source = "/changed"
    assert (request.model_dump_json(), task) == before


def test_a_new_attempt_plans_again_and_alike() -> None:
    """Two plans of the same inputs are equal and share nothing."""
    planner, request, task = Planner(make_registry()), make_request(), TaskSpec("t", environment={"image": "i"})
    first, second = planner.plan(request, task), planner.plan(request, task)
    assert first == second
    first.environment.params["x"] = 1
    assert first != second


class First(Recipe):
    id = "first"

    def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
        return replace(plan, environment=plan.environment.model_copy(update={"image": "first"}))


class Second(Recipe):
    id = "second"

    def matches(self, req: RunRequest, task: TaskSpec, plan: ExecutionPlan) -> bool:
        return plan.environment.image == "first"

    def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
        plan.environment = plan.environment.model_copy(update={"image": f"{plan.environment.image}-second"})
        return plan


class Never(Recipe):
    id = "never"

    def matches(self, req: RunRequest, task: TaskSpec, plan: ExecutionPlan) -> bool:
        return False


def test_recipes_in_registry_order_each_given_the_one_before() -> None:
    """Step 6: matching recipes apply in registry order, and their ids are kept."""
    found = plan(None, None, First, Never, Second)
    assert found.environment.image == "first-second"
    assert found.applied_recipes == ["first", "second"]
    assert plan(None, None, Second, First).environment.image == "first"


def test_enabled_recipes_is_an_allow_list() -> None:
    """Only the listed recipes apply; an unknown one is an error with the nearest."""
    request = make_request(execution={"enabled_recipes": ["second"]})
    assert plan(request, None, First, Second).applied_recipes == []
    with pytest.raises(PlanningError, match="recipe 'frst' is not known; did you mean 'first'"):
        plan(make_request(execution={"enabled_recipes": ["frst"]}), None, First)


def test_recipes_cannot_undo_what_the_user_set() -> None:
    """What the request sets stands, and a note says which recipe wanted otherwise."""

    class Bold(Recipe):
        id = "bold"

        def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
            update = {"image": "bold", "user": "bold", "env_variables": {"A": "bold", "N": "new"}}
            environment = plan.environment.model_copy(update=update)
            return replace(
                plan, environment=environment, run_network_policy=NetworkPolicy(), run_timeout_seconds=1,
                evaluation_environment_mode="fresh",
            )  # fmt: skip

    request = make_request(
        environment={"image": "mine", "env_variables": {"A": "mine"}, "run_network_policy": "no-network"},
        execution={"run_timeout_seconds": 30},
    )
    found = plan(request, None, Bold)
    assert (found.environment.image, found.environment.user) == ("mine", "bold")
    assert found.environment.env_variables == {"A": "mine", "N": "new"}
    assert found.run_network_policy == NO_NETWORK
    assert found.run_timeout_seconds == 30
    assert found.evaluation_environment_mode == "fresh"
    assert found.evaluation_environment is not None
    assert (
        "recipe 'bold' wanted to change env_variables, image, run_network_policy, run_timeout_seconds" in found.notes[0]
    )


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "apply of recipe 'broken' returned NoneType, not an ExecutionPlan"),
        (KeyError("k"), "recipe 'broken' failed in apply: KeyError: 'k'"),
    ],
)
def test_broken_recipes_are_named(result: object, message: str) -> None:
    """A recipe that fails, or changes in place and returns nothing, is a planning error that names it and the task."""

    class Broken(Recipe):
        id = "broken"

        def apply(self, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

    with pytest.raises(PlanningError) as caught:
        plan(None, TaskSpec("t1", source="f.yaml:3"), Broken)
    assert str(caught.value) == f"task 't1' (f.yaml:3): {message}"


def test_async_planning_is_refused() -> None:
    """Planning does no I/O, so an async build_plan is an error."""
    with pytest.raises(PlanningError, match="build_plan of harness 'async' must not be async"):
        plan(make_request(harness="async"))


def test_broken_hints_name_task_and_field() -> None:
    """A task's hints are validated; the error names task, source and field."""
    task = TaskSpec("t1", source="d/task.toml", environment={"resources": {"cpu": 1}})
    with pytest.raises(PlanningError) as caught:
        plan(None, task)
    assert str(caught.value).startswith(
        "task 't1' (d/task.toml): environment.resources.cpu: unknown key 'cpu'; did you"
    )


def test_fresh_environment_is_a_copy_with_the_same_policies() -> None:
    """Step 8: a fresh evaluation environment is like the agent's, and shares nothing with it."""
    found = plan(make_request(environment={"evaluation_environment_mode": "fresh", "params": {"a": 1}}))
    assert found.evaluation_environment == found.environment
    assert found.evaluation_environment is not None
    found.environment.params["a"] = 2
    assert found.evaluation_environment.params == {"a": 1}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("no-network", "allowlist(llm.example:8443)"),
        ({"mode": "allowlist", "hosts": ["a.b"]}, "allowlist(a.b, llm.example:8443)"),
        ({"mode": "denylist", "hosts": ["a.b"]}, "denylist(a.b)"),
        ("public", "public"),
    ],
)
def test_sandboxed_agent_reaches_its_model(policy: object, expected: str) -> None:
    """An agent that calls the model from inside gets the endpoint added, visibly; others get nothing."""
    sections: dict[str, Any] = {
        "environment": {"run_network_policy": policy},
        "model": {"id": "m", "base_url": "https://llm.example:8443/v1"},
    }
    found = plan(make_request(harness="sandboxed", **sections)).audit()
    assert found["run_network_policy"] == expected
    assert any("llm.example" in note for note in found["notes"]) == ("llm" in expected)
    other = plan(make_request(harness="agent", **sections)).audit()
    assert "llm" not in json.dumps(other)


def test_audit_is_plain_and_holds_no_values_of_users() -> None:
    """The stored view holds ids, policies, mode, limits and notes alone."""
    request = make_request(environment={"env_variables": {"A": "private"}, "image": "private", "resources": {"gpu": 1}})
    text = json.dumps(plan(request).audit())
    assert "private" not in text
    assert "gpu is not enforced by environment 'box'" in text
