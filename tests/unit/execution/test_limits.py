"""What an attempt passes before it opens: which limits apply, opening rates, the shared folder, shared back-off."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.components.backoff import SharedBackoff, shared_backoff
from pytest_agentcompass.components.machine import SharedValue, private_dir, safe_name
from pytest_agentcompass.config.options import Budget, RuntimeOptions, strictest
from pytest_agentcompass.contracts.request import ModelSpec
from pytest_agentcompass.environments.host_process import HostProcessEnvironment
from pytest_agentcompass.errors import SetupError
from pytest_agentcompass.execution.limits import Limits, OpenRate, Permits, model_limit

MODEL = ModelSpec(id="m", base_url="https://models.example:8443/v1")


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limits(tmp_path: Path, concurrency: int | None = None, **options: Any) -> Limits:
    """Return limits whose shared files stand in *tmp_path*."""
    return Limits(RuntimeOptions(results_dir=tmp_path, **options), "run", concurrency, tmp_path)


# -- which limits apply -------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["m", "https://models.example:8443/v1", "https://models.example:8443/v1/"])
def test_model_limit_by_id_or_url(key: str) -> None:
    """A model's limit is found by its id or its endpoint."""
    assert model_limit({"other": 1, key: 4}, MODEL) == (key.rstrip("/"), 4)


@pytest.mark.parametrize("key", ["models.example", "models.example:8443"])
def test_model_limit_by_host(key: str) -> None:
    """It is found by the endpoint's host as well, with or without its port."""
    assert model_limit({key: 4}, MODEL) == (key, 4)


@pytest.mark.parametrize("given", [{}, {"m": 0}, {"n": 3}, {"": 3}])
def test_no_model_limit(given: dict[str, int]) -> None:
    """0 switches a limit off, and that of another model does not count."""
    assert model_limit(given, MODEL) is None


def test_without_limits_nothing_is_made_on_disk(tmp_path: Path) -> None:
    """A run without limits leaves no trace in the shared folder."""
    held = asyncio.run(limits(tmp_path).take(HostProcessEnvironment(), MODEL))
    held.release()
    assert list(tmp_path.iterdir()) == []


def test_zero_switches_off(tmp_path: Path) -> None:
    """Limits and rates of 0 limit nothing."""
    options = {"provider_limits": {"host_process": 0}, "model_limits": {"m": 0}, "open_rates": {"host_process": 0.0}}

    async def run() -> None:
        given = limits(tmp_path, 0, **options)
        for _ in range(50):
            await given.take(HostProcessEnvironment(), MODEL)

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("what", "options", "concurrency"),
    [
        ("provider host_process", {"provider_limits": {"host_process": 1}}, None),
        ("model m", {"model_limits": {"m": 1}}, None),
        ("run", {}, 1),
    ],
)
def test_each_limit_holds_and_says_what_is_waited_for(
    tmp_path: Path, what: str, options: dict[str, Any], concurrency: int | None
) -> None:
    """Two processes (two `Limits`) share one permit; the second one hears which limit it waits for."""

    async def run() -> list[str]:
        told: list[str] = []
        first = await limits(tmp_path, concurrency, **options).take(HostProcessEnvironment(), MODEL)
        other = limits(tmp_path, concurrency, **options)
        waiting = asyncio.create_task(other.take(HostProcessEnvironment(), MODEL, told.append))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        first.release()
        (await asyncio.wait_for(waiting, 10)).release()
        return told

    assert asyncio.run(run()) == [what]


def test_nothing_is_held_after_a_cancelled_wait(tmp_path: Path) -> None:
    """Who is cancelled while waiting for the model gives the provider's permit back."""

    async def run() -> None:
        given = limits(tmp_path, provider_limits={"host_process": 2}, model_limits={"m": 1})
        first = await given.take(HostProcessEnvironment(), MODEL)
        waiting = asyncio.create_task(given.take(HostProcessEnvironment(), MODEL))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        other = await asyncio.wait_for(given.take(HostProcessEnvironment(), ModelSpec(id="n")), 10)
        other.release()
        first.release()

    asyncio.run(run())


def test_slots_of_the_engine_count_for_other_attempts_of_the_process(tmp_path: Path) -> None:
    """An attempt that a test of the user's own makes waits for a slot; the engine's attempts have theirs."""

    async def run() -> list[str]:
        told: list[str] = []
        given = limits(tmp_path)
        given.slots = asyncio.Semaphore(1)
        await given.slots.acquire()  # the engine's attempt
        (await given.take(HostProcessEnvironment(), MODEL, told.append, has_slot=True)).release()
        waiting = asyncio.create_task(given.take(HostProcessEnvironment(), MODEL, told.append))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        given.slots.release()
        (await asyncio.wait_for(waiting, 10)).release()
        assert not given.slots.locked()
        return told

    assert asyncio.run(run()) == ["run"]


def test_permits_go_back_in_reverse_order_once() -> None:
    """What was taken last is given back first, and only once."""
    order: list[int] = []

    class One:
        def __init__(self, number: int) -> None:
            self.number = number

        def release(self) -> None:
            order.append(self.number)

    held = Permits()
    for number in range(3):
        held.add(One(number))
    held.release()
    held.release()
    assert order == [2, 1, 0]


def test_the_run_s_folder_is_removed(tmp_path: Path) -> None:
    """`forget_run` removes the permits of the run, and those alone."""

    async def run() -> None:
        given = limits(tmp_path, 2, provider_limits={"host_process": 2})
        (await given.take(HostProcessEnvironment(), MODEL)).release()
        given.forget_run()
        given.forget_run()

    asyncio.run(run())
    assert [path.name for path in (tmp_path / "permits").iterdir()] == [safe_name("provider host_process")]


# -- opening rates ------------------------------------------------------------------------------


def test_openings_are_spaced_over_processes(tmp_path: Path) -> None:
    """Each opening takes the next free moment, whoever asks; after a quiet time there is no burst."""
    clock = Clock()
    first, second = (OpenRate(tmp_path / "rate.json", 4.0, clock) for _ in range(2))
    assert [rate.reserve() for rate in (first, second, first, second)] == [0.0, 0.25, 0.5, 0.75]
    clock.now += 100
    assert [first.reserve(), second.reserve()] == [0.0, 0.25]


def test_rate_file_of_another_boot_does_not_count(tmp_path: Path) -> None:
    """Monotonic times start over at a boot: what stood in the file then is forgotten."""
    (tmp_path / "rate.json").write_text('{"next": 99999999, "boot": "another"}')
    assert OpenRate(tmp_path / "rate.json", 1.0, Clock()).reserve() == 0.0


@pytest.mark.parametrize("content", ["", "{", "[1]", "\0\0\0", '{"next": 1'])
def test_torn_value_counts_as_empty(tmp_path: Path, content: str) -> None:
    """A shared value that a crash tore is begun anew."""
    path = tmp_path / "value.json"
    path.write_text(content)
    assert SharedValue(path).read() == {}
    assert SharedValue(path).update(lambda old: {**old, "a": 1}) == {"a": 1}
    assert SharedValue(path).read() == {"a": 1}


def test_waiting_for_the_rate_is_told(tmp_path: Path) -> None:
    """Only an opening that must wait says so."""

    async def run() -> list[str]:
        told: list[str] = []
        given = limits(tmp_path, open_rates={"host_process": 50.0})
        for _ in range(3):
            await given.pace("host_process", told.append)
        return told

    assert asyncio.run(run()) == ["open-rate host_process"] * 2


# -- the shared folder --------------------------------------------------------------------------


def test_private_dir_is_private(tmp_path: Path) -> None:
    """The folder is only for its user, also when it was made too open."""
    (tmp_path / "agentcompass").mkdir(mode=0o755)
    folder = private_dir({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert folder == tmp_path / "agentcompass"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_private_dir_refuses_a_link(tmp_path: Path) -> None:
    """A link that somebody planted is refused with what to do."""
    (tmp_path / "agentcompass").symlink_to(tmp_path.parent)
    with pytest.raises(SetupError, match="XDG_RUNTIME_DIR"):
        private_dir({"XDG_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.parametrize("given", ["", "relative", "/no/such/folder"])
def test_private_dir_passes_over_an_unusable_setting(given: str) -> None:
    """A runtime directory that is not there falls back to the system's."""
    folder = private_dir({"XDG_RUNTIME_DIR": given})
    assert folder.is_dir()
    assert folder.is_absolute()


def test_safe_names_differ() -> None:
    """Names that look alike as files stay apart, and any text can be a name."""
    names = ["a/b", "a:b", "a-b", "A-b", "..", "", "x" * 300, "\udcff", "a\nb"]
    made = {safe_name(name) for name in names}
    assert len(made) == len(names)
    assert all("/" not in name and len(name) < 60 and name not in (".", "..") for name in made)


# -- shared back-off ----------------------------------------------------------------------------


def test_backoff_holds_for_all_processes(tmp_path: Path) -> None:
    """A pause that one process reports is seen by the others, and ends."""
    clock = Clock()
    one, other = (SharedBackoff(tmp_path / "b.json", clock) for _ in range(2))
    assert other.remaining() == 0.0
    assert one.report(retry_after=7.0) == 7.0
    assert other.remaining() == 7.0
    clock.now += 8
    assert other.remaining() == 0.0


def test_backoff_doubles_per_burst_and_not_per_refusal(tmp_path: Path) -> None:
    """Refusals within a pause belong to its burst; the next burst pauses longer; an answer starts over."""
    clock = Clock()
    backoff = SharedBackoff(tmp_path / "b.json", clock)
    pauses = []
    for _ in range(4):
        pauses.append(backoff.report())
        assert [backoff.report() for _ in range(20)] == [pauses[-1]] * 20
        clock.now += pauses[-1] + 1
    for number, pause in enumerate(pauses):
        assert 2.0 * 2**number * 0.5 <= pause <= 2.0 * 2**number
    backoff.succeeded()
    assert backoff.report() <= 2.0


def test_backoff_believes_no_endless_word(tmp_path: Path) -> None:
    """A `Retry-After` of a day, or below nothing, is brought into reason."""
    clock = Clock()
    backoff = SharedBackoff(tmp_path / "b.json", clock)
    assert backoff.report(retry_after=-5) == 0.0
    assert backoff.report(retry_after=86400) == 120.0
    assert backoff.report(retry_after=1) == 120.0  # a shorter word does not end a longer pause


def test_success_within_a_pause_does_not_end_it(tmp_path: Path) -> None:
    """An answer to a call that began before the refusal says nothing about the endpoint now."""
    backoff = SharedBackoff(tmp_path / "b.json", Clock())
    backoff.report(retry_after=30)
    backoff.succeeded()
    assert backoff.remaining() == 30


def test_waiting_out_a_pause(tmp_path: Path) -> None:
    """`wait` returns how long it slept: nothing without a pause, at least the pause with one."""

    async def run() -> None:
        backoff = shared_backoff("https://models.example/v1", tmp_path)
        assert await backoff.wait() == 0.0
        backoff.report(retry_after=0.05)
        assert await shared_backoff("https://models.example/v1", tmp_path).wait() > 0.0
        assert await shared_backoff("https://other.example/v1", tmp_path).wait() == 0.0

    asyncio.run(run())


# -- options of several suites ------------------------------------------------------------------


def test_strictest_options(tmp_path: Path) -> None:
    """Of several suites' limits the smallest that is switched on counts, key by key."""
    merged = strictest(
        [
            RuntimeOptions(tmp_path, provider_limits={"docker": 5, "x": 0}, budget=Budget(usd=5)),
            RuntimeOptions(tmp_path, provider_limits={"docker": 3, "x": 2}, deadline_seconds=60.0),
            RuntimeOptions(tmp_path, open_rates={"docker": 0.5}, budget=Budget(usd=9, tokens=10)),
        ]
    )
    assert merged.provider_limits == {"docker": 3, "x": 2}
    assert (merged.open_rates, merged.deadline_seconds) == ({"docker": 0.5}, 60.0)
    assert (merged.budget.usd, merged.budget.tokens, merged.budget.wall_seconds) == (5, 10, None)
