"""Command-line options, and the words that `--agentcompass` takes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["SELECTED", "add_options", "is_active", "option", "setting_words", "split_paths"]

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


def setting_words(config: pytest.Config) -> list[str]:
    """Return the KEY=VALUE words."""
    return [word for word in config.getoption("agentcompass") if _is_setting(word)]


def _is_setting(word: str) -> bool:
    return "::" not in word.partition("=")[0] and _ID.fullmatch(word) is None and _SETTING.match(word) is not None


def split_paths(config: pytest.Config) -> None:
    """Move paths among our words to pytest's arguments, and our node ids out of them.

    A word with `=` is a setting, any other is a path for pytest. Without any path of the
    user's, and with settings, pytest collects nothing of its own.
    """
    words = [word for word in config.getoption("agentcompass") if not _is_setting(word)]
    given = list(config.args) if config.args_source is pytest.Config.ArgsSource.ARGS else []
    everything = [*given, *words]
    config.stash[SELECTED] = [match[1] for word in everything if (match := _ID.fullmatch(word))]
    paths = [word for word in everything if _ID.fullmatch(word) is None]
    request_only = bool(setting_words(config) or config.stash[SELECTED]) and not paths
    if everything or request_only:
        config.args[:] = paths
