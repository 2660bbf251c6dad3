"""The plan of one logical attempt, in eight fixed steps; pure: nothing is opened, no input changes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

from ..components.benchmark import BaseBenchmark
from ..components.recipe import BaseRecipe
from ..components.registry import Registry
from ..contracts.environment import EnvironmentSpec, EvaluationMode
from ..contracts.network import NetworkPolicy
from ..contracts.plan import BenchmarkPlan, ExecutionPlan, HarnessPlan
from ..contracts.request import RunRequest
from ..contracts.task import TaskSpec
from ..errors import AgentCompassError, PlanningError, nearest
from .environment import keep_users_choice, merged_environment, task_hints, task_label
from .network import PHASES, endpoint_host, policy_fields, resolve_policies, with_host

__all__ = ["Planner"]


class Planner:
    """Makes the plan of an attempt from a request and a task. A retry reuses the plan."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def plan(self, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
        """Return the plan; *req* and *task* stay as they are.

        Raises PlanningError naming the task and the benchmark, harness or recipe that failed, and
        ConfigError for an unknown component or recipe id.
        """
        recipes = self._recipes(req)
        req, task = req.model_copy(deep=True), copy.deepcopy(task)
        benchmark = self._registry.make("benchmark", req.benchmark.id)
        mode, environment = self._fixed_part(req, task, benchmark)
        benchmark_plan = _ask("benchmark", benchmark, task, BenchmarkPlan, task, req, environment)
        harness_plan = self._harness_plan(req, task, environment)
        plan = ExecutionPlan(
            environment=environment,
            benchmark_plan=benchmark_plan,
            harness_plan=harness_plan,
            execution=req.execution,
            evaluation_environment_mode=mode,
            task_id=task.task_id,
            artifacts=list(task.artifacts),
            **_policies_of(environment),
            **_timeouts(req, task, benchmark_plan),
        )
        for recipe in recipes:
            plan = _apply(recipe, plan, req, task)
        return self._finished(plan, req)

    def environment(self, req: RunRequest, task: TaskSpec) -> EnvironmentSpec:
        """Return the fixed part of what *task* needs: no component is asked, missing policies are public."""
        benchmark = self._registry.make("benchmark", req.benchmark.id)
        _, environment = self._fixed_part(req, task, benchmark)
        return environment.model_copy(update=_public(environment))

    def _fixed_part(
        self, req: RunRequest, task: TaskSpec, benchmark: BaseBenchmark
    ) -> tuple[EvaluationMode, EnvironmentSpec]:
        """Steps 1 to 3: evaluation mode, policies, and the environment that holds them."""
        hints = task_hints(task)
        mode: EvaluationMode = (
            req.environment.evaluation_environment_mode
            or hints.evaluation_environment_mode
            or benchmark.evaluation_environment_mode
        )
        policies = resolve_policies(req.environment, hints)
        environment = merged_environment(req.environment, hints, benchmark.default_environment)
        update = {**policy_fields(policies), "evaluation_environment_mode": mode}
        return mode, environment.model_copy(update=update)

    def _harness_plan(self, req: RunRequest, task: TaskSpec, environment: EnvironmentSpec) -> HarnessPlan:
        if req.harness.id == "none":
            return HarnessPlan(
                inject_network_restriction_notice=req.harness.inject_network_restriction_notice,
                params=copy.deepcopy(req.harness.params),
            )
        harness = self._registry.make("harness", req.harness.id)
        plan: HarnessPlan = _ask("harness", harness, task, HarnessPlan, req, environment)
        return plan

    def _recipes(self, req: RunRequest) -> list[BaseRecipe]:
        """Return the enabled recipes in registry order; ConfigError for an id that does not exist."""
        known = self._registry.ids("recipe")
        for id in req.execution.enabled_recipes:
            if id not in known:
                raise PlanningError(f"execution.enabled_recipes: recipe {id!r} is not known; {nearest(id, known)}")
        enabled = req.execution.enabled_recipes or known
        return [self._registry.make("recipe", id) for id in known if id in enabled]

    def _finished(self, plan: ExecutionPlan, req: RunRequest) -> ExecutionPlan:
        """Steps 7 and 8: missing policies become public, the evaluation environment follows the final mode."""
        for name, policy in _public(plan).items():
            setattr(plan, name, policy)
        self._let_model_be_reached(plan, req)
        update = {**_policies_of(plan), "evaluation_environment_mode": plan.evaluation_environment_mode}
        plan.environment = plan.environment.model_copy(update=update)
        if plan.evaluation_environment_mode != "fresh":
            plan.evaluation_environment = None
        else:
            chosen = plan.evaluation_environment or plan.environment
            plan.evaluation_environment = chosen.model_copy(update=update, deep=True)
        provider = self._registry.make("environment", plan.environment.id)
        plan.notes.extend(provider.notes(plan.environment))
        return plan

    def _let_model_be_reached(self, plan: ExecutionPlan, req: RunRequest) -> None:
        """Open the run policy for the endpoint that an agent inside the sandbox needs; the audit view shows it."""
        harness = None if req.harness.id == "none" else self._registry.make("harness", req.harness.id)
        if harness is None or not harness.calls_model_from_sandbox:
            return
        host, policy = endpoint_host(req.model.base_url), plan.run_network_policy
        if host and policy is not None and with_host(policy, host) != policy:
            plan.run_network_policy = with_host(policy, host)
            plan.notes.append(f"the model endpoint {host} was added to the run network policy")


def _policies_of(holder: EnvironmentSpec | ExecutionPlan) -> dict[str, Any]:
    return {f"{phase}_network_policy": getattr(holder, f"{phase}_network_policy") for phase in PHASES}


def _public(holder: EnvironmentSpec | ExecutionPlan) -> dict[str, Any]:
    return {name: policy or NetworkPolicy() for name, policy in _policies_of(holder).items()}


def _timeouts(req: RunRequest, task: TaskSpec, plan: BenchmarkPlan) -> dict[str, Any]:
    """Return the request's own limits, else the benchmark's or the task's times the multiplier."""
    found: dict[str, Any] = {}
    for name in ("run_timeout_seconds", "evaluation_timeout_seconds"):
        own = getattr(req.execution, name)
        value = getattr(plan, name) if getattr(plan, name) is not None else getattr(task, name)
        found[name] = own if own is not None or value is None else value * req.execution.timeout_multiplier
    return found


def _ask(kind: str, component: Any, task: TaskSpec, wanted: type[Any], *arguments: Any) -> Any:
    """Return what `component.build_plan` decides, asked with copies so that nothing leaks between components."""
    who = f"{kind} {component.id!r}"
    result = _guarded(who, task, component.build_plan, copy.deepcopy(arguments))
    if not isinstance(result, wanted):
        raise PlanningError(
            f"{task_label(task)}: build_plan of {who} returned {type(result).__name__}, not a {wanted.__name__}"
        )
    return result


def _guarded(who: str, task: TaskSpec, function: Any, arguments: Sequence[Any]) -> Any:
    """Call a component's pure method; its own faults become a PlanningError that names it."""
    try:
        result = function(*arguments)
    except AgentCompassError:
        raise
    except Exception as error:
        raise PlanningError(
            f"{task_label(task)}: {who} failed in {function.__name__}: {type(error).__name__}: {error}"
        ) from error
    if inspect.iscoroutine(result):
        result.close()
        raise PlanningError(
            f"{task_label(task)}: {function.__name__} of {who} must not be async (planning does no I/O)"
        )
    return result


def _apply(recipe: BaseRecipe, plan: ExecutionPlan, req: RunRequest, task: TaskSpec) -> ExecutionPlan:
    """Return the plan after *recipe* (step 6). It works on copies, and what the user set is put back."""
    who = f"recipe {recipe.id!r}"
    if not _guarded(who, task, recipe.matches, (req, task, plan)):  # copies of this planning alone
        return plan
    adapted = _guarded(who, task, recipe.apply, copy.deepcopy((plan, req, task)))
    if not isinstance(adapted, ExecutionPlan):
        raise PlanningError(
            f"{task_label(task)}: apply of {who} returned {type(adapted).__name__}, not an ExecutionPlan"
        )
    adapted = copy.deepcopy(adapted)
    adapted.environment, restored = keep_users_choice(adapted.environment, req.environment)
    restored += _restore_plan(adapted, req)
    if restored:
        adapted.notes.append(
            f"{who} wanted to change {', '.join(sorted(set(restored)))}; the request's own value stands"
        )
    adapted.applied_recipes.append(recipe.id)
    return adapted


def _restore_plan(plan: ExecutionPlan, req: RunRequest) -> list[str]:
    """Put the request's own policies, mode and limits back into *plan*; return what had been changed."""
    own = {**_policies_of(req.environment), "evaluation_environment_mode": req.environment.evaluation_environment_mode}
    for name in ("run_timeout_seconds", "evaluation_timeout_seconds"):
        own[name] = getattr(req.execution, name)
    changed = [name for name, value in own.items() if value is not None and getattr(plan, name) != value]
    for name in changed:
        setattr(plan, name, own[name])
    plan.execution = req.execution
    return changed
