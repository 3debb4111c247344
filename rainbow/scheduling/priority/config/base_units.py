"""Amounts in settings, converted from the graph's units to the base units of plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.scheduling.priority.config.load_formulas import read_formula

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


def amounts(given: Mapping[str, int], units: Units) -> dict[str, int]:
    """Return amounts in base units.

    >>> amounts({"memory": 2, "core": 4}, {"memory": 1000})
    {'memory': 2000, 'core': 4}
    """
    return {kind: amount * units.get(kind, 1) for kind, amount in given.items()}


def rates(given: Mapping[str, float], units: Units) -> dict[str, float]:
    """Return what is due for one base unit.

    >>> rates({"memory": 2.0}, {"memory": 1000})
    {'memory': 0.002}
    """
    return {kind: rate / units.get(kind, 1) for kind, rate in given.items()}


def limits(given: Mapping[str, int | str], units: Units) -> dict[str, int | str]:
    """Return limits in base units, formulas included.

    >>> limits({"memory": "$num_proc*2-1", "core": 4}, {"memory": 1000})
    {'memory': '+$num_proc*2000-1000', 'core': 4}
    """
    return {kind: _limit(limit, units[kind]) if kind in units else limit for kind, limit in given.items()}


def _limit(limit: int | str, unit: int) -> int | str:
    if isinstance(limit, int):
        return limit * unit
    terms = ((name, factor * unit) for name, factor in read_formula(limit))
    return "".join(f"+${name}*{_digits(factor)}" if name else f"{_digits(factor, '+')}" for name, factor in terms)


def _digits(number: float, sign: str = "") -> str:
    """Write a number as formulas do, without an exponent."""
    return f"{number:{sign}.6f}".rstrip("0").rstrip(".")
