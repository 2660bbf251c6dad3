"""What the installed plugin costs when it is not used, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .helpers import Suite

PACKAGE = Path(__file__).parents[2] / "pytest_agentcompass"
MODULES = sorted(
    ".".join(["pytest_agentcompass", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py"
)
LEAVES = {"errors", "redaction", "__version__"}
CORE = {"contracts", "components"}
#: who may import whom; every layer may import the leaves
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "redaction": set(),
    "contracts": set(),
    "components": {"contracts"},
    "hookspecs": CORE,
    "config": CORE,
    "planning": CORE,
    "results": CORE,
    "metrics": CORE,
    "models": CORE,  # clients of model endpoints, for harnesses
    "execution": {*CORE, "config", "planning", "results", "metrics"},
    "reports": {*CORE, "config", "planning", "results", "metrics", "execution"},
    "benchmarks": {*CORE, "models"},
    "harnesses": {*CORE, "models"},
    "environments": CORE,
    "recipes": CORE,
    "analyzers": CORE,
}
#: the package's face and its scripts, which put everything but the pytest layer together
TOP = {"__init__", "__main__", "cli", "scripts", "regrading"}


def _imports(path: Path) -> Iterator[str]:
    """Yield the absolute names that a module imports, also inside functions and for type checking."""
    package = ["pytest_agentcompass", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            yield from (f"{module}.{name.name}" for name in node.names)


def _layer(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_layers(path: Path) -> None:
    """Imports follow the arrows; only the pytest layer knows pytest; nothing knows the pytest layer."""
    layer = _layer(path)
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] in ("pytest", "_pytest", "xdist"):
            assert layer == "plugin", f"imports {name}"
        if parts[0] == "pluggy":
            assert layer in ("plugin", "hookspecs"), f"imports {name}"
        if parts[0] == "pytest_agentcompass" and len(parts) > 1 and parts[1] != layer:
            assert parts[1] != "plugin", f"imports {name}"
            if layer not in TOP and layer != "plugin":
                assert parts[1] in ARROWS[layer] | LEAVES, f"{layer} may not import {name}"


_ALONE = """
import importlib, sys
for name in sys.argv[1:]:
    for module in [module for module in sys.modules if module.split(".")[0] == "pytest_agentcompass"]:
        del sys.modules[module]
    importlib.import_module(name)
"""


def test_each_module_imports_alone() -> None:
    """Whatever is imported first works: no import depends on another having come before."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _ALONE, *MODULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


_SHOW = """
import sys
sys.path.insert(0, '')
class Show:
    def pytest_unconfigure(self, config):
        names = {name.split('.')[0] for name in sys.modules}
        print('TOP', *sorted(names))
        print('OURS', *sorted(name for name in sys.modules if name.startswith('pytest_agentcompass')))
        plugins = [str(name) for name, _ in config.pluginmanager.list_name_plugin()]
        print('PLUGINS', *sorted(name for name in plugins if 'agentcompass' in name))
import pytest
raise SystemExit(pytest.main(sys.argv[1:], plugins=[Show()]))
"""


def _shown(suite: Suite, *args: str) -> dict[str, set[str]]:
    script = suite.write("show.py", _SHOW)
    done = subprocess.run(
        [sys.executable, str(script), *args], cwd=suite.path, env=suite.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("TOP", "OURS", "PLUGINS"))]
    return {row[0]: set(row[1:]) for row in rows}


def test_an_unused_plugin_costs_nothing(suite: Suite) -> None:
    """Without --agentcompass no third-party module and none of our heavy ones is imported, nothing registered."""
    suite.write("test_x.py", "import pytest\ndef test_x(): pass\n")
    unused = _shown(suite, "-q", "test_x.py")
    without = _shown(suite, "-q", "test_x.py", "-p", "no:agentcompass")
    new = unused["TOP"] - without["TOP"] - {"pytest_agentcompass"}
    assert new <= set(sys.stdlib_module_names), new
    assert unused["OURS"] == {
        "pytest_agentcompass",
        "pytest_agentcompass.hookspecs",
        "pytest_agentcompass.plugin",
        "pytest_agentcompass.plugin.options",
    }
    assert unused["PLUGINS"] == {"agentcompass"}
    for name in ("pydantic", "docker", "yaml", "junitparser", "portalocker"):
        assert name not in unused["TOP"]
    assert not (suite.path / "agentcompass-results").exists()


def test_options_are_shown_and_markers_known(suite: Suite) -> None:
    """`--help` and `--markers` name what the plugin adds, in an unused run too."""
    assert "--agentcompass-resume" in suite.run("--help").out
    assert "agentcompass(**settings)" in suite.run("--markers").out
