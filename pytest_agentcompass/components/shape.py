"""From a YAML tree to a pydantic model: each scalar read as its field wants it.

`shape` gives text fields the text as written (`1.10`, `no`, `007`), number and boolean fields only
what is written as such, and everything else by the rules of `yaml_file.typed`. `validate` turns
pydantic's complaints into a ConfigError that names file, line, key, what came and what is allowed.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from ..errors import ConfigError, nearest
from ..redaction import MASK, clean_text
from .yaml_file import Scalar, Seq, boolean, integer, number, typed, where

__all__ = ["explain", "node_at", "shape", "validate"]

_Model = TypeVar("_Model", bound=BaseModel)
_SHOWN = 100


def shape(node: Any, wanted: Any = Any, name: str = "") -> Any:
    """Return *node* as plain data, its scalars read as the annotation *wanted* asks.

    Raises ConfigError for a number or boolean field whose scalar is written as something else.
    """
    options = _options(wanted)
    if isinstance(node, Scalar):
        return _scalar(node, options, name)
    if isinstance(node, Mapping):
        return _mapping(node, options, name)
    if isinstance(node, list):
        item = _item_type(options)
        return [shape(value, item, f"{name}[{index}]") for index, value in enumerate(node)]
    return node


def _options(wanted: Any) -> list[Any]:
    """Return the alternatives of an annotation, without `Annotated` and aliases."""
    while get_origin(wanted) is Annotated or hasattr(wanted, "__value__"):
        wanted = get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted.__value__
    if get_origin(wanted) in (Union, types.UnionType):
        return [option for part in get_args(wanted) for option in _options(part)]
    return [wanted]


def _scalar(node: Scalar, options: list[Any], name: str) -> Any:
    real = [option for option in options if option is not type(None)]
    figure = bool(real) and all(option in (int, float, bool) for option in real)
    if figure and not node.text and not node.line:  # a word of the command line, from a variable that is not set, say
        wanted = "true or false" if real == [bool] else "a number"
        none = ", or null for none" if type(None) in options else ""
        raise ConfigError(f"{where(node)}: {name} is empty; write {wanted}{none}")
    if node.is_null:
        return None
    if figure:
        return _figure(node, real, name)
    if real and all(_is_text(option) for option in real):
        return node.text
    return node.value


def _figure(node: Scalar, options: list[Any], name: str) -> int | float | bool:
    if bool in options and node.value in (True, False) and isinstance(node.value, bool):
        return node.value
    if options == [bool]:
        return boolean(node, name)
    return number(node, name) if float in options else integer(node, name)


def _is_text(option: Any) -> bool:
    if get_origin(option) is Literal:
        return all(isinstance(value, str) for value in get_args(option))
    kinds = (str, SecretStr, PurePath)
    if not isinstance(option, type):
        return _is_sequence(option)
    return issubclass(option, kinds) or (issubclass(option, enum.Enum) and issubclass(option, str))


def _is_sequence(option: Any) -> bool:
    return get_origin(option) in (tuple, list, set, frozenset, Sequence)


def _item_type(options: list[Any]) -> Any:
    for option in options:
        arguments = get_args(option)
        if _is_sequence(option) and arguments:
            return arguments[0]
    return Any


def _mapping(node: Mapping[str, Any], options: list[Any], name: str) -> dict[str, Any]:
    prefix = f"{name}." if name else ""
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return {key: shape(value, _field_type(option, key), prefix + key) for key, value in node.items()}
        if get_origin(option) is dict or get_origin(option) is Mapping:
            wanted = get_args(option)[1]
            return {key: _entry(value, wanted, prefix + key) for key, value in node.items()}
    return {key: typed(value) for key, value in node.items()}


def _entry(value: Any, wanted: Any, name: str) -> Any:
    """Return the value of a free mapping; `KEY:` with nothing behind it is the empty text."""
    if wanted is str and isinstance(value, Scalar) and not value.quoted and not value.text:
        return ""
    return shape(value, wanted, name)


def _field_type(model: type[BaseModel], key: str) -> Any:
    field = model.model_fields.get(key)
    if field is None:
        field = next((item for item in model.model_fields.values() if item.alias == key), None)
    return Any if field is None else field.annotation


def validate(model: type[_Model], node: Any, name: str = "", *, also: Iterable[str] = ()) -> _Model:
    """Return *node* (a tree, or plain data) as a *model*.

    *name* is the dotted key under which it was written; *also* holds further keys to suggest for an
    unknown one. Raises ConfigError.
    """
    try:
        return model.model_validate(shape(node, model, name))
    except ValidationError as error:
        raise ConfigError(explain(error, model, node, name, also=also)) from error


def explain(
    error: ValidationError, model: type[BaseModel], node: Any, name: str = "", *, also: Iterable[str] = ()
) -> str:
    """Return a readable message for pydantic's *error*: one line per problem."""
    lines = []
    for problem in error.errors(include_url=False):
        loc = _keys(problem["loc"], node)
        line = _line(problem, loc, model, node, name, also)
        if line not in lines:
            lines.append(line)
    return "\n".join(lines)


def _keys(loc: Sequence[Any], node: Any) -> list[Any]:
    """Return *loc* without the names that pydantic puts in for the branches of a union."""
    keys: list[Any] = []
    for part in loc:
        branch = isinstance(part, str) and (part.endswith("]") or part in ("str", "int", "float", "bool"))
        found = node_at(node, keys)
        if not branch or (isinstance(found, Mapping) and part in found):
            keys.append(part)
    return keys


def _line(problem: Any, loc: list[Any], model: type[BaseModel], node: Any, name: str, also: Iterable[str]) -> str:
    found = node_at(node, loc)
    place = where(found)
    key = _dotted(name, loc)
    start = f"{place}: {key}" if place else key
    if problem["type"] == "extra_forbidden":
        known = {*_known_keys(model, loc[:-1]), *(also if len(loc) == 1 else ())}
        return f"{start}: unknown key {loc[-1]!r}; {nearest(str(loc[-1]), known)}"
    if problem["type"] == "missing":
        return f"{start}: is required and not set"
    return f"{start}: {_reason(problem)}, not {_came(problem, key)}"


def _reason(problem: Any) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "must be a mapping of keys to values"
    return message.replace("Input should be", "must be").replace("valid tuple", "list").replace("valid string", "text")


def _came(problem: Any, key: str) -> str:
    if "api_key" in key:
        return MASK
    shown = clean_text(repr(problem.get("input")))
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."


def _dotted(name: str, loc: Sequence[Any]) -> str:
    text = name
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text or "value"


def _known_keys(model: type[BaseModel], loc: Sequence[Any]) -> list[str]:
    current: Any = model
    for part in loc:
        options = _options(_field_type(current, str(part)) if not isinstance(part, int) else _item_type([current]))
        current = next((item for item in options if isinstance(item, type) and issubclass(item, BaseModel)), options[0])
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def node_at(node: Any, loc: Iterable[Any]) -> Any:
    """Return what stands at *loc* in a tree, or the deepest part on the way that exists."""
    for part in loc:
        inside = (isinstance(node, Mapping) and part in node) or (
            isinstance(node, Seq) and isinstance(part, int) and part < len(node)
        )
        if not inside:
            break
        node = node[part]
    return node
