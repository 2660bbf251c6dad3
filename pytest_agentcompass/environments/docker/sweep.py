"""Finding and removing what runs left in the engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from docker import APIClient
from docker.errors import APIError
from requests.exceptions import RequestException

from .build import abort_builds
from .engine import engine, engine_errors, is_gone
from .owner import KEEP, OWNER_PID, RUN, is_left_over, sweep_folders

__all__ = ["remove_container", "remove_labelled", "remove_network", "remove_run", "sweep"]

_TRIES = 3


def sweep(client: APIClient | None = None, *, kept: bool = False) -> list[str]:
    """Remove containers, networks, volumes and folders whose owner is dead; return one line for each.

    What was opened with `keep_environment` stays unless *kept* says otherwise.
    """
    client = client or engine().client
    with engine_errors("looking for left-over containers"):
        lines = _remove(client, OWNER_PID, lambda marks: is_left_over(marks, kept=kept))
    return lines + sweep_folders(kept=kept)


def remove_run(
    run_id: str, *, owner: int | None = None, client: APIClient | None = None, seconds: float = 5.0
) -> list[str]:
    """Remove by force all of a run (of its process *owner*) but what is to be kept, within *seconds*; tell what.

    Blocking, and usable from a signal's aftermath in the main thread.
    """
    abort_builds()
    client = client or engine().client
    with engine_errors(f"removing the containers of run {run_id}"):
        lines = _remove(client, f"{RUN}={run_id}", _owned_by(owner), deadline=time.monotonic() + seconds)
    return lines + sweep_folders(run_id)


def _owned_by(owner: int | None) -> Callable[[dict[str, str]], bool]:
    return lambda marks: KEEP not in marks and (owner is None or marks.get(OWNER_PID) == str(owner))


def remove_labelled(client: APIClient, label: str) -> None:
    """Remove every container, network and volume that carries *label* (`name=value`)."""
    _remove(client, label, lambda _: True)


def _remove(
    client: APIClient, label: str, wanted: Callable[[dict[str, str]], bool], deadline: float | None = None
) -> list[str]:
    lines: list[str] = []
    where = {"label": label}
    containers = [item for item in client.containers(all=True, filters=where) if wanted(item.get("Labels") or {})]
    _each(containers, lambda item: lines.append(_remove_container(client, item)), deadline)
    networks = [item for item in client.networks(filters=where) if wanted(item.get("Labels") or {})]
    _each(networks, lambda item: lines.append(_remove_network(client, item)), deadline)
    found = client.volumes(filters=where).get("Volumes") or []
    volumes = [item for item in found if wanted(item.get("Labels") or {})]
    _each(volumes, lambda item: lines.append(_remove_volume(client, item)), deadline)
    return [line for line in lines if line]


def _each(items: Iterable[Any], function: Callable[[Any], None], deadline: float | None) -> None:
    items = list(items)
    if len(items) == 1 and deadline is None:
        function(items[0])
        return
    threads = [threading.Thread(target=_worker, args=(items[i::16], function), daemon=True) for i in range(16)]
    threads = threads[: len(items)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))


def _worker(items: list[Any], function: Callable[[Any], None]) -> None:
    for item in items:
        function(item)


def _missing(error: APIError) -> bool:
    return error.response is not None and error.response.status_code == 404


def remove_container(client: APIClient, container: str) -> str | None:
    """Remove a container by force, without grace; return why it is still there, or None."""
    problem = None
    for _ in range(_TRIES):
        try:
            client.remove_container(container, force=True, v=True)
        except APIError as error:
            if _missing(error):
                return None
            # Another removal is under way: it is gone in a moment, or asked again.
            problem = str(error.explanation or error)
            if not is_gone(error) and "in progress" not in problem:
                return problem
            time.sleep(0.3)
        except RequestException as error:
            return f"the engine does not answer: {error}"
        else:
            return None
    try:
        client.inspect_container(container)
    except APIError as error:
        if _missing(error):
            return None
    return problem


def _remove_container(client: APIClient, item: dict[str, Any]) -> str:
    name = (item.get("Names") or [item["Id"][:12]])[0].lstrip("/")
    problem = remove_container(client, item["Id"])
    return f"container {name}" + (f" could not be removed: {problem}" if problem else "")


def remove_network(client: APIClient, name: str) -> str | None:
    """Remove a network; return why it is still there, or None."""
    return _quietly("", lambda: client.remove_network(name)).removeprefix(" could not be removed: ") or None


def _remove_network(client: APIClient, item: dict[str, Any]) -> str:
    return _quietly(f"network {item['Name']}", lambda: client.remove_network(item["Id"]))


def _remove_volume(client: APIClient, item: dict[str, Any]) -> str:
    return _quietly(f"volume {item['Name']}", lambda: client.remove_volume(item["Name"], force=True))


def _quietly(what: str, remove: Callable[[], object]) -> str:
    problem = ""
    for _ in range(_TRIES):
        try:
            remove()
        except APIError as error:
            if _missing(error):
                return ""
            problem = f" could not be removed: {error.explanation or error}"
            time.sleep(0.3)
        except RequestException as error:
            return f"{what} could not be removed: the engine does not answer: {error}"
        else:
            return what
    return what + problem
