"""Settings of the priority policy, with the defaults in one place."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from rainbow.errors import PolicyError
from rainbow.scheduling.priority import allocation, slot_range
from rainbow.scheduling.priority.checking import Check, flag, integer, listed, number, one_of, record, table, text

FCFS, EASY, CONSERVATIVE, TUNED = "fcfs", "easy", "conservative", "tuned"
GRID_ENGINE = "grid_engine"


def _rule(value: Any, pointer: str) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(1)(value, pointer)
    return one_of(*allocation.NAMES)(value, pointer)


def _urgency_slots(value: Any, pointer: str) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(1)(value, pointer)
    return one_of("min", "max", "avg")(value, pointer)


NAMES = listed(text)
ENVIRONMENT = record({"rule": ("fill_up", _rule), "slots": (0, integer()), "urgency_slots": ("min", _urgency_slots)})
CONSUMABLE = record({"per": ("slot", one_of("slot", "worker", "job")), "default": (0, integer())})

# name: (default, check)
FIELDS: dict[str, tuple[Any, Check]] = {
    "discipline": (EASY, one_of(FCFS, EASY, CONSERVATIVE, TUNED)),
    "max_reservation": (0, integer()),  # with discipline tuned
    "reserve": ("asked", one_of("asked", "all")),  # with discipline tuned: who may have a reservation
    "compat": ("", one_of("", GRID_ENGINE)),
    "search": ("gaps", one_of("gaps", "backwards")),
    "schedule_interval": (15.0, number()),
    "default_duration": (0.0, number()),  # of a job that names none; 0: it may run for ever
    "duration_offset": (0.0, number()),
    "slot_search": ("auto", one_of("auto", *slot_range.WAYS)),
    "categories": (True, flag),
    "slot_type": ("core", text),  # a worker with none of it free is full
    "max_jobs_per_user": (0, integer()),
    "parallel_environments": ({}, table(ENVIRONMENT)),
    "consumables": ({}, table(CONSUMABLE)),
}


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in every default; PolicyError names the first fault by pointer."""
    filled: dict[str, Any] = record(FIELDS)(settings, "")
    if filled["discipline"] != TUNED and filled["max_reservation"]:
        raise PolicyError("max_reservation goes with discipline tuned", pointer="/max_reservation")
    if filled["compat"] == GRID_ENGINE:
        filled["search"] = "backwards"
    return filled


def most_reservations(settings: Mapping[str, Any]) -> float:
    """How many reservations one run may make."""
    return {FCFS: 0.0, EASY: 1.0, CONSERVATIVE: inf}.get(settings["discipline"], float(settings["max_reservation"]))
