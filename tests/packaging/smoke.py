"""Look into a built sdist and wheel, install the wheel in a fresh environment and run the examples with it.

python -m build --outdir DIST && python tests/packaging/smoke.py DIST
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path

PACKAGE = "pytest_agentcompass"
SDIST_HOLDS = (
    ".ci/run", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md", "conftest.py", "docs/tasks.md",
    "example_suites/examples.agentcompass.yaml", f"{PACKAGE}/py.typed", "pyproject.toml", "tests/unit/test_docs.py",
    "tox.ini",
)  # fmt: skip
WHEEL_HOLDS = (
    f"{PACKAGE}/__init__.py",
    f"{PACKAGE}/plugin/__init__.py",
    f"{PACKAGE}/py.typed",
    f"{PACKAGE}/reports/report.css",
    f"{PACKAGE}/reports/report.js",
)
EXAMPLES = 10


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of *folder* that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder}: expected one {pattern}, found {[path.name for path in found]}")
    return found[0]


def require(names: Collection[str], wanted: Sequence[str], where: Path) -> None:
    """Stop unless all of *wanted* are among *names*."""
    missing = [name for name in wanted if name not in names]
    if missing:
        raise SystemExit(f"{where.name} lacks {', '.join(missing)}")


def check_sdist(path: Path) -> None:
    """The sdist holds what is needed to build, test and read about the package, and no leftovers."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    require(names, SDIST_HOLDS, path)
    leftovers = [name for name in names if "__pycache__" in name or name.startswith("agentcompass-results")]
    if leftovers:
        raise SystemExit(f"{path.name} holds {', '.join(leftovers[:5])}")


def check_wheel(path: Path) -> None:
    """The wheel holds the package with its type marker, licence and entry points, and nothing beside it."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        points = archive.read(f"{info}/entry_points.txt").decode()
    require(names, (*WHEEL_HOLDS, f"{info}/licenses/LICENSE"), path)
    foreign = [name for name in names if name.partition("/")[0] not in (PACKAGE, info) or name.endswith(".pyc")]
    if foreign:
        raise SystemExit(f"{path.name} holds {', '.join(foreign[:5])}")
    if f"agentcompass = {PACKAGE}.plugin" not in points or f"pytest-agentcompass = {PACKAGE}.cli:main" not in points:
        raise SystemExit(f"{path.name} declares other entry points than expected:\n{points}")


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run *command* in *folder* and return what it printed; stop when it fails."""
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def try_wheel(wheel: Path, sdist: Path, folder: Path) -> None:
    """Install the wheel alone and run the sdist's examples with it."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    run([programs / "pip", "install", "--quiet", "--no-input", wheel], folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    examples = only(folder, "*/example_suites").rename(folder / "example_suites")
    printed = run([programs / "pytest", "--agentcompass", examples.name], folder)
    if f"{EXAMPLES} passed" not in printed:
        raise SystemExit(f"not all of the {EXAMPLES} examples passed:\n{printed}")
    run([programs / "pytest-agentcompass", "show", "last"], folder)
    unused = run([programs / "python", "-c", UNUSED], folder)
    if unused.strip():
        raise SystemExit(f"the unused plugin imports {unused}")


#: prints the third-party modules that a pytest run with the installed but unused plugin imports
UNUSED = """
import sys, pytest
pytest.main(["--co", "-p", "no:terminal"])
print(*[name for name in ("docker", "pydantic", "yaml", "junitparser", "portalocker") if name in sys.modules])
"""


def main() -> None:
    """Check the folder that the first argument names."""
    dist = Path(sys.argv[1]).resolve()
    sdist, wheel = only(dist, "*.tar.gz"), only(dist, "*.whl")
    check_sdist(sdist)
    check_wheel(wheel)
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, sdist, Path(folder))
    print(f"{sdist.name} and {wheel.name} are complete, and the examples pass")


if __name__ == "__main__":
    main()
