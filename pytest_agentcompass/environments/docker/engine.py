"""The connection to the Docker engine: one per process, made when it is first needed."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import docker
import docker.utils
import requests
import requests.exceptions
import urllib3.exceptions
from docker.errors import APIError, DockerException, TLSParameterError, create_api_error_from_http_exception

from ...errors import EnvironmentGone, SandboxError

__all__ = [
    "Engine",
    "answering_engine",
    "engine",
    "engine_errors",
    "forget_engine",
    "is_gone",
    "raise_for_status",
    "with_retries",
]

# Starts that take over a minute happen on busy engines: the limit is only there for dead ones.
READ_TIMEOUT = 900
_CONNECTIONS = 512
_RETRY_DELAYS = (0.5, 1.0, 2.0)
_NETWORK_ERRORS = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError)

T = TypeVar("T")
_lock = threading.Lock()
_engine: Engine | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that has answered: its SDK client (thread safe) and where it listens.

    *address* is `unix:///path` or `tcp://host:port`, *tls* the context for the latter.
    """

    client: docker.APIClient
    address: str
    tls: ssl.SSLContext | None
    pid: int

    def url(self, path: str) -> str:
        """Return the URL of an API *path* for the client's own HTTP methods."""
        return f"{self.client.base_url}/v{self.client.api_version}{path}"

    @property
    def local(self) -> bool:
        """Whether the engine is behind a socket of this machine."""
        return self.address.startswith("unix://")


def _context_host() -> str | None:
    """Return the address of the Docker CLI's current context, which the SDK does not read by itself."""
    try:
        context = docker.ContextAPI.get_current_context()
    except (DockerException, OSError, ValueError, AttributeError):
        return None
    host = getattr(context, "Host", None)
    return host if isinstance(host, str) and host.startswith(("unix://", "tcp://")) else None


def _tls_context(config: Any) -> ssl.SSLContext | None:
    if not config:
        return None
    context = ssl.create_default_context(cafile=config.ca_cert or None)
    if not config.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if config.cert:
        context.load_cert_chain(*config.cert)
    return context


def _connect() -> Engine:
    settings = docker.utils.kwargs_from_env()
    address = settings.get("base_url") or _context_host() or "unix:///var/run/docker.sock"
    if address.startswith("http"):
        address = "tcp" + address[address.index(":") :]
    if not address.startswith(("unix://", "tcp://")):
        raise SandboxError(f"DOCKER_HOST is {address!r}: only unix:// and tcp:// addresses are supported")
    client = docker.APIClient(
        base_url=address,
        version="auto",
        timeout=READ_TIMEOUT,
        tls=settings.get("tls", False),
        max_pool_size=_CONNECTIONS,
    )
    return Engine(client, address, _tls_context(settings.get("tls")), os.getpid())


def engine() -> Engine:
    """Return this process's engine; SandboxError when none answers."""
    global _engine
    with _lock:
        if _engine is None or _engine.pid != os.getpid():
            try:
                _engine = _connect()
            except (DockerException, TLSParameterError, *_NETWORK_ERRORS) as error:
                raise _unreachable(error) from error
        return _engine


def answering_engine() -> Engine:
    """Return this process's engine, which has answered just now; SandboxError when it does not."""
    found = engine()
    try:
        found.client.ping()
    except (DockerException, *_NETWORK_ERRORS) as error:
        raise _unreachable(error) from error
    return found


def forget_engine() -> None:
    """Drop the connection; the next call of `engine` looks again."""
    global _engine
    with _lock:
        if _engine is not None and _engine.pid == os.getpid():
            _engine.client.close()
        _engine = None


def _unreachable(error: BaseException) -> SandboxError:
    where = os.environ.get("DOCKER_HOST") or "the default address (DOCKER_HOST is not set)"
    return SandboxError(
        f"no Docker engine answers at {where}: start it, set DOCKER_HOST, or use environment=host_process "
        f"({_short(error)})"
    )


def _short(error: BaseException) -> str:
    text = str(getattr(error, "explanation", None) or error)
    return text.strip().replace("\n", " ")[:500]


def raise_for_status(response: requests.Response) -> None:
    """Raise the SDK's APIError for an error response, as the SDK's own calls do."""
    try:
        response.raise_for_status()
    except requests.exceptions.HTTPError as error:
        create_api_error_from_http_exception(error)


def is_gone(error: APIError) -> bool:
    """Whether *error* says that the container (or the exec in it) does not exist or does not run any more."""
    text = str(error.explanation or error).lower()
    status = error.response.status_code if error.response is not None else 0
    if status == 404:
        return "no such container" in text or "no such exec" in text
    stopped = "is not running" in text or "is paused" in text or "is restarting" in text or "has stopped" in text
    return status in (409, 500) and (stopped or "marked for removal" in text)


@contextlib.contextmanager
def engine_errors(doing: str, gone: Callable[[], str] | None = None) -> Iterator[None]:
    """Turn the SDK's errors (they do not pickle) into ours.

    *doing* is said in the message. With *gone*, errors that say that the container vanished become
    `EnvironmentGone` with the cause that *gone* returns.
    """
    try:
        yield
    except APIError as error:
        if gone is not None and is_gone(error):
            raise EnvironmentGone(gone() or f"{doing}: {_short(error)}") from error
        raise SandboxError(f"{doing}: the engine refused: {_short(error)}") from error
    except DockerException as error:
        raise SandboxError(f"{doing}: {_short(error)}") from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        raise SandboxError(f"{doing}: the Docker engine does not answer ({_short(error)})") from error


def with_retries(function: Callable[[], T], count: Callable[[], None], clean: Callable[[], None]) -> T:
    """Call *function*; on a server error of the engine wait a little, *clean* up, *count* it and try again."""
    for delay in _RETRY_DELAYS:
        try:
            return function()
        except APIError as error:
            if not error.is_server_error():
                raise
        time.sleep(delay)
        count()
        clean()
    return function()
