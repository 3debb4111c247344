"""Defaults, and the configuration file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rainbow.errors import ConfigError, InputError, JobspecError, PolicyError, RainbowError
from rainbow.jobspec.yaml_reader import Limits as TextLimits
from rainbow.jobspec.yaml_reader import Positions, load
from rainbow.matching import Budget, backends, matchers
from rainbow.plugins import Registry
from rainbow.scheduling import policies
from rainbow.selection import check_options
from rainbow.service.core.limits import check_limits
from rainbow.text import meant

SCHEDULER = {
    "secret",
    "admin",
    "name",
    "algorithms",
    "backend",
    "policy",
    "unplaced",
    "tick",
    "lease",
    "grace",
    "step_seconds",
    "forecast_share",
    "history",
}
ALGORITHMS = "/scheduler/algorithms"
READ = {"selection", "match"}  # of the algorithms
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
        document, positions = load(text, TextLimits())
    except JobspecError as fault:
        raise ConfigError(fault.message, line=fault.line, column=fault.column) from None
    try:
        return _settings(document)
    except InputError as fault:
        raise _located(fault, positions) from None


def _settings(document: Any) -> Settings:
    top = _mapping(document, "")
    warnings = [f"ignored {key}: {UPSTREAM.get(key, 'unknown key')}" for key in top if key not in SECTIONS]
    scheduler = _mapping(top.get("scheduler"), "/scheduler")
    warnings += [f"ignored scheduler.{key}: unknown key" for key in scheduler if key not in SCHEDULER]
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
    matching = _mapping(algorithms.get("match"), f"{ALGORITHMS}/match")
    _known(matchers, _text(matching, "name", "match", f"{ALGORITHMS}/match"), f"{ALGORITHMS}/match/name")
    warnings += [f"ignored scheduler.algorithms.{key}: unknown key" for key in algorithms if key not in READ]
    default = Settings()
    return Settings(
        name=_text(scheduler, "name", default.name, "/scheduler"),
        secret=_text(scheduler, "secret", "", "/scheduler") or None,
        admin=_text(scheduler, "admin", "", "/scheduler") or None,
        selector=name,
        selector_options=options,
        backend=_known(backends, _text(scheduler, "backend", default.backend, "/scheduler"), "/scheduler/backend"),
        policy=_known(policies, _text(scheduler, "policy", default.policy, "/scheduler"), "/scheduler/policy"),
        unplaced=_unplaced(_text(scheduler, "unplaced", default.unplaced, "/scheduler")),
        tick=_seconds(scheduler, "tick", default.tick),
        lease=_seconds(scheduler, "lease", default.lease),
        grace=_seconds(scheduler, "grace", default.grace),
        step_seconds=_seconds(scheduler, "step_seconds", default.step_seconds),
        forecast_share=_number(scheduler, "forecast_share", default.forecast_share, "/scheduler", 1),
        history=_number(scheduler, "history", default.history / DAY, "/scheduler", 36_500) * DAY,
        limits=_limits(_mapping(top.get("limits"), "/limits"), warnings),
        admission=_admission(_mapping(top.get("admission"), "/admission"), warnings),
        server=_server(_mapping(top.get("server"), "/server"), warnings),
        warnings=tuple(warnings),
    )


def _known(registry: Registry[Any], name: str, pointer: str) -> str:
    """Return the name of a plug-in that there is."""
    known = registry.names()
    if name not in known:
        what, hint = pointer.removesuffix("/name").rpartition("/")[2], meant(name, known)
        told = f"{what} {name:.40} not found; {hint or 'there are: ' + ', '.join(known)}"
        raise ConfigError(told, pointer=pointer)
    return name


def _unplaced(value: str) -> str:
    if value not in (REFUSE, WAIT):
        text = f"unplaced must be {REFUSE} or {WAIT}, got {value:.40}"
        raise ConfigError(text, pointer="/scheduler/unplaced")
    return value


def _limits(given: Mapping[str, Any], warnings: list[str]) -> Limits:
    """Read the limits: every one is a number, whole unless its default is not."""
    default = Limits()
    known = {each.name for each in fields(default)}
    warnings += [f"ignored limits.{key}: unknown key" for key in given if key not in known]
    values: dict[str, Any] = {}
    for key in sorted(known & set(given)):
        number = _number(given, key, 0, "/limits", 2**40)
        if isinstance(getattr(default, key), int) and number != int(number):
            raise ConfigError(f"{key} is a whole number", pointer=f"/limits/{key}")
        values[key] = type(getattr(default, key))(number)
    return replace(default, **values)


def _admission(given: Mapping[str, Any], warnings: list[str]) -> Admission:
    """Read the limits that new clusters begin with."""
    known = {each.name for each in fields(Admission)}
    warnings += [f"ignored admission.{key}: unknown key" for key in given if key not in known]
    try:
        values = {
            key: value
            for key, value in check_limits({key: given[key] for key in known & set(given)}).items()
            if key in given
        }
    except PolicyError as fault:
        raise ConfigError(fault.message, pointer=(fault.pointer or "").replace("/limits", "/admission")) from None
    return Admission(**values)


CHOICES = {
    "metrics": ("admin", "everybody"),
    "log": ("debug", "info", "warning", "error"),
}


def _server(given: Mapping[str, Any], warnings: list[str]) -> Server:
    default = Server()
    known = {each.name for each in fields(default)}
    warnings += [f"ignored server.{key}: unknown key" for key in given if key not in known]
    values: dict[str, Any] = {key: _text(given, key, "", "/server") for key in known & set(given) - {"threads"}}
    for key, allowed in CHOICES.items():
        if values.get(key, allowed[0]) not in allowed:
            raise ConfigError(f"{key} is one of {', '.join(allowed)}", pointer=f"/server/{key}")
    if "threads" in given:
        values["threads"] = int(_number(given, "threads", 0, "/server", 4_096))
        if values["threads"] < 2:
            raise ConfigError("a server needs at least 2 threads", pointer="/server/threads")
    if bool(values.get("certificate")) != bool(values.get("key")):
        raise ConfigError("TLS requires both server.certificate and server.key", pointer="/server")
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


REFUSE, WAIT = "refuse", "wait"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most a request may bring, and cost."""

    body: int = 16 << 20  # bytes of any request but a graph
    graph: int = 512 << 20  # bytes of a request that brings a graph
    wait: float = 30.0  # seconds of a long poll
    offers: int = 1_000  # tasks in one answer to an agent
    listed: int = 1_000  # jobs in one page
    tasks: int = 100_000  # of one job
    processes_per_core: int = 1  # that a task starts, for each core it holds; 0: no limit
    output: int = 65_536  # characters of a task's output that are kept
    vertices: int = 2_000_000  # of one cluster with its subsystems
    edges: int = 8_000_000
    batch: int = 1_000  # jobs in one request
    unplaced: int = 1_000  # jobs of one requestor that wait for a cluster, 0: no limit
    live: int = 0  # live jobs of one requestor at one cluster, 0: no limit
    rate: float = 0.0  # requests a second from one caller, 0: no limit
    burst: int = 100  # requests a caller may send at once before the rate counts
    streams: int = 4  # event streams of one caller
    viewers: int = 256  # event streams in all
    waiting: int = 10_000  # requests that wait at once for something to happen; further ones are told to come back
    connections: int = 8_192  # open at once, and at most three quarters of what the process can hold
    connections_per_address: int = 1_024  # open from one address and without a known credential
    header_seconds: float = 10.0  # in which the head of a request has to come
    body_seconds: float = 20.0  # in which a body has to come; one more for each 64 KiB of it
    idle_seconds: float = 75.0  # that a connection with a known credential may carry no request
    match_seconds: float = 1.0  # seconds that matching one request with all clusters may take
    match_cluster_seconds: float = 0.05  # seconds of them for one cluster, before the undecided are asked again


@dataclass(frozen=True, slots=True)
class Server:
    """How requests come in."""

    threads: int = 32  # requests at once; those that wait need none
    certificate: str | None = None  # files: with both TLS is spoken
    key: str | None = None
    client_ca: str | None = None  # with it a client needs a certificate of this authority
    metrics: str = "admin"  # who may read /metrics: admin (with monitor tokens) or everybody
    log: str = "info"  # debug, info, warning, error


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits a cluster begins with under load_based; each can set its own. The original had 10, 100, 30 min."""

    max_requestors: int = -1  # with live jobs; -1: no limit
    max_jobs_per_requestor: int = -1  # live; -1: no limit
    max_waiting_tasks: int = -1
    throttle: int = -1  # tasks waiting and running
    max_retries: int = 0
    max_lost: int = 5  # attempts of a task; 0: no limit
    quarantine_after: int = 0
    quarantine_after_lost: int = 10
    quarantine_minutes: int = 15
    task_minutes: int = 0  # of what asks for no duration; 0: for ever
    allowance_seconds: int = 15


@dataclass(frozen=True, slots=True)
class Settings:
    """A server's settings. `secret` and `admin` None: made at first start, see access.py."""

    name: str = "rainbow"
    secret: str | None = None  # lets clusters register
    admin: str | None = None  # may do everything
    selector: str = "random"
    selector_options: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "index"
    policy: str = "load_based"
    unplaced: str = REFUSE  # a job that clusters match and none takes now: refuse it, or let it wait
    tick: float = 0.25  # seconds between two scheduling steps when nothing happens
    lease: float = 60.0  # seconds without the server after which an agent stops its tasks
    grace: float = 10.0  # seconds more that the server waits before it gives them to the queue again
    step_seconds: float = 10.0  # after which a step that has not come back is named, and left to its own thread
    forecast_share: float = 0.1  # of a core that forecasts may use; 0: none are made
    history: float = 90 * 86_400.0  # seconds that ended jobs, events and decisions are kept
    limits: Limits = Limits()
    admission: Admission = Admission()
    server: Server = Server()
    warnings: tuple[str, ...] = ()

    def budget(self) -> Budget:
        """Return what matching one request may cost."""
        return Budget(time.monotonic, self.limits.match_cluster_seconds, self.limits.match_seconds)
