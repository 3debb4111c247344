"""Defaults, and the configuration file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from rainbow.errors import ConfigError, InputError, JobspecError, RainbowError
from rainbow.jobspec.yaml_reader import Limits as TextLimits
from rainbow.jobspec.yaml_reader import Positions, load
from rainbow.matching import Budget, Requires, backends, matchers
from rainbow.plugins import Registry
from rainbow.scheduling import policies
from rainbow.scheduling.settings_schema import Check, at, fail, flag, integer, number, one_of, text
from rainbow.selection import check_options
from rainbow.service.core.limits import SCHEMA as ADMISSION
from rainbow.service.core.limits import check_limits
from rainbow.store.names.numbers import AUTO, MOST
from rainbow.text import meant

Network = IPv4Network | IPv6Network
DAY = 86_400
MOST_PROXIES = 100
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
    warnings: list[str] = []
    sections = ("scheduler", "limits", "numbers", "admission", "server")
    top = _section(document, "", dict.fromkeys(sections, _as_it_is), warnings)
    scheduler = _section(top.get("scheduler"), "/scheduler", SCHEDULER, warnings)
    selector, options = _algorithms(scheduler.pop("algorithms", None), warnings)
    limits = _section(top.get("limits"), "/limits", LIMITS, warnings)
    admission = {key: check for key, (_, check) in ADMISSION.items()}
    return Settings(
        **scheduler,
        selector=selector,
        selector_options=options,
        limits=Limits(**limits),
        numbers=_numbers(top.get("numbers"), warnings),
        admission=check_limits(_section(top.get("admission"), "/admission", admission, warnings)),
        server=_server(top.get("server"), warnings),
        warnings=tuple(warnings),
    )


def _section(options: Any, pointer: str, checks: Mapping[str, Check], warnings: list[str]) -> dict[str, Any]:
    """Check what is known of a section; a key that is not is ignored, with a warning."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise fail("a mapping", pointer)
    known = UPSTREAM if not pointer else {}
    within = "".join(f"{part}." for part in pointer.split("/")[1:])
    warnings += [f"ignored {within}{key}: {known.get(key, 'unknown key')}" for key in options if key not in checks]
    return {key: check(options[key], at(pointer, key)) for key, check in checks.items() if key in options}


def _algorithms(inputs: Any, warnings: list[str]) -> tuple[str, Mapping[str, Any]]:
    """Return the selector and its options; a selector's own warnings come before those of other keys."""
    ignored: list[str] = []
    read = _section(inputs, ALGORITHMS, {"match": _as_it_is, "selection": _as_it_is}, ignored)
    selection = _section(read.get("selection"), f"{ALGORITHMS}/selection", SELECTION, [])
    name, options = selection.get("name", RANDOM), selection.get("options") or {}
    try:
        warnings += check_options(name, options)
    except InputError as fault:
        at_options = f"{ALGORITHMS}/selection/options{fault.pointer or ''}"
        raise ConfigError(fault.message, pointer=at_options, **fault.facts) from None
    except RainbowError as fault:
        raise ConfigError(fault.message, pointer=f"{ALGORITHMS}/selection/name") from None
    _section(read.get("match"), f"{ALGORITHMS}/match", {"name": _plugin(matchers)}, [])
    warnings += ignored
    return name, options


def _numbers(options: Any, warnings: list[str]) -> Numbers:
    numbers = Numbers(**_section(options, "/numbers", NUMBERS, warnings))
    if numbers.last < numbers.first:
        raise ConfigError("numbers.last must not be less than numbers.first", pointer="/numbers/last")
    return numbers


def _first_number(value: Any, pointer: str) -> int:
    return AUTO if value == "auto" else integer(AUTO, MOST)(value, pointer)


def _server(options: Any, warnings: list[str]) -> Server:
    values = _section(options, "/server", SERVER, warnings)
    if bool(values.get("certificate")) != bool(values.get("key")):
        raise ConfigError("TLS requires both server.certificate and server.key", pointer="/server")
    return Server(**values)


def _networks(value: Any, pointer: str) -> tuple[Network, ...]:
    """Addresses or networks, such as 10.0.0.7 or 10.1.0.0/16."""
    if not isinstance(value, list) or len(value) > MOST_PROXIES:
        raise ConfigError(f"must be a list of at most {MOST_PROXIES} addresses or networks", pointer=pointer)
    return tuple(_network(each, f"{pointer}/{at}") for at, each in enumerate(value))


def _network(value: Any, pointer: str) -> Network:
    try:
        return ip_network(text(value, pointer))
    except ValueError as fault:
        raise ConfigError(f"{fault}; give an address or a network such as 10.1.0.0/16", pointer=pointer) from None


def _as_it_is(value: Any, _pointer: str) -> Any:
    return value


def _or_none(value: Any, pointer: str) -> str | None:
    return text(value, pointer) or None


def _days(value: Any, pointer: str) -> float:
    return float(number(0, 36_500)(value, pointer) * DAY)


def _backend(value: Any, pointer: str) -> str:
    """The name of a backend that there is, and that has what it requires."""
    name: str = _plugin(backends)(value, pointer)
    chosen = backends.get(name)
    if isinstance(chosen, Requires):
        try:
            chosen.require()
        except RainbowError as fault:
            raise ConfigError(fault.message, pointer=pointer) from None
    return name


def _plugin(registry: Registry[Any]) -> Check:
    """The name of a plug-in that there is."""

    def check(value: Any, pointer: str) -> str:
        name = text(value, pointer)
        if name not in registry:
            known = registry.names()
            what, hint = pointer.removesuffix("/name").rpartition("/")[2], meant(name, known)
            message = f"{what} {name:.40} not found; {hint or 'there are: ' + ', '.join(known)}"
            raise ConfigError(message, pointer=pointer)
        return name

    return check


def _located(fault: InputError, positions: Positions) -> ConfigError:
    pointer = fault.pointer or ""
    line, column = positions.nearest(pointer) or (fault.line, fault.column)
    return ConfigError(fault.message, pointer=pointer, line=line, column=column, **fault.facts)


REFUSE, WAIT, PLACE = "refuse", "wait", "place"
RANDOM = "random"  # the selector where none is named


@dataclass(frozen=True, slots=True)
class Limits:
    """The most a request may bring, and cost."""

    jobspec: int = 1 << 20  # bytes of a request with one jobspec
    body: int = 16 << 20  # bytes of any other request but a graph
    graph: int = 512 << 20  # bytes of a request that brings a graph
    body_memory: int = 256 << 20  # bytes of memory that all bodies under way may take once they are read
    wait: float = 30.0  # seconds of a long poll
    offers: int = 1_000  # tasks in one answer to an agent
    listed: int = 1_000  # jobs in one page
    tasks: int = 100_000  # of one job
    processes_per_core: int = 1  # that a task starts, for each core it holds; 0: no limit
    output: int = 65_536  # characters of a task's output that are kept
    vertices: int = 2_000_000  # of one cluster with its subsystems
    edges: int = 8_000_000
    batch: int = 1_000  # jobs in one request
    unplaced: int = 1_000  # jobs of one user that wait for a cluster, 0: no limit
    live: int = 0  # live jobs of one user at one cluster, 0: no limit
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
    match_seconds: float = 1.0  # seconds of processor time that matching one request with all clusters may take
    match_cluster_seconds: float = 0.05  # seconds of them for one cluster, before the undecided are asked again


@dataclass(frozen=True, slots=True)
class Numbers:
    """Which numbers the jobs of this server get; every shard of a router has a range of its own."""

    first: int = AUTO  # 1, and above those of sites when one is connected
    last: int = MOST


@dataclass(frozen=True, slots=True)
class Server:
    """How requests come in."""

    workers: int = 1  # processes, on PostgreSQL
    threads: int = 32  # requests at once; those that wait need none
    certificate: str | None = None  # files: with both TLS is spoken
    key: str | None = None
    client_ca: str | None = None  # with it a client needs a certificate of this authority
    metrics: str = "admin"  # who may read /metrics: admin (with monitor tokens) or everybody
    log: str = "info"  # debug, info, warning, error
    page: bool = True  # whether the web page is served
    proxies: tuple[Network, ...] = ()  # whose X-Forwarded-For is believed


@dataclass(frozen=True, slots=True)
class Settings:
    """A server's settings. `secret` and `admin` None: made at first start and kept in the store."""

    name: str = "rainbow"
    secret: str | None = None  # lets clusters register
    admin: str | None = None  # may do everything
    selector: str = RANDOM
    selector_options: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "index"
    policy: str = "load_based"
    unplaced: str = REFUSE  # a job that clusters match and none takes now: refuse it, or let it wait
    unplaced_patience: float = 300.0  # seconds after which a job without a cluster books nodes as they become free
    undecided: str = PLACE  # a job for which no cluster says yes and some lack a word only: place it there, or refuse
    tick: float = 0.25  # seconds between two scheduling steps when nothing happens
    lease: float = 60.0  # seconds without the server after which an agent stops its tasks
    grace: float = 10.0  # seconds more that the server waits before it gives them to the queue again
    step_seconds: float = 10.0  # after which a step that has not come back is named, and left to its own thread
    forecast_share: float = 0.1  # of a core that forecasts may use; 0: none are made
    models: bool = False  # linear models of run times are learned once an hour
    history: float = 90 * 86_400.0  # seconds that ended jobs, events and decisions are kept
    limits: Limits = Limits()
    numbers: Numbers = Numbers()
    admission: Mapping[str, int] = field(default_factory=partial(check_limits, {}))  # of a new cluster
    server: Server = Server()
    warnings: tuple[str, ...] = ()

    def budget(self) -> Budget:
        """Return what matching one request may cost."""
        return Budget(time.thread_time, self.limits.match_cluster_seconds, self.limits.match_seconds)


SECONDS = number(0.001, DAY)
SCHEDULER: Mapping[str, Check] = {
    "secret": _or_none,
    "admin": _or_none,
    "name": text,
    "algorithms": _as_it_is,
    "backend": _backend,
    "policy": _plugin(policies),
    "unplaced": one_of(REFUSE, WAIT),
    "unplaced_patience": number(0, 365 * DAY),
    "undecided": one_of(PLACE, REFUSE),
    "tick": SECONDS,
    "lease": SECONDS,
    "grace": SECONDS,
    "step_seconds": SECONDS,
    "forecast_share": number(0, 1),
    "models": flag,
    "history": _days,
}
ALGORITHMS = "/scheduler/algorithms"
SELECTION: Mapping[str, Check] = {"name": text, "options": _as_it_is}
LIMITS: Mapping[str, Check] = {
    each.name: (integer if isinstance(each.default, int) else number)(0, 2**40) for each in fields(Limits)
}
NUMBERS: Mapping[str, Check] = {"first": _first_number, "last": integer(1, MOST)}
SERVER: Mapping[str, Check] = {
    "workers": integer(1, 256),
    "threads": integer(2, 4_096),
    "certificate": text,
    "key": text,
    "client_ca": text,
    "metrics": one_of("admin", "everybody"),
    "log": one_of("debug", "info", "warning", "error"),
    "page": flag,
    "proxies": _networks,
}
