"""The configuration file → Settings. It has the founding text's keys; upstream's files are read as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rainbow.errors import ConfigError, InputError, JobspecError, PolicyError, RainbowError
from rainbow.jobspec.text import Limits, Positions, load
from rainbow.scheduling import policies
from rainbow.selection import check_options
from rainbow.service import settings as service
from rainbow.service.settings import Settings
from rainbow.service.submits.admission import check_limits

SCHEDULER = {"secret", "admin", "name", "algorithms", "backend", "policy", "tick", "lease", "grace", "history"}
SECTIONS = {"scheduler", "limits", "admission", "server"}
DAY = 86_400
UPSTREAM = {
    "cluster": "a cluster keeps its own secret",
    "clusters": "tokens are given by the client",
    "graphdatabase": "graphs are kept in the store",
}


def read_config(path: str | Path) -> Settings:
    """Read a configuration file; ConfigError names the fault by pointer, line and column."""
    try:
        return settings_of(Path(path).read_bytes())
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from None


def settings_of(text: str | bytes) -> Settings:
    """Read the text of a configuration file."""
    try:
        document, positions = load(text, Limits())
    except JobspecError as fault:
        raise ConfigError(fault.message, line=fault.line, column=fault.column) from None
    try:
        return _settings(document)
    except InputError as fault:
        raise _located(fault, positions) from None


def _settings(document: Any) -> Settings:
    top = _mapping(document, "")
    warnings = [f"{key} is not read: {UPSTREAM.get(key, 'unknown key')}" for key in top if key not in SECTIONS]
    scheduler = _mapping(top.get("scheduler"), "/scheduler")
    warnings += [f"scheduler.{key} is not read: unknown key" for key in scheduler if key not in SCHEDULER]
    algorithms = _mapping(scheduler.get("algorithms"), "/scheduler/algorithms")
    selection = _mapping(algorithms.get("selection"), "/scheduler/algorithms/selection")
    name = _text(selection, "name", "random", "/scheduler/algorithms/selection")
    options = _mapping(selection.get("options"), "/scheduler/algorithms/selection/options")
    try:
        warnings += check_options(name, options)
    except InputError as fault:
        at = "/scheduler/algorithms/selection/options"
        raise ConfigError(fault.message, pointer=at + (fault.pointer or ""), **fault.facts) from None
    except RainbowError as fault:
        raise ConfigError(fault.message, pointer="/scheduler/algorithms/selection/name") from None
    default = Settings()
    return Settings(
        name=_text(scheduler, "name", default.name, "/scheduler"),
        secret=_text(scheduler, "secret", "", "/scheduler") or None,
        admin=_text(scheduler, "admin", "", "/scheduler") or None,
        selector=name,
        selector_options=options,
        backend=_text(scheduler, "backend", default.backend, "/scheduler"),
        policy=_policy(_text(scheduler, "policy", default.policy, "/scheduler")),
        tick=_seconds(scheduler, "tick", default.tick),
        lease=_seconds(scheduler, "lease", default.lease),
        grace=_seconds(scheduler, "grace", default.grace),
        history=_number(scheduler, "history", default.history / DAY, "/scheduler", 36_500) * DAY,
        limits=_limits(_mapping(top.get("limits"), "/limits"), warnings),
        admission=_admission(_mapping(top.get("admission"), "/admission"), warnings),
        server=_server(_mapping(top.get("server"), "/server"), warnings),
        warnings=tuple(warnings),
    )


def _policy(name: str) -> str:
    if name not in policies.names():
        told = f"there is no policy {name[:40]}; there are: {', '.join(policies.names())}"
        raise ConfigError(told, pointer="/scheduler/policy")
    return name


def _limits(given: Mapping[str, Any], warnings: list[str]) -> service.Limits:
    """Read the limits: every one is a number, whole unless its default is not."""
    default = service.Limits()
    known = {each.name for each in fields(default)}
    warnings += [f"limits.{key} is not read: unknown key" for key in given if key not in known]
    values: dict[str, Any] = {}
    for key in sorted(known & set(given)):
        number = _number(given, key, 0, "/limits", 2**40)
        if isinstance(getattr(default, key), int) and number != int(number):
            raise ConfigError(f"{key} is a whole number", pointer=f"/limits/{key}")
        values[key] = type(getattr(default, key))(number)
    return replace(default, **values)


def _admission(given: Mapping[str, Any], warnings: list[str]) -> service.Admission:
    """Read the limits that new clusters begin with."""
    known = {each.name for each in fields(service.Admission)}
    warnings += [f"admission.{key} is not read: unknown key" for key in given if key not in known]
    try:
        values = {
            key: value
            for key, value in check_limits({key: given[key] for key in known & set(given)}).items()
            if key in given
        }
    except PolicyError as fault:
        raise ConfigError(fault.message, pointer=(fault.pointer or "").replace("/limits", "/admission")) from None
    return service.Admission(**values)


CHOICES = {
    "metrics": ("admin", "everybody"),
    "log": ("debug", "info", "warning", "error"),
}


def _server(given: Mapping[str, Any], warnings: list[str]) -> service.Server:
    default = service.Server()
    known = {each.name for each in fields(default)}
    warnings += [f"server.{key} is not read: unknown key" for key in given if key not in known]
    values: dict[str, Any] = {key: _text(given, key, "", "/server") for key in known & set(given) - {"threads"}}
    for key, allowed in CHOICES.items():
        if values.get(key, allowed[0]) not in allowed:
            raise ConfigError(f"{key} is one of {', '.join(allowed)}", pointer=f"/server/{key}")
    if "threads" in given:
        values["threads"] = int(_number(given, "threads", 0, "/server", 4_096))
        if values["threads"] < 2:
            raise ConfigError("a server needs at least 2 threads", pointer="/server/threads")
    if bool(values.get("certificate")) != bool(values.get("key")):
        raise ConfigError("TLS needs both certificate and key", pointer="/server")
    return replace(default, **values)


def _number(values: Mapping[str, Any], key: str, default: float, at: str, most: float) -> float:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ConfigError(f"{key} is a number from 0 to {most:g}", pointer=f"{at}/{key}")
    return float(value)


def _mapping(value: Any, pointer: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise ConfigError("a mapping is wanted here", pointer=pointer)


def _text(values: Mapping[str, Any], key: str, default: str, at: str) -> str:
    value = values.get(key, default)
    if isinstance(value, str):
        return value
    raise ConfigError(f"{key} must be text", pointer=f"{at}/{key}")


def _seconds(values: Mapping[str, Any], key: str, default: float) -> float:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 86_400:
        raise ConfigError(f"{key} is a number of seconds", pointer=f"/scheduler/{key}")
    return float(value)


def _located(fault: InputError, positions: Positions) -> ConfigError:
    pointer = fault.pointer or ""
    line, column = positions.nearest(pointer) or (fault.line, fault.column)
    return ConfigError(fault.message, pointer=pointer, line=line, column=column, **fault.facts)
