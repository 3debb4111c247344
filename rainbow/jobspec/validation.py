"""A jobspec before it is read: values that a store can keep without loss, its dialect's JSON Schema, unknown keys."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any

import yaml

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.yaml_reader import TOO_MUCH, Limits, Path, WrittenFloat, WrittenInt, step
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
    if text := wrong_value(name, fault):
        return text
    return f"{name}: {fault.message[:200]}"


def wrong_value(name: str, fault: jsonschema.ValidationError) -> str:
    """Say that a value is of a wrong type, or none of those that may be; empty: something else is wrong."""
    if fault.validator not in ("type", "enum"):
        return ""
    requirements, got = _values(fault), as_json(fault.instance)
    if fault.validator == "enum":
        return f"{name} must be one of {', '.join(map(as_json, requirements))}, got {got}"
    is_bare = requirements == ["string"] and isinstance(fault.instance, (bool, int, float))
    return f"{name} must be {' or '.join(requirements)}, got {got}{'; write it in quotes' * is_bare}"


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
    return shortened(_unknown_keys(document, dialect), lambda result: unread(*result))


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


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(tag: str) -> Any:
    return lambda dumper, number: dumper.represent_scalar(f"tag:yaml.org,2002:{tag}", str(number))


_Dumper.add_representer(WrittenInt, _represent("int"))
_Dumper.add_representer(WrittenFloat, _represent("float"))
_COMPACT: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "allow_unicode": True, "width": 1 << 20}


def keeping(document: Any) -> Any:
    """Return a document as it is, or as YAML where its numbers have texts of their own, which JSON would drop.

    >>> from rainbow.jobspec.yaml_reader import load
    >>> keeping({"a": 1.1}), keeping(load("a: 1.10", Limits())[0])
    ({'a': 1.1}, '{a: 1.10}\\n')
    """
    if not _has_texts(document):
        return document
    text: str = yaml.dump(document, Dumper=_Dumper, **_COMPACT)
    return text if len(text) <= Limits().size else document  # what is kept must be read again


def _has_texts(document: Any) -> bool:
    stack = [document]
    while stack:
        part = stack.pop()
        if isinstance(part, (WrittenInt, WrittenFloat)):
            return True
        stack.extend(part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ())
    return False


_BITS = 64


def _plain_copy(document: Any, limits: Limits) -> Any:
    """Copy a small document of plain values at once; None: it needs a closer look."""
    remaining = [min(limits.values, MOST_PLAIN)]

    def copy(part: Any, depth: int) -> Any:
        remaining[0] -= 1
        kind = type(part)
        if remaining[0] < 0 or depth < 0:
            raise ValueError(part)
        if kind is dict:
            return {key: copy(value, depth - 1) for key, value in part.items() if is_text(key)}
        if kind is list:
            return [copy(value, depth - 1) for value in part]
        if kind in _PLAIN or (kind is int and -_SMALL < part < _SMALL) or (kind is str and is_text(part)):
            return part
        raise ValueError(part)

    def is_text(text: Any) -> bool:
        if type(text) is str and len(text) <= most and text.isascii() and "\0" not in text:
            return True
        raise ValueError(text)

    most = min(limits.key, limits.size // MOST_PLAIN)
    try:
        return copy(document, min(limits.depth, MOST_DEPTH))
    except ValueError:
        return None


MOST_PLAIN, MOST_DEPTH, _SMALL = 1_000, 30, 1 << 63  # values and levels that are copied without a closer look
_PLAIN = {bool, type(None)}


class _Copying:
    """Copies a document value by value; a fault says where."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.path = Path()
        self.values = 0
        self.size = 0

    def copy(self, part: Any, depth: int) -> Any:
        self._count(part, depth)
        if isinstance(part, Mapping):
            return {self._key(key): self._below(key, item, depth) for key, item in part.items()}
        if isinstance(part, (list, tuple)):
            return [self._below(k, item, depth) for k, item in enumerate(part)]
        return self._scalar(part)

    def _below(self, key: str | int, part: Any, depth: int) -> Any:
        with self.path.below(key):
            return self.copy(part, depth + 1)

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise self._fault("a key must be text")
        if len(key) > self.limits.key:
            raise self._limit(f"a key of {len(key)} characters, the limit is {self.limits.key}", "key")
        return self._text(key)

    def _scalar(self, part: Any) -> Any:
        if isinstance(part, str):
            return self._text(part)
        if part is None or isinstance(part, bool):
            return part
        if isinstance(part, int):
            if part.bit_length() > _BITS:
                raise self._fault(f"a whole number of more than {_BITS} bits")
            return part
        if isinstance(part, float):
            if not math.isfinite(part):
                raise self._fault("a number must be finite")
            return part
        raise self._fault(f"{type(part).__name__} is nothing a jobspec can hold")

    def _text(self, text: str) -> str:
        if "\0" in text:
            raise self._fault("text cannot hold a NUL character")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise self._fault("text cannot hold half a surrogate pair")
        return text

    def _count(self, part: Any, depth: int) -> None:
        self.values += 1
        self.size += len(part) if isinstance(part, str) else 0
        for limit, result in (("values", self.values), ("depth", depth), ("size", self.size)):
            most = getattr(self.limits, limit)
            if result > most:
                raise self._limit(f"{TOO_MUCH[limit]}; the limit is {most:,}", limit)

    def _fault(self, message: str) -> JobspecError:
        return JobspecError(message, pointer=str(self.path))

    def _limit(self, message: str, limit: str) -> LimitError:
        return LimitError(message, pointer=str(self.path), limit=limit)


def sound(document: Any, limits: Limits) -> Any:
    """Copy a document, refusing what no jobspec can hold; what is given as Python is held to the limits of text."""
    if (result := _plain_copy(document, limits)) is not None:
        return result
    return _Copying(limits).copy(document, 0)
