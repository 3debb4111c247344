"""Orders of waiting jobs: names from the literature, and expressions in the language of selection.

    fcfs, sjf, saf      first come; least time; least time x slots ("smallest area")
    f1 to f4            found by simulation and regression (Carastan-Santos and de Camargo, SC 2017)
    wfp3, unicep        of sites in production (Tang et al., IPDPS 2010), turned so that smaller is first
    saf_aged            saf over a denominator that grows with waiting

`submitted` counts from the first submission since the queue was last empty, so that the logarithms of f1 to f4 keep
growing by amounts that matter against time x slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import PolicyError, SelectionError
from rainbow.scheduling.settings_schema import integer, number, record, text
from rainbow.selection.expression.compiler import Expression, compile_expression

_SINCE = "log(max(1, submitted), 10)"
ORDERS: Mapping[str, str] = {
    "fcfs": "submitted",
    "sjf": "walltime",
    "saf": "walltime * slots",
    "f1": f"log(max(1, walltime), 10) * slots + 870 * {_SINCE}",
    "f2": f"sqrt(walltime) * slots + 25600 * {_SINCE}",
    "f3": f"walltime * slots + 6860000 * {_SINCE}",
    "f4": f"walltime * sqrt(slots) + 530000 * {_SINCE}",
    "wfp3": "-((waited / walltime) ** 3) * slots",
    "unicep": "-waited / (max(log(slots, 2), 1e-10) * walltime)",
    "saf_aged": "walltime * slots / (1 + waited / 14400)",
}
VARIABLES = (
    "walltime",  # seconds it may run
    "length",  # seconds it is predicted to run, its walltime where nothing is known
    "slots",
    "cores",
    "waited",  # seconds since its submission
    "submitted",  # seconds from the first submission since the queue was empty to its own
    "priority",  # POSIX priority
    "urgency",
    "tickets",
    "ahead",  # gangs that wait and were submitted before it
    "running_of_owner",  # jobs of its requestor that run
)
LONGEST = 1_000  # characters of an expression
SHORTEST = 60.0  # seconds after which a job may count as late


def read_order(order: str) -> Expression:
    """Return a named or written order; SelectionError names the column of the first fault."""
    return compile_expression(ORDERS.get(order, order))


def check_order(value: Any, pointer: str) -> str:
    """Return the order as given; PolicyError says where it is not an expression over the variables there are."""
    order = text(value, pointer)
    if len(order) > LONGEST:
        raise PolicyError(f"order has {len(order):,} characters, at most {LONGEST:,} are read", pointer=pointer)
    if not order:
        return order
    try:
        names = read_order(order).names
    except SelectionError as fault:
        raise PolicyError(f"order: {fault.message}", pointer=pointer) from None
    unknown = next((name for name in names if name not in VARIABLES), None)
    if unknown is not None:
        there = f"orders are {', '.join(ORDERS)}; variables are {', '.join(VARIABLES)}"
        raise PolicyError(f"order: unknown variable {unknown}; {there}", pointer=pointer)
    return order


LATE = record({"after": (0.0, number(SHORTEST)), "first": (1, integer(1))}, required=["after"])


def check_starve(value: Any, pointer: str) -> dict[str, Any]:
    """Return when jobs are late and how many of these go first; {}: none ever."""
    return {} if value == {} else dict(LATE(value, pointer))
