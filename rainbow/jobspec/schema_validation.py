"""A jobspec against the JSON Schema of its dialect, and its unknown keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any

from rainbow.errors import JobspecError
from rainbow.jobspec.yaml_reader import step
from rainbow.text import as_json, meant, shortened, unread

if TYPE_CHECKING:
    import jsonschema

Unread = tuple[str, str, Iterable[str]]  # pointer, key, the keys there are in its place


@cache
def schema(dialect: str) -> dict[str, Any]:
    """Return the JSON Schema of a dialect: rfc14, founding or nextgen."""
    text = resources.files("rainbow.jobspec").joinpath(f"schemas/{dialect}.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _validator(dialect: str) -> Any:
    import jsonschema  # a command line that prints jobs needs none of it, and it takes a tenth of a second

    # to JSON Schema 2.0 is an integer, to what counts with it in Python it is not
    types = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole)
    extend: Any = jsonschema.validators.extend
    strict, whole = extend(jsonschema.Draft202012Validator, type_checker=types), schema(dialect)
    # quantities.py reads counts and says better what is wrong with one
    return strict({**whole, "$defs": {**whole["$defs"], "count": True}})


@cache
def _fast_validator(dialect: str) -> Any:
    import jsonschema_rs

    whole = _marked(schema(dialect))
    form = {**whole, "$defs": {**whole["$defs"], "count": True}}
    return jsonschema_rs.validator_for(form, keywords={"whole": _Whole})


class _Whole:
    """The keyword of _marked: no fraction."""

    def __init__(self, _schema: object, _value: object, _path: object) -> None:
        pass

    def validate(self, instance: object) -> None:
        if isinstance(instance, float):
            raise ValueError(instance)


def _marked(form: Any) -> Any:
    """Return a schema in which 2.0 is no integer."""
    if isinstance(form, list):
        return [_marked(part) for part in form]
    if not isinstance(form, dict):
        return form
    marked = {key: _marked(value) for key, value in form.items()}
    return {**marked, "whole": True} if form.get("type") == "integer" else marked


def _is_valid(document: Any, dialect: str) -> bool:
    try:
        return bool(_fast_validator(dialect).is_valid(document))
    except ValueError:  # numbers that remember their text
        return False


def _is_whole(checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check(document: Any, dialect: str) -> None:
    """Refuse a document that is not of its dialect's form; what the fast validator refuses the other explains."""
    if _is_valid(document, dialect):
        return
    faults = islice(_validator(dialect).iter_errors(document), MOST_FAULTS)
    fault = min(faults, key=lambda fault: len(fault.absolute_path), default=None)  # the outermost, of these the first
    if fault is not None:
        pointer = "".join(f"/{step(part)}" for part in fault.absolute_path)
        raise JobspecError(_words(fault), pointer=pointer + _extra(fault))


def _extra(fault: jsonschema.ValidationError) -> str:
    """Point at an unknown key itself, not at the mapping that has it."""
    unknown = _unknown(fault)
    return f"/{step(unknown)}" if unknown else ""


def _unknown(fault: jsonschema.ValidationError) -> str:
    if fault.validator != "additionalProperties" or not isinstance(fault.instance, Mapping):
        return ""
    return next((key for key in fault.instance if key not in _known(fault)), "")


def _known(fault: jsonschema.ValidationError) -> list[str]:
    return list(fault.schema["properties"]) if isinstance(fault.schema, Mapping) else []


def _words(fault: jsonschema.ValidationError) -> str:
    name = _name([*fault.absolute_path])
    if unknown := _unknown(fault):
        hint = meant(unknown, _known(fault))
        return f"unknown key {unknown} in {name}; {hint and f'{hint} '}valid keys: {', '.join(_known(fault))}"
    if fault.validator == "required":
        missing = [key for key in _values(fault) if key not in _mapping(fault.instance)]
        return f"missing key in {name}: {', '.join(missing)}"
    if told := wrong_value(name, fault):
        return told
    return f"{name}: {fault.message[:200]}"


def wrong_value(name: str, fault: jsonschema.ValidationError) -> str:
    """Say that a value is of a wrong type, or none of those that may be; empty: something else is wrong."""
    if fault.validator not in ("type", "enum"):
        return ""
    wanted, got = _values(fault), as_json(fault.instance)
    if fault.validator == "enum":
        return f"{name} must be one of {', '.join(map(as_json, wanted))}, got {got}"
    is_bare = wanted == ["string"] and isinstance(fault.instance, (bool, int, float))
    return f"{name} must be {' or '.join(wanted)}, got {got}{'; write it in quotes' * is_bare}"


def _name(path: list[str | int]) -> str:
    """Name what a path leads to: command[1], as 1 alone names nothing."""
    if not path:
        return "the jobspec"
    end = next((k for k in range(len(path) - 1, 0, -1) if isinstance(path[k], str)), 0)
    return str(path[end]) + "".join(f"[{step}]" for step in path[end + 1 :])


def _values(fault: jsonschema.ValidationError) -> list[str]:
    value: Any = fault.validator_value
    return value if isinstance(value, list) else [value]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def unknown_keys(document: Any, dialect: str) -> Iterator[str]:
    """Yield a warning for every key that the dialect's schema does not know: nothing is silently ignored."""
    return shortened(_unknown_keys(document, dialect), lambda found: unread(*found))


def _unknown_keys(document: Any, dialect: str) -> Iterator[Unread]:
    whole = schema(dialect)
    stack = [(document, whole, "")]
    while stack:
        value, form, pointer = stack.pop()
        form = whole["$defs"][form["$ref"].rsplit("/", 1)[1]] if "$ref" in form else form
        if isinstance(value, list) and "items" in form:
            stack.extend((item, form["items"], f"{pointer}/{k}") for k, item in enumerate(value))
        if not isinstance(value, dict):  # as `sound` copies every mapping
            continue
        known, others = form.get("properties"), form.get("additionalProperties")
        for key, item in value.items():
            below = known[key] if known is not None and key in known else others
            if not isinstance(below, dict):
                if known is not None:
                    yield f"{pointer}/{step(key)}", key, known
            elif isinstance(item, (dict, list)):
                stack.append((item, below, f"{pointer}/{step(key)}"))


MOST_FAULTS = 100  # looked at; a large document may have a fault in every line
