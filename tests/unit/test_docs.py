"""What the documentation says is true: commands run, output is as shown, tables hold what the code knows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from docs_text import blocks, commands, first_column, links, pattern, plain_output

from pytest_agentcompass import __version__
from pytest_agentcompass.benchmarks.qa.params import GraderParams, QaFields, QaParams
from pytest_agentcompass.benchmarks.tasks.fields import FIELDS
from pytest_agentcompass.benchmarks.terminal_bench.params import TerminalBenchParams
from pytest_agentcompass.components.registry import KINDS, Registry
from pytest_agentcompass.config.layers import SECTIONS, SHORT_FORMS
from pytest_agentcompass.config.options import OPTION_KEYS
from pytest_agentcompass.config.words import is_setting, split_words
from pytest_agentcompass.contracts.outcome import FailureMode
from pytest_agentcompass.environments.docker.settings import DockerParams
from pytest_agentcompass.errors import ConfigError
from pytest_agentcompass.harnesses.command import CommandParams
from pytest_agentcompass.metrics.gates import GateSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.glob("*.md"))
RUN = [page for page in PAGES if any(block.language == "console" for block in blocks(page))]


#: variables that a test-suite or a CI sets, and a reader does not have
FOREIGN = ("AGENTCOMPASS_", "GITHUB_", "PYTEST_", "TOX_")


def page_id(page: Path) -> str:
    """Name a page in test ids."""
    return page.name


def clean_environment(folder: Path) -> dict[str, str]:
    """Return variables for a shown command: 80 columns, nobody's settings, no leftovers of other runs."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)])
    own = {"COLUMNS": "80", "TMPDIR": str(folder.parent), "XDG_CONFIG_HOME": str(folder.parent / "no-config")}
    return {**inherited, "PATH": path, **own, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("page", RUN, ids=page_id)
def test_commands_run_as_shown(page: Path, tmp_path: Path) -> None:
    """Every console command of a page ends with the stated status and prints what is shown, in one folder."""
    here = tmp_path / "checkout"
    shutil.copytree(ROOT / "example_suites", here / "example_suites")
    environment = clean_environment(here)
    for block in blocks(page):
        if "title" in block.words:
            (here / block.words["title"]).write_text(block.text, encoding="utf-8")
        if block.language != "console":
            continue
        for command in commands(block):
            done = subprocess.run(
                ["/bin/sh", "-c", command.text], cwd=here, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            place = f"{page.name}:{command.line}: $ {command.text}\n{done.stdout}"
            assert done.returncode == command.status, place
            output = "".join(f"{line}\n" for line in plain_output(done.stdout, here))
            assert pattern(command.output).fullmatch(output), place


def test_settings_table() -> None:
    """The README's table of settings is what the code knows: every short form, its full key, what it does."""
    rows = [f"| `{name}` | `{key}` | {what} |" for name, (key, what) in SHORT_FORMS.items()]
    shown = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line in rows]
    assert shown == rows
    assert first_column(ROOT / "README.md", "setting") == list(SHORT_FORMS)


@pytest.mark.parametrize("section", SECTIONS)
def test_section_tables(section: str) -> None:
    """Each section's table in configuration.md holds the section's fields, all of them and no other."""
    assert set(first_column(DOCS / "configuration.md", section)) == set(SECTIONS[section].model_fields)


def test_runtime_options_table() -> None:
    """The table of process options holds the keys of a `runtime` section."""
    assert set(first_column(DOCS / "configuration.md", "process option")) == set(OPTION_KEYS)


def test_command_line_options_table() -> None:
    """The table of pytest options holds every option that `pytest --help` shows of ours."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"], capture_output=True, text=True, check=True, cwd=DOCS,
        env=clean_environment(DOCS),
    )  # fmt: skip
    offered = set(re.findall(r"^\s+(--agentcompass[\w-]*)", done.stdout, flags=re.MULTILINE))
    assert offered
    assert {name.partition("=")[0] for name in first_column(DOCS / "configuration.md", "option")} == offered


def test_verbs_table() -> None:
    """The table of verbs holds every verb of the command."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest_agentcompass", "--help"], capture_output=True, text=True, check=True, cwd=DOCS
    )
    offered = set(re.findall(r"^ {4}([a-z-]+)(?:  |$)", done.stdout.partition("verbs:")[2], flags=re.MULTILINE))
    assert offered
    assert {name.partition(" ")[0] for name in first_column(DOCS / "results.md", "verb")} == offered


@pytest.mark.parametrize(
    ("page", "header", "known"),
    [
        ("tasks.md", "field", FIELDS),
        ("harnesses.md", "param of command", CommandParams.model_fields),
        ("environments.md", "param of docker", DockerParams.model_fields),
        ("terminal-bench.md", "param", TerminalBenchParams.model_fields),
        ("gates.md", "gate setting", GateSettings.__dataclass_fields__),
        ("questions.md", "param of qa", QaParams.model_fields),
        ("questions.md", "column of fields", QaFields.model_fields),
        ("questions.md", "grader", get_args(GraderParams.model_fields["kind"].annotation)),
        ("trajectories.md", "analyzer", Registry().ids("analyzer")),
        ("models.md", "param of agents with a model", ["model_retries", "prices", "request_timeout", "stream"]),
        ("results.md", "failure mode", [mode.value for mode in FailureMode]),
    ],
)
def test_other_tables(page: str, header: str, known: object) -> None:
    """Tables of fields, params and failure modes are complete and name nothing else."""
    shown = first_column(DOCS / page, header)
    assert len(shown) == len(set(shown))
    assert set(shown) == set(known)  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", ["benchmark", "harness", "environment"])
def test_built_in_components_are_documented(kind: str) -> None:
    """Every built-in benchmark, harness and environment is named in the pages."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [id for id in Registry().ids(kind) if f"`{id}`" not in text]
    assert not missing


def test_kinds_are_documented() -> None:
    """The page about extensions names every kind of component."""
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_words_of_commands_are_known(page: Path) -> None:
    """Settings in commands that are shown and not run (they need Docker or a model) would be accepted."""
    for block in blocks(page):
        if block.language not in ("sh", "console") or block.words.get("status") == "4":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            if "--agentcompass " not in line:
                continue
            given = shlex.split(line.partition("--agentcompass ")[2], comments=True)
            try:
                split_words([word for word in given if is_setting(word)])
            except ConfigError as error:
                pytest.fail(f"{page.name}:{block.line}: {error.message}")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links resolve to files of the checkout."""
    targets = [target.partition("#")[0] for target in links(page) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_readme_commands_are_those_of_ci() -> None:
    """The second command of the README is what CI runs."""
    second = next(
        line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if "-e '.[test]'" in line
    )
    assert second.strip() in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_architecture_names_every_part() -> None:
    """The page about the architecture names every folder of the package."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    folders = [path.parent.name for path in (ROOT / "pytest_agentcompass").glob("*/__init__.py")]
    assert folders
    assert [name for name in folders if f"`{name}/`" not in text] == []


def test_changelog_names_the_version() -> None:
    """The changelog has a section for the package's version."""
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
