"""Command-line options, and the words that `--agentcompass` takes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "SELECTED",
    "add_options",
    "existing_paths",
    "is_active",
    "option",
    "setting_words",
    "split_paths",
    "start_folder",
]

#: node ids of ours that were pasted on the command line
SELECTED: pytest.StashKey[list[str]] = pytest.StashKey()

_ID = re.compile(r"(?:\.\./)*(agentcompass::.*)", re.DOTALL)
_SETTING = re.compile(r"[A-Za-z_][\w.]*=")


class _Words(argparse.Action):
    """Collect words over several uses of the option; plain argparse would keep the last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        words = list(getattr(namespace, self.dest) or [])
        words.extend([values] if isinstance(values, str) else values or [])
        setattr(namespace, self.dest, words)


_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("config", {"action": "append", "metavar": "FILE", "help": "a configuration file (repeatable; later ones win)"}),
    (
        "show-config",
        {"action": "store_true", "help": "print the resolved requests with where each value came from, and stop"},
    ),
    ("results", {"metavar": "DIR", "help": "where run directories go (default: agentcompass-results under rootdir)"}),
    ("run-id", {"metavar": "ID", "help": "the name of this run's directory (default: time stamp and random)"}),
    ("resume", {"metavar": "RUN|DIR|last", "help": "go on with a run: finished attempts are kept (write it with =)"}),
    ("resume-anyway", {"action": "store_true", "help": "resume although fingerprints differ; the report says so"}),
    (
        "gate",
        {
            "action": "append",
            "metavar": "EXPR",
            "help": "what results must show, say 'pass@1 >= 0.4' (repeatable); decides the exit code: 0, 1, 11 or 12",
        },
    ),
    ("baseline", {"metavar": "RUN_DIR|FILE", "help": "the run, or its summary.json, that gates compare with"}),
    (
        "gate-unresolved",
        {
            "metavar": "CHOICE",
            "help": "how attempts that did not pass appear in JUnit where gates decide: failure, skipped or passed",
        },
    ),
    ("shard", {"metavar": "I/N", "help": "run part I of N of the tasks; join the parts with `merge`"}),
    ("shard-timings", {"metavar": "RUN_DIR|FILE", "help": "an earlier run whose durations balance the shards"}),
)


def add_options(parser: pytest.Parser) -> None:
    """Add `--agentcompass` and its companions, each also settable in the ini file."""
    group = parser.getgroup("agentcompass", "agent benchmarks (pytest-agentcompass)")
    group.addoption(
        "--agentcompass",
        action=_Words,
        nargs="*",
        default=None,
        metavar="WORD",
        help="run agent benchmarks: KEY=VALUE settings (benchmark=ID harness=ID model=ID attempts=K ...) and paths of "
        "*.agentcompass.yaml suites; without it suites are never collected",
    )
    for name, keywords in _OPTIONS:
        group.addoption(f"--agentcompass-{name}", default=None, **keywords)
        kind = {"append": "linelist", "store_true": "bool"}.get(keywords.get("action", ""), "string")
        parser.addini(f"agentcompass_{name.replace('-', '_')}", help=keywords["help"], type=kind, default=None)  # type: ignore[arg-type]
    parser.addini(
        "agentcompass_harmless_fixtures",
        type="args",
        default=[],
        help="autouse fixtures that need not run before an attempt starts (concurrency=N in one process)",
    )


def is_active(config: pytest.Config) -> bool:
    """Whether this run was asked for agent benchmarks."""
    return config.getoption("agentcompass", None) is not None


def option(config: pytest.Config, name: str) -> Any:
    """Return the option `--agentcompass-<name>`, else the ini value."""
    key = f"agentcompass_{name.replace('-', '_')}"
    value = config.getoption(key, None)
    return value if value is not None else config.getini(key) or None


def start_folder(config: pytest.Config) -> Path:
    """Return the folder in which the run was started; a worker may have been sent into another."""
    given = getattr(config, "workerinput", {}).get("agentcompass_cwd")
    return Path(given) if given else config.invocation_params.dir


def setting_words(config: pytest.Config) -> list[str]:
    """Return the KEY=VALUE words."""
    return list(config.getoption("agentcompass"))


def _is_setting(word: str) -> bool:
    return "::" not in word.partition("=")[0] and _ID.fullmatch(word) is None and _SETTING.match(word) is not None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL: no file, so a setting
        return False


def existing_paths(words: Sequence[str], folder: Path) -> list[str]:
    """Return the words that are paths of files and folders, seen from *folder*; a node id counts by its file."""
    return [word for word in words if (path := word.partition("::")[0]) and _exists(folder / path)]


def split_paths(config: pytest.Config) -> None:
    """Sort all words: settings and our node ids out of pytest's arguments, paths into them.

    A word with `=` is a setting wherever it stands (`--agentcompass benchmark=x -q attempts=2` too), unless
    a file of that name exists. With settings and without any path, pytest collects nothing of its own.
    """
    given = list(config.args) if config.args_source is pytest.Config.ArgsSource.ARGS else []
    everything = [*config.getoption("agentcompass"), *given]
    if option(config, "resume") and all(_is_setting(word) and not word.startswith("benchmark") for word in everything):
        keys = {word.partition("=")[0] for word in everything}
        everything += [word for word in _stored_command(config) if word.partition("=")[0] not in keys]
    settings = [word for word in everything if _is_setting(word) and not _exists(start_folder(config) / word)]
    rest = [word for word in everything if word not in settings]
    config.option.agentcompass = settings
    config.stash[SELECTED] = [match[1] for word in rest if (match := _ID.fullmatch(word))]
    paths = [word for word in rest if _ID.fullmatch(word) is None]
    if everything:
        config.args[:] = paths


def _stored_command(config: pytest.Config) -> list[str]:
    """Return the words and paths that the run to resume was started with."""
    from pathlib import Path

    from ..errors import AgentCompassError
    from ..results.resume import find_run
    from ..results.rundir import RunDirectory

    results = start_folder(config) / (option(config, "results") or config.rootpath / "agentcompass-results")
    try:
        run = RunDirectory.open(find_run(Path(results), str(option(config, "resume"))))
        command = run.read_run_info().get("command") or {}
    except AgentCompassError as error:
        raise pytest.UsageError(error.message) from None
    return [*command.get("settings", []), *command.get("paths", [])]
