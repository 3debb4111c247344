"""`attributes.system`: constraints, dependencies, and what a job requires of subsystems."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.hostlist import count_hosts, count_ids
from rainbow.jobspec.quantities import amount_of
from rainbow.jobspec.request import CONTAINMENT, Condition, Constraint, Dependency, Need
from rainbow.jobspec.version import coerce, in_range
from rainbow.jobspec.yaml_reader import as_number, as_text, step
from rainbow.plugins import names_of
from rainbow.text import meant

LONGEST_HOST = 255  # characters (RFC 1035)
_PROPERTY = re.compile(r"\^?[^\s!&'\"^`|()]+")  # RFC 31 lists the characters a property cannot hold
_PARTS = re.compile(r"[\[\],]")
_COUNTS = {"hostlist": count_hosts, "ranks": count_ids}


def read_constraint(value: Any, pointer: str) -> Constraint:
    """Read an RFC 31 constraint: one operator an object, its operands a list."""
    constraint = _constraint(value, pointer)
    named = sum(_COUNTS[leaf.operator](text) or 0 for leaf in _leaves(constraint) for text in leaf.values)
    if named > MOST_NAMES:
        raise LimitError(f"a constraint that names {named} hosts and ranks", pointer=pointer, limit="names")
    return constraint


def _leaves(constraint: Constraint) -> Iterator[Constraint]:
    if constraint.operator in _COUNTS:
        yield constraint
    for operand in constraint.operands:
        yield from _leaves(operand)


def _constraint(value: Any, pointer: str) -> Constraint:
    entry = mapping(value, pointer)
    if len(entry) != 1:
        raise JobspecError("a constraint has one operator", pointer=pointer)
    operator, operands = next(iter(entry.items()))
    at = f"{pointer}/{step(operator)}"
    if operator in ("and", "or", "not"):
        inner = tuple(_constraint(part, f"{at}/{k}") for k, part in enumerate(listing(operands, at)))
        return Constraint(operator, operands=inner)
    if operator in ("at_least", "counts"):
        least = mapping(operands, at).items()
        return Constraint(
            operator, tuple(f"{key}={_least(operator, value, step_to(at, key))}" for key, value in least)
        )
    if operator not in ("properties", "hostlist", "ranks", "same"):
        raise JobspecError(f"RFC 31 has no operator {operator}", pointer=at)
    values = tuple(str(part) for part in listing(operands, at))
    for k, (part, text) in enumerate(zip(operands, values, strict=True)):
        if not _constrains(operator, part, text):
            raise JobspecError(f"{text[:40]!r} cannot be among {operator}", pointer=f"{at}/{k}")
    return Constraint(operator, values=values)


def _constrains(operator: str, value: Any, text: str) -> bool:
    """Return whether a text has the form its operator wants: RFC 31 property names, RFC 29 hosts, RFC 22 ranks."""
    if operator == "ranks":
        return count_ids(text) is not None and isinstance(value, (str, int)) and not isinstance(value, bool)
    if not isinstance(value, str) or not value:
        return False
    if operator == "hostlist":
        return count_hosts(text) is not None and all(len(part) <= LONGEST_HOST for part in _PARTS.split(text))
    return _PROPERTY.fullmatch(text) is not None


def _least(operator: str, value: Any, pointer: str) -> int:
    """Read an amount: a whole number, or for at_least also a text with a unit."""
    result = amount_of(value) if operator == "at_least" else value
    if isinstance(result, bool) or not isinstance(result, int) or result < 0:
        raise JobspecError(
            f"an amount must be a whole number or a size such as 4GiB, got {value!r:.40}", pointer=pointer
        )
    return result


def step_to(pointer: str, key: Any) -> str:
    """Go one step down a JSON Pointer."""
    return f"{pointer}/{step(key)}"


def own_field(need: Need, kind: str, pointer: str) -> Need:
    """Return a need of the dominant graph as one of the vertex itself: it must be of the type that is asked for."""
    if need.subsystem != CONTAINMENT:
        return need
    for condition in need.conditions:
        if (name := condition.options.get("field")) not in OWN_FIELDS:
            text = f"a vertex has no field {name!s:.40} to match; it has: {', '.join(OWN_FIELDS)}"
            raise JobspecError(text, pointer=f"{pointer}/requires")
    return Need(CONTAINMENT, (Condition("match", {"field": "type", "value": kind}), *need.conditions))


def read_names(value: Any, pointer: str) -> tuple[str, ...]:
    """Read a name, or a list of them."""
    names = [value] if isinstance(value, str) else listing([] if value is None else value, pointer)
    for place, name in enumerate(names):
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_HOST or "\0" in name:
            at = f"{pointer}/{place}" if names is value else pointer
            raise JobspecError(f"a name of at most {LONGEST_HOST} characters is needed, got {name!r:.40}", pointer=at)
    return tuple(names)


def read_licenses(value: Any, pointer: str) -> Mapping[str, int]:
    """Read {license: how many}."""
    results = mapping({} if value is None else value, pointer)
    for name, count in results.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            text = f"the number of a license must be a whole number of at least 1, got {count!r:.40}"
            raise JobspecError(text, pointer=step_to(pointer, name))
    return {str(name): int(count) for name, count in results.items()}


OWN_FIELDS = ("model", "threads")  # of a vertex's metadata, that equal vertices have alike
AFTER = ("after", "afterany", "afterok", "afternotok")  # a job has started, ended, ended well, ended badly
SYMBOLIC = ("string", "fluid")  # whatever else of the same name is `in`, `out` or `inout`
SCHEMES = (*AFTER, "begin-time", *SYMBOLIC)
LONGEST = 1_000  # characters of a value
_KEYS = ("scheme", "value", "type", "scope")
_WORDS = {"type": ("in", "out", "inout"), "scope": ("user", "global")}


def read_dependencies(value: Any, pointer: str) -> tuple[Dependency, ...]:
    """Read a list of {scheme, value}; RFC 26's symbolic schemes also want type and scope.

    >>> read_dependencies([{"scheme": "afterok", "value": "7"}], "")
    (Dependency(scheme='afterok', value='7', type='', scope=''),)
    """
    entries = listing(value, pointer)
    if not entries:
        raise JobspecError("a job without dependencies has no such key (RFC 26)", pointer=pointer)
    return tuple(_dependency(mapping(entry, f"{pointer}/{k}"), f"{pointer}/{k}") for k, entry in enumerate(entries))


def _dependency(entry: Mapping[str, Any], at: str) -> Dependency:
    for key, value in entry.items():
        if key not in _KEYS:
            raise JobspecError(f"a dependency has no {key}; known are: {', '.join(_KEYS)}", pointer=f"{at}/{key}")
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST:
            raise JobspecError(f"a dependency's {key} is text of at most {LONGEST} characters", pointer=f"{at}/{key}")
    if missing := [key for key in _wanted(entry.get("scheme", "")) if key not in entry]:
        raise JobspecError(f"missing key in the dependency: {', '.join(missing)}", pointer=at)
    _check_words(entry, at)
    return Dependency(**entry)


def _wanted(scheme: str) -> tuple[str, ...]:
    return _KEYS if scheme in SYMBOLIC else _KEYS[:2]


def _check_words(entry: Mapping[str, str], at: str) -> None:
    if entry["scheme"] not in SCHEMES:
        raise JobspecError(
            f"unknown dependency scheme {entry['scheme'][:40]!r}; valid schemes: {', '.join(SCHEMES)}",
            pointer=f"{at}/scheme",
        )
    for key, words in _WORDS.items():
        if key in entry and entry[key] not in words:
            raise JobspecError(f"{key} is one of {', '.join(words)}", pointer=f"{at}/{key}")
    if entry["scheme"] == "begin-time" and not _is_time(entry["value"]):
        raise JobspecError("begin-time is a number of seconds since 1970, as text", pointer=f"{at}/value")


def _is_time(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False


Scalar = (str, int, float, bool)
MOST_NAMES = 1_000_000  # hosts and ranks of one constraint


def task_needs(resources: Any, pointer: str) -> tuple[Need, ...]:
    """Read `task.resources`: {subsystem: {match: [...], range: [...]}} or {subsystem: {key: value}}."""
    needs: list[Need] = []
    for subsystem, requirement in mapping(resources, pointer).items():
        at = f"{pointer}/{step(subsystem)}"
        for key, value in mapping(requirement, at).items():
            here = f"{at}/{step(key)}"
            if isinstance(value, list) and _is_matcher(key):
                needs.extend(Need(subsystem, tuple(_item(key, item, f"{here}/{k}"))) for k, item in enumerate(value))
            elif isinstance(value, Scalar):
                needs.append(Need(subsystem, (Condition("flat", {"field": key, "value": as_text(value)}),)))
            else:
                hint = meant(key, ["match", "range", *names_of(MATCHERS)]) if isinstance(value, list) else ""
                text = "a need is match: [...], range: [...], another matcher: [...], or key: value"
                raise JobspecError(text + (hint and f"; {hint}"), pointer=here)
    return tuple(needs)


def _item(matcher: str, item: Any, pointer: str) -> Iterator[Condition]:
    """Read one entry of a matcher; `all` of match and range holds several conditions for the same vertex."""
    entry = mapping(item, pointer)
    if matcher not in ("match", "range"):
        yield _asked_of(matcher, entry, pointer)
    elif "all" in entry:
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


MATCHERS = "rainbow.matchers"  # the group in which packages declare others


def _is_matcher(name: Any) -> bool:
    return name in ("match", "range") or name in names_of(MATCHERS)


def _asked_of(matcher: str, entry: Mapping[str, Any], pointer: str) -> Condition:
    """Read what is asked of an installed matcher: a field, and whatever else it wants to know."""
    if not isinstance(entry.get("field"), str) or not entry["field"]:
        raise JobspecError(f"{matcher} needs a field", pointer=f"{pointer}/field" if "field" in entry else pointer)
    return Condition(matcher, {key: as_number(value) for key, value in entry.items()})


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


def system_needs(value: Any, pointer: str) -> tuple[Need, ...]:
    """Read `attributes.system.requires`: {subsystem: [{field: value, ...}]}; an entry is met by one vertex.

    >>> system_needs({"software": [{"name": "curl"}]}, "")[0].conditions
    (Condition(matcher='match', options={'field': 'name', 'value': 'curl'}),)
    """
    results: list[Need] = []
    for subsystem, entries in mapping({} if value is None else value, pointer).items():
        for k, entry in enumerate(listing(entries, f"{pointer}/{step(subsystem)}")):
            at = f"{pointer}/{step(subsystem)}/{k}"
            kind = "range" if isinstance(entry, Mapping) and {"min", "max"} & set(entry) else "match"
            results.append(Need(subsystem, tuple(_item(kind, entry, at))))
    return tuple(results)


def named_needs(value: Any, pointer: str, named: Mapping[str, tuple[Need, ...]]) -> tuple[Need, ...]:
    """Read `requires` in its place: a list of needs, or the name of a list that the jobspec gives at its top."""
    if not isinstance(value, str):
        return requires(value, pointer)
    if value not in named:
        hint = meant(value, named)
        raise JobspecError(f"requires names no list {value[:80]}" + (hint and f"; {hint}"), pointer=pointer)
    return named[value]


def _required(entry: Mapping[str, Any], pointer: str) -> Iterator[Condition]:
    if "all" in entry:
        for k, part in enumerate(listing(entry["all"], f"{pointer}/all")):
            yield from _required(mapping(part, f"{pointer}/all/{k}"), f"{pointer}/all/{k}")
        return
    if "attribute" in entry:  # compspec asks a second field of the same vertex so
        yield _match(entry["attribute"], entry.get("value"), f"{pointer}/attribute")
    if ("match" in entry and not isinstance(entry["match"], list)) or {"attribute", "value"} & set(entry) == {
        "value"
    }:
        yield _match(entry.get("field", "type"), entry.get("match", entry.get("value")), pointer)
    if "min" in entry or "max" in entry:
        yield _range(entry.get("field"), entry, pointer)
    others = [key for key, value in entry.items() if isinstance(value, list) and key != "all" and _is_matcher(key)]
    for matcher in others:
        for k, item in enumerate(entry[matcher]):
            yield from _item(matcher, item, f"{pointer}/{step(matcher)}/{k}")
    if not {"match", "value", "attribute", "min", "max", *others} & set(entry):
        raise JobspecError("a need says match, min, max or another matcher: [...]", pointer=pointer)


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
            raise JobspecError(f"{str(bound)[:40]!r} is not a valid version", pointer=f"{pointer}/{side}")
    if len(bounds) == 2 and in_range(str(bounds["min"]), None, str(bounds["max"])) is False:
        text = f"no version is in the range: max {str(bounds['max'])[:40]} is below min {str(bounds['min'])[:40]}"
        raise JobspecError(text, pointer=f"{pointer}/max")
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
