"""The settings of the priority policy: read, checked, and their amounts converted to the base units of plans."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from rainbow.errors import PolicyError
from rainbow.jobspec.request import HIGHEST, LOWEST
from rainbow.scheduling.patience import DAY, EVERY
from rainbow.scheduling.priority import model
from rainbow.scheduling.priority.config.calendar import CalendarFault, read_calendar
from rainbow.scheduling.priority.config.load_formulas import FormulaFault, read_formula
from rainbow.scheduling.priority.config.orders import check_order, check_starve
from rainbow.scheduling.priority.config.quotas import SCOPES
from rainbow.scheduling.priority.config.time_zones import named_zone
from rainbow.scheduling.settings_schema import (
    LARGEST_NUMBER,
    Check,
    at,
    flag,
    integer,
    listed,
    number,
    one_of,
    record,
    table,
    text,
)

FCFS, EASY, CONSERVATIVE, TUNED = "fcfs", "easy", "conservative", "tuned"
GRID_ENGINE = "grid_engine"
DEEPEST = 32


def _rule(value: Any, pointer: str) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(1)(value, pointer)
    return one_of(*model.NAMES)(value, pointer)


def _urgency_slots(value: Any, pointer: str) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(1)(value, pointer)
    return one_of("min", "max", "avg")(value, pointer)


NAMES = listed(text)
ENVIRONMENT = record({"rule": ("fill_up", _rule), "slots": (0, integer()), "urgency_slots": ("min", _urgency_slots)})
CONSUMABLE = record({"per": ("slot", one_of("slot", "worker", "job")), "default": (0, integer())})

NUMBERS = table(number())
WEIGHTS = {
    "priority": 1.0,
    "urgency": 0.1,
    "ticket": 0.01,
    "waiting_time": 0.0,
    "deadline": 3_600_000.0,
    "fair_share": 0.0,
}
KIND_WEIGHTS = dict.fromkeys(("user", "project", "department", "job"), 0.25)
OWNERS = ("users", "projects", "departments")


def _filled(check: Check) -> tuple[Any, Check]:
    """Return the default of a record, all its own defaults, beside its check."""
    return check({}, ""), check


def _tree(value: Any, pointer: str, depth: int = 0) -> dict[str, Any]:
    """Check a node of the share tree and all below it."""
    if depth > DEEPEST:
        raise PolicyError(f"a share tree is at most {DEEPEST} deep", pointer=pointer)

    def below(child: Any, at: str) -> dict[str, Any]:
        return _tree(child, at, depth + 1)

    fields = {
        "name": ("", text),
        "shares": (1.0, number()),
        "project": (False, flag),
        "children": ([], listed(below)),
    }
    return dict(record(fields, required=["name"])(value, pointer))


def _share_tree(value: Any, pointer: str) -> Any:
    return _tree(value, pointer) if value else {}


def _hierarchy(value: Any, pointer: str) -> str:
    letters = text(value, pointer)
    if len(set(letters)) != len(letters) or not set(letters) <= set("OFS"):
        raise PolicyError("the letters O, F and S, each at most once", pointer=pointer)
    return letters


TICKETS = record(
    {
        "share": (0.0, number()),
        "functional": (0.0, number()),
        "hierarchy": ("OFS", _hierarchy),
        "functional_weights": _filled(record({kind: (w, number()) for kind, w in KIND_WEIGHTS.items()})),
        "functional_shares": _filled(record({kind: ({}, NUMBERS) for kind in OWNERS})),
        "share_functional_shares": (True, flag),
        "max_functional_jobs": (200, integer(1)),
        "max_pending_tasks_per_job": (50, integer(1)),
        "override": _filled(record({kind: ({}, NUMBERS) for kind in (*OWNERS, "jobs")})),
        "share_override_tickets": (True, flag),
        "share_tree": ({}, _share_tree),
        "compensation_factor": (5.0, number()),
        "halftime": (168.0, number()),  # hours; 0: usage never fades
        "usage_weights": ({"core": 1.0}, NUMBERS),
    }
)

CALENDAR = record({"year": ("NONE", text), "week": ("NONE", text)})


def _calendar(value: Any, pointer: str) -> dict[str, Any]:
    calendar = CALENDAR(value, pointer)
    try:
        read_calendar(calendar["year"], calendar["week"])
    except CalendarFault as fault:
        raise PolicyError(str(fault), pointer=pointer) from None
    return dict(calendar)


def _time_zone(value: Any, pointer: str) -> str:
    try:
        return named_zone(text(value, pointer)).key if value else ""
    except ValueError as fault:
        raise PolicyError(str(fault), pointer=pointer) from None


def _formula(value: Any, pointer: str) -> str:
    try:
        read_formula(text(value, pointer) or "0")
    except FormulaFault as fault:
        raise PolicyError(str(fault), pointer=pointer) from None
    return str(value)


def _limit(value: Any, pointer: str) -> Any:
    return _formula(value, pointer) if isinstance(value, str) and value else integer()(value, pointer)


QUEUE = record(
    {
        "workers": (["*"], NAMES),
        "slots": (0, integer()),  # on each worker; 0: as many as fit
        "resources": ({}, table(integer())),  # what it has of its own on each worker
        "seq_no": (0, integer()),
        "enabled": (True, flag),
        "calendar": (CALENDAR({}, ""), _calendar),
        "load_thresholds": ({}, table(number(-LARGEST_NUMBER))),
        "suspend_thresholds": ({}, table(number(-LARGEST_NUMBER))),
        "suspend_tasks": (1, integer(1)),  # how many at a time
        "suspend_interval": (300.0, number()),  # seconds from one time to the next
        "subordinates": ({}, table(integer(1))),  # {queue: slots in use here that suspend it there}
        "pe_list": ([], NAMES),
        "users": ([], NAMES),
        "not_users": ([], NAMES),
        "projects": ([], NAMES),
        "not_projects": ([], NAMES),
    }
)
LIMIT = record({**dict.fromkeys(SCOPES, ("", text)), "to": ({}, table(_limit))}, required=["to"])
QUOTA = record({"name": ("", text), "enabled": (True, flag), "limits": ([], listed(LIMIT))}, required=["name"])
SETS = record({"users": ({}, table(NAMES)), "hosts": ({}, table(NAMES))})

# name: (default, check)
FIELDS: dict[str, tuple[Any, Check]] = {
    "discipline": (EASY, one_of(FCFS, EASY, CONSERVATIVE, TUNED)),
    "max_reservation": (0, integer()),  # with discipline tuned
    "plan_depth": (1_000, integer()),  # with discipline conservative: how many gangs have a time; 0: all
    "reserve": ("asked", one_of("asked", "all")),  # with discipline tuned: who may have a reservation
    "compat": ("", one_of("", GRID_ENGINE)),
    "search": ("gaps", one_of("gaps", "backwards")),
    "schedule_interval": (15.0, number()),
    "patience": (DAY, number()),  # seconds after which a job may be put first for its age; 0: never
    "patience_every": (EVERY, number()),  # seconds from one such job to the next
    "default_duration": (0.0, number()),  # of a job that names none; 0: it may run for ever
    "duration_offset": (0.0, number()),
    "slot_search": ("auto", one_of("auto", *model.WAYS)),
    "categories": (True, flag),
    "slot_type": ("core", text),  # a worker with none of it free is full
    "max_jobs_per_user": (0, integer()),
    "parallel_environments": ({}, table(ENVIRONMENT)),
    "consumables": ({}, table(CONSUMABLE)),
    "order": ("", check_order),  # "": by priority; a name or an expression: see orders.py
    "starve": ({}, check_starve),  # {after: seconds, first: how many of the oldest jobs that are later go first}
    "weights": _filled(record({name: (weight, number()) for name, weight in WEIGHTS.items()})),
    "urgency": ({}, table(number(-LARGEST_NUMBER))),  # of one unit of a type, and of "slots"
    "most_asked_priority": (0.0, number(LOWEST, HIGHEST)),  # of what jobspecs ask; 0: they may only lower themselves
    "deadline_users": ([], NAMES),  # who may set deadlines; none: everybody
    "tickets": _filled(TICKETS),
    "queues": ({}, table(QUEUE)),
    "queue_sort_method": ("load", one_of("load", "seqno")),
    "load_formula": ("", _formula),
    "load_values": ({}, table(_formula)),  # {type: formula of what a worker reports as left of it}
    "load_adjustments": ({}, NUMBERS),
    "load_adjustment_decay_time": (450.0, number()),
    "time_zone": ("", _time_zone),  # of calendars, reservations and the times that texts name; "": utc_offset
    "utc_offset": (0.0, number(-86_400, 86_400)),  # the same, for a zone whose clocks never change
    "quotas": ([], listed(QUOTA)),
    "sets": _filled(SETS),
    "groups": ({}, table(text)),  # {user: primary group}
}


class Filled(dict[str, Any]):
    """Settings that were checked and have every default: where they come back unchanged, they need no second look."""


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in every default; PolicyError names the first fault by pointer."""
    if isinstance(settings, Filled):
        return settings
    filled = Filled(record(FIELDS)(settings, ""))
    if filled["discipline"] != TUNED and filled["max_reservation"]:
        raise PolicyError("max_reservation goes with discipline tuned", pointer="/max_reservation")
    if filled["time_zone"] and filled["utc_offset"]:
        raise PolicyError("time_zone says it already: leave utc_offset out", pointer="/utc_offset")
    _check_subordinates(filled["queues"])
    if filled["compat"] == GRID_ENGINE:
        filled["search"] = "backwards"
    return filled


def most_reservations(settings: Mapping[str, Any]) -> float:
    """How many reservations one run may make."""
    most = {FCFS: 0.0, EASY: 1.0, CONSERVATIVE: settings["plan_depth"] or inf}
    return float(most.get(settings["discipline"], settings["max_reservation"]))


def _check_subordinates(queues: Mapping[str, Any]) -> None:
    for name, queue in queues.items():
        for below in queue["subordinates"]:
            if below not in queues or below == name:
                raise PolicyError(
                    f"queue {below} not found", pointer=at(at("/queues", name) + "/subordinates", below)
                )


# ── base units ──

Units = Mapping[str, int]  # base units per unit of a type, where that is not 1


def in_base_units(settings: Mapping[str, Any], units: Units) -> dict[str, Any]:
    """Return checked settings with amounts, and what is due for one unit of a type, in base units."""
    if not units:
        return dict(settings)
    consumables = {
        kind: {**one, "default": one["default"] * units.get(kind, 1)} for kind, one in settings["consumables"].items()
    }
    queues = {
        name: {**queue, "resources": amounts(queue["resources"], units)} for name, queue in settings["queues"].items()
    }
    tickets = {**settings["tickets"], "usage_weights": rates(settings["tickets"]["usage_weights"], units)}
    quotas = [
        {**quota, "limits": [{**rule, "to": limits(rule["to"], units)} for rule in quota["limits"]]}
        for quota in settings["quotas"]
    ]
    return {
        **settings,
        "consumables": consumables,
        "queues": queues,
        "urgency": rates(settings["urgency"], units),
        "tickets": tickets,
        "quotas": quotas,
    }


def amounts(options: Mapping[str, int], units: Units) -> dict[str, int]:
    """Return amounts in base units.

    >>> amounts({"memory": 2, "core": 4}, {"memory": 1000})
    {'memory': 2000, 'core': 4}
    """
    return {kind: amount * units.get(kind, 1) for kind, amount in options.items()}


def rates(options: Mapping[str, float], units: Units) -> dict[str, float]:
    """Return what is due for one base unit.

    >>> rates({"memory": 2.0}, {"memory": 1000})
    {'memory': 0.002}
    """
    return {kind: rate / units.get(kind, 1) for kind, rate in options.items()}


def limits(options: Mapping[str, int | str], units: Units) -> dict[str, int | str]:
    """Return limits in base units, formulas included.

    >>> limits({"memory": "$num_proc*2-1", "core": 4}, {"memory": 1000})
    {'memory': '+$num_proc*2000-1000', 'core': 4}
    """
    return {kind: _in_base_units(limit, units[kind]) if kind in units else limit for kind, limit in options.items()}


def _in_base_units(limit: int | str, unit: int) -> int | str:
    if isinstance(limit, int):
        return limit * unit
    terms = ((name, factor * unit) for name, factor in read_formula(limit))
    return "".join(f"+${name}*{_digits(factor)}" if name else f"{_digits(factor, '+')}" for name, factor in terms)


def _digits(number: float, sign: str = "") -> str:
    """Write a number as formulas do, without an exponent."""
    return f"{number:{sign}.6f}".rstrip("0").rstrip(".")
