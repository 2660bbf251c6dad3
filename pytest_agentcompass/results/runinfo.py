"""`run.json`: what is known of a run as a whole, and how a run directory comes into being."""

from __future__ import annotations

import platform
import secrets
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import __version__
from ..components.owner import host_name
from ..contracts.record import SCHEMA_VERSION
from ..errors import ResultsError
from ..redaction import plain
from .files import parse_json, read_bytes
from .layout import request_dirname
from .lock import lock_owner

__all__ = ["check_schema", "first_info", "make_run_path", "new_run_id", "read_info", "version_note"]

_IGNORE = "*\n"


def new_run_id(now: datetime | None = None) -> str:
    """Return a fresh run id: UTC time to the second and a random part."""
    return f"{(now or datetime.now(UTC)):%Y%m%dt%H%M%Sz}-{secrets.token_hex(4)}"


def make_run_path(results_dir: Path, run_name: str, run_id: str) -> Path:
    """Make `<results>/<run name>/<run id>/` for one run alone and return it.

    A `.gitignore` keeps results out of version control. ResultsError when the run exists already, by
    whom it is used, or when the place cannot be written.
    """
    run = results_dir / request_dirname(run_name) / request_dirname(run_id)
    try:
        _make_ignored(results_dir, run.parent)
        run.mkdir()
    except FileExistsError:
        if not run.is_dir():
            raise ResultsError(
                f"{run}: is in the way of the run's directory; choose another --agentcompass-results"
            ) from None
        raise ResultsError(_exists(run, run_id), path=str(run)) from None
    except OSError as error:
        raise ResultsError(
            f"{error.filename or run}: the run's directory cannot be made: {error.strerror}; "
            "choose another --agentcompass-results"
        ) from error
    return run.resolve()


def _make_ignored(results_dir: Path, named: Path) -> None:
    """Make both folders; the `.gitignore` goes where it can hide nothing but results."""
    ours = not results_dir.exists() or not any(results_dir.iterdir())
    named.mkdir(parents=True, exist_ok=True)
    place = (results_dir if ours else named) / ".gitignore"
    if ours or not (results_dir / ".gitignore").exists():
        try:
            with place.open("x") as file:
                file.write(_IGNORE)
        except FileExistsError:
            pass


def _exists(run: Path, run_id: str) -> str:
    owner = lock_owner(run)
    info = read_info(run)[0]
    state = f"status {info.get('status', 'unknown')}, started {info.get('started_at', 'at an unknown time')}"
    holder = f", in use by process {owner.get('pid')} on host {owner.get('host')}" if owner else ""
    return (
        f"run {run_id!r} exists already: {run} ({state}{holder}). "
        f"Go on with it by --agentcompass-resume={run_id}, or give this run another id"
    )


def first_info(run_name: str, run_id: str) -> dict[str, Any]:
    """Return what `run.json` holds from the start."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_name": run_name,
        "run_id": run_id,
        "status": "running",
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "finished_at": None,
        "versions": {
            "pytest-agentcompass": __version__,
            "pytest": _version("pytest"),
            "pytest-xdist": _version("pytest-xdist"),
            "python": platform.python_version(),
        },
        "host": {"name": host_name(), "platform": platform.platform(), "executable": sys.executable},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def read_info(run: Path) -> tuple[dict[str, Any], str]:
    """Return the content of `run.json` and, where it cannot be read, ({}, the reason)."""
    try:
        info = parse_json(read_bytes(run / "run.json"))
    except FileNotFoundError:
        return {}, "there is none"
    except (OSError, ValueError) as error:
        return {}, str(error)
    return (info, "") if isinstance(info, dict) else ({}, "not an object")


def check_schema(run: Path, info: Mapping[str, Any]) -> None:
    """Raise ResultsError when the run was written in a schema that this version does not read."""
    found = info.get("schema_version", SCHEMA_VERSION)
    if found != SCHEMA_VERSION:
        raise ResultsError(
            f"{run}: written by pytest-agentcompass {_writer(info)} in schema {found!r}; version {__version__} reads "
            f"schema {SCHEMA_VERSION}. Use the version that wrote it, or start a new run",
            path=str(run),
        )


def version_note(info: Mapping[str, Any]) -> str:
    """Return a note when another version of the plugin wrote the run, else an empty text."""
    writer = _writer(info)
    return (
        ""
        if writer in (__version__, "?")
        else f"this run was begun by pytest-agentcompass {writer}; this is {__version__}"
    )


def _writer(info: Mapping[str, Any]) -> str:
    versions = info.get("versions")
    return str(plain(versions.get("pytest-agentcompass", "?"))) if isinstance(versions, dict) else "?"
