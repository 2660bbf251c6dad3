"""The pytest layer: thin hooks, loaded in every pytest run of everyone who installed the plugin.

Nothing heavy is imported here: without `--agentcompass` the plugin adds its options and markers
and is done.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from .options import SELECTED, add_options, existing_paths, is_active, option, split_paths

__all__: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare our hooks, which conftest.py files may implement."""
    from .. import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Let pytest load the conftest.py files of the paths among our words as it does for its own arguments."""
    known = early_config.known_args_namespace
    words = getattr(known, "agentcompass", None) or []
    known.file_or_dir = [*known.file_or_dir, *existing_paths(words, early_config.invocation_params.dir)]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Give pytest the paths among our words (also in xdist workers); `show-config` ends here."""
    if is_active(config):
        if SELECTED not in config.stash:
            split_paths(config)
        if option(config, "show_config"):
            from .show import show

            return show(config)
    return None


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Choose the number of workers of `-n auto` by `concurrency`."""
    if not is_active(config):
        return None
    if SELECTED not in config.stash:
        split_paths(config)
    from .control import asked_concurrency
    from .scheduling import auto_workers

    return auto_workers(asked_concurrency(config))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register markers always, and everything else only when asked for."""
    config.addinivalue_line(
        "markers", "agentcompass(**settings): run this test once per task and attempt (needs --agentcompass)"
    )
    if is_active(config):
        from .session import activate

        activate(config)


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Skip marked tests of the user's own when no run was asked for: nobody starts a costly run by typing pytest."""
    if not is_active(config):
        reason = "a benchmark test: give --agentcompass to run it"
        for item in items:
            if item.get_closest_marker("agentcompass"):
                item.add_marker(pytest.mark.skip(reason=reason))
