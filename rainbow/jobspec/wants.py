"""What a job wants of subsystems: needs, in every dialect's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.request import Condition, Need
from rainbow.jobspec.text import step
from rainbow.jobspec.version import coerce
from rainbow.jobspec.written import as_text

Scalar = (str, int, float, bool)
MOST_NAMES = 1_000_000  # hosts and ranks of one constraint


def task_needs(resources: Any, pointer: str) -> tuple[Need, ...]:
    """Read `task.resources`: {subsystem: {match: [...], range: [...]}} or {subsystem: {key: value}}."""
    needs: list[Need] = []
    for subsystem, wanted in mapping(resources, pointer).items():
        at = f"{pointer}/{step(subsystem)}"
        for key, value in mapping(wanted, at).items():
            here = f"{at}/{step(key)}"
            if key in ("match", "range") and isinstance(value, list):
                needs.extend(Need(subsystem, tuple(_item(key, item, f"{here}/{k}"))) for k, item in enumerate(value))
            elif isinstance(value, Scalar):
                needs.append(Need(subsystem, (Condition("flat", {"field": key, "value": as_text(value)}),)))
            else:
                raise JobspecError("a need is match: [...], range: [...] or key: value", pointer=here)
    return tuple(needs)


def _item(matcher: str, item: Any, pointer: str) -> Iterator[Condition]:
    """Read one entry of match or range; `all` holds several conditions for the same vertex."""
    entry = mapping(item, pointer)
    if "all" in entry:
        for k, part in enumerate(listing(entry["all"], f"{pointer}/all")):
            kind = "range" if isinstance(part, Mapping) and {"min", "max"} & set(part) else "match"
            yield from _item(kind, part, f"{pointer}/all/{k}")
    elif matcher == "range":
        yield _range(entry.get("field"), entry, pointer)
    elif "field" in entry:
        yield _match(entry["field"], entry.get("value"), pointer)
    else:
        if not entry:
            raise JobspecError("an empty need asks for nothing", pointer=pointer)
        yield from (_match(field, value, f"{pointer}/{step(field)}") for field, value in entry.items())


def requires(entries: Any, pointer: str) -> tuple[Need, ...]:
    """Read `requires: [{name, field, match | min | max, group?}]`; entries of one name and group are one need."""
    together: dict[tuple[str, str], list[Condition]] = {}
    for k, value in enumerate(listing(entries, pointer)):
        at = f"{pointer}/{k}"
        entry = mapping(value, at)
        if not isinstance(entry.get("name"), str):
            raise JobspecError("a need names its subsystem", pointer=f"{at}/name" if "name" in entry else at)
        group = str(entry["group"]) if "group" in entry else f"#{k}"
        together.setdefault((entry["name"], group), []).extend(_required(entry, at))
    return tuple(Need(name, tuple(conditions)) for (name, _), conditions in together.items())


def _required(entry: Mapping[str, Any], pointer: str) -> Iterator[Condition]:
    if "all" in entry:
        for k, part in enumerate(listing(entry["all"], f"{pointer}/all")):
            yield from _required(mapping(part, f"{pointer}/all/{k}"), f"{pointer}/all/{k}")
        return
    if "match" in entry or "value" in entry:
        yield _match(entry.get("field", "type"), entry.get("match", entry.get("value")), pointer)
    if "min" in entry or "max" in entry:
        yield _range(entry.get("field"), entry, pointer)
    if not {"match", "value", "min", "max"} & set(entry):
        raise JobspecError("a need says match, min or max", pointer=pointer)


def _match(field: Any, value: Any, pointer: str) -> Condition:
    if not isinstance(field, str) or not field:
        raise JobspecError("field must be text", pointer=pointer)
    if not isinstance(value, Scalar):
        raise JobspecError(f"the value of {field} must be text, a number or a boolean", pointer=pointer)
    return Condition("match", {"field": field, "value": as_text(value)})


def _range(field: Any, entry: Mapping[str, Any], pointer: str) -> Condition:
    if not isinstance(field, str) or not field:
        raise JobspecError("a range needs a field", pointer=pointer)
    bounds = {side: entry[side] for side in ("min", "max") if entry.get(side) is not None}
    if not bounds:
        raise JobspecError("a range needs min or max", pointer=pointer)
    for side, bound in bounds.items():
        if isinstance(bound, bool) or not isinstance(bound, (str, int, float)) or coerce(str(bound)) is None:
            raise JobspecError(f"{str(bound)[:40]!r} is no version", pointer=f"{pointer}/{side}")
    return Condition("range", {"field": field, **{side: str(bound) for side, bound in bounds.items()}})


def mapping(value: Any, pointer: str) -> Mapping[str, Any]:
    """Return a value that must be a mapping."""
    if isinstance(value, Mapping):
        return value
    raise JobspecError("a mapping is wanted here", pointer=pointer)


def listing(value: Any, pointer: str) -> list[Any]:
    """Return a value that must be a list."""
    if isinstance(value, list):
        return value
    raise JobspecError("a list is wanted here", pointer=pointer)
