"""The public face of the package: names, modules, errors."""

from __future__ import annotations

import importlib
import inspect
import pickle
from pathlib import Path

import pytest

import pytest_agentcompass
from pytest_agentcompass import errors

PACKAGE = Path(pytest_agentcompass.__file__).parent
MODULES = sorted(
    ".".join(["pytest_agentcompass", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py"
)
ERRORS = [item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, Exception)]


def test_every_exported_name_resolves() -> None:
    """Each name in the package's `__all__` is there, is listed by dir(), and is the one of its module."""
    for name in pytest_agentcompass.__all__:
        assert getattr(pytest_agentcompass, name) is not None, name
        assert name in dir(pytest_agentcompass)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = pytest_agentcompass.Nothing


@pytest.mark.parametrize("name", MODULES)
def test_all_of_each_module(name: str) -> None:
    """`__all__` is sorted, names nothing twice, nothing private and nothing that is not there."""
    module = importlib.import_module(name)
    exported = list(getattr(module, "__all__", []))
    if name != "pytest_agentcompass":
        assert exported == sorted(set(exported), key=lambda item: (not item.isupper(), not item[0].isupper(), item))
    for item in exported:
        assert hasattr(module, item), item
        assert not item.startswith("_") or item == "__version__"


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_errors_pickle(kind: type[errors.AgentCompassError]) -> None:
    """Every error crosses a process boundary with its type, message and data."""
    error = kind("what is wrong", key="value")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.message, vars(again)["key"], again.failure_mode) == ("what is wrong", "value", error.failure_mode)
    assert isinstance(again, errors.AgentCompassError)


def test_all_errors_of_the_package_are_of_one_tree() -> None:
    """Each exception class that a module of ours defines derives from AgentCompassError."""
    inside = {"pytest_agentcompass.metrics.gates.values.Undefined"}  # control flow of one package; never leaves it
    for name in MODULES:
        module = importlib.import_module(name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Exception) and kind.__module__ == name and not kind.__name__.startswith("_"):
                where = f"{name}.{kind.__name__}"
                assert issubclass(kind, errors.AgentCompassError) or where in inside, where
