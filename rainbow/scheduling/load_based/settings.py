"""Classes, percents, patterns of requestors, and where patterns overlap."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rainbow.errors import PolicyError
from rainbow.jobspec.request import HIGHEST, LOWEST
from rainbow.regex import Regex, compile_regex
from rainbow.scheduling.patience import DAY, EVERY
from rainbow.scheduling.settings_schema import (
    UNSET,
    Check,
    fail,
    filled,
    listed,
    number,
    one_of,
    record,
    regex,
    table,
    text,
)

MOST = 1_000_000  # of any number here: more is a slip, and sums stay exact
EXACT, CLASSIC = "exact", "classic"
WORKER = "worker"
LONGEST_UNIT = 100  # characters of the name of a type
CORE = "core"  # the unit of new clusters whose workers all have cores
MOST_KNOWN = 10_000  # requestors whose class is remembered
AMOUNT = number(most=MOST)
ENTRY = {"match": regex, "class": text}
SCHEMA: dict[str, tuple[Any, Check]] = {
    "classes": ({"default": 100}, table(AMOUNT)),
    "default_class": ("default", text),
    "requestors": ([], listed(record({key: (UNSET, check) for key, check in ENTRY.items()}, ENTRY))),  # first wins
    "rounding": (EXACT, one_of(EXACT, CLASSIC)),
    "unit": (WORKER, filled),  # what percents count: whole workers, or a type of resource, as core
    "gang_patience": (
        10,
        AMOUNT,
    ),  # minutes until workers are reserved for a gang beyond its class's target
    "patience": (DAY, number()),  # seconds a job waits in vain before it comes first for its age; 0: for ever
    "patience_every": (EVERY, number()),  # seconds from one such job of a class to the next
    "most_asked_priority": (0.0, number(LOWEST, HIGHEST)),  # of what jobspecs ask; 0: they may only lower themselves
    "rebalance_threshold": (0, AMOUNT),  # percent points of spread; 0: never rebalance
    "rebalance_minimum_duration": (4, AMOUNT),  # minutes the spread must stay above the threshold
}


@dataclass(frozen=True, slots=True)
class Classes:
    """Checked settings. `weights` are the percents as given, `percents` sum to 100."""

    weights: Mapping[str, float]
    percents: Mapping[str, float]
    requestors: tuple[tuple[Regex, str], ...]
    default: str
    rounding: str
    rebalance: Rebalance
    unit: str = WORKER
    gang_patience: float = 600.0  # seconds a gang waits before it may go beyond its class's target
    patience: float = 0.0  # seconds a job waits in vain before it comes first for its age; 0: for ever
    every: float = EVERY  # seconds from one such job of a class to the next
    most_asked: float = 0.0  # of the priority that jobspecs ask for
    _known: dict[str, str] = field(default_factory=dict, compare=False, repr=False)  # each is looked up once

    def of(self, requestor: str) -> str:
        """Name the class of a requestor: the first expression that matches all of its name, else the default.

        Classic: that is found anywhere in the name; an unknown class is the default, which is the smallest.
        """
        if requestor not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[requestor] = self._find(requestor)
        return self._known[requestor]

    def _find(self, requestor: str) -> str:
        find = Regex.search if self.rounding == CLASSIC else Regex.fullmatch
        name = next((name for pattern, name in self.requestors if find(pattern, requestor)), self.default)
        return name if name in self.percents else self.default


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in defaults; PolicyError names the first fault by pointer."""
    checked = record(SCHEMA, owner="load_based")(settings, "")
    classes, default = checked["classes"], checked["default_class"]
    if not sum(classes.values()):
        raise PolicyError("class percentages add up to 0; at least one must be greater than 0", pointer="/classes")
    if default not in classes:
        raise fail(f"one of the classes: {', '.join(classes)}", "/default_class")
    if not classes[default]:
        raise PolicyError(
            "the default class needs a percent greater than 0, because unmatched users run there",
            pointer="/default_class",
        )
    if len(checked["unit"]) > LONGEST_UNIT:
        raise PolicyError(f"unit has {len(checked['unit'])} characters, more than {LONGEST_UNIT}", pointer="/unit")
    if checked["unit"] != WORKER and checked["rounding"] == CLASSIC:
        raise PolicyError(f"rounding {CLASSIC} counts whole workers; set unit to {WORKER} too", pointer="/unit")
    for k, entry in enumerate(checked["requestors"]):
        if entry["class"] not in classes:
            raise fail(f"one of the classes: {', '.join(classes)}", f"/requestors/{k}/class")
    return checked


def begun(
    settings: Mapping[str, Any], before: Mapping[str, Any], workers: Collection[Mapping[str, int]]
) -> Mapping[str, Any]:
    """Return settings with a unit where they leave it open: the one there was, else cores if every worker has some.

    >>> begun({}, {}, [{"core": 4}]), begun({}, {}, [{"core": 4}, {}]), begun({}, {"unit": "worker"}, [{"core": 4}])
    ({'unit': 'core'}, {'unit': 'worker'}, {'unit': 'worker'})
    """
    if "unit" in settings:
        _check_unit(settings["unit"], workers)
        return settings
    if settings.get("rounding") == CLASSIC:
        return {**settings, "unit": WORKER}
    suits = bool(workers) and all(amounts.get(CORE) for amounts in workers)
    return {**settings, "unit": before.get("unit", CORE if suits else WORKER)}


def _check_unit(unit: Any, workers: Collection[Mapping[str, int]]) -> None:
    """Refuse a unit that no worker has: nothing would start."""
    kinds = sorted({kind for amounts in workers for kind, amount in amounts.items() if amount})
    if kinds and unit != WORKER and unit not in kinds:
        raise PolicyError(f"no worker has {unit!r:.60}; unit is worker, {', '.join(kinds[:8])}", pointer="/unit")


def read_classes(settings: Mapping[str, Any]) -> Classes:
    """Compile checked settings; percents are normalised to sum to 100."""
    requestors = tuple((compile_regex(entry["match"]), entry["class"]) for entry in settings["requestors"])
    rebalance = Rebalance(settings["rebalance_threshold"], settings["rebalance_minimum_duration"])
    if settings["rounding"] == CLASSIC:
        percents: Mapping[str, float] = normalise(settings["classes"])
        last, most = list(percents)[-1], settings["most_asked_priority"]
        return Classes(percents, percents, requestors, last, CLASSIC, rebalance, most_asked=most)
    weights = dict(sorted(settings["classes"].items()))
    percents = {name: 100 * weight / sum(weights.values()) for name, weight in weights.items()}
    return Classes(
        weights,
        percents,
        requestors,
        settings["default_class"],
        EXACT,
        rebalance,
        settings["unit"],
        gang_patience=60.0 * settings["gang_patience"],
        patience=settings["patience"],
        every=settings["patience_every"],
        most_asked=settings["most_asked_priority"],
    )


def classes_of(settings: Mapping[str, Any]) -> Classes:
    """Check and compile settings; the same settings are compiled once."""
    return _classes_of(json.dumps(settings))


@lru_cache(maxsize=1024)
def _classes_of(settings: str) -> Classes:
    return read_classes(check_settings(json.loads(settings)))


def normalise(percents: Mapping[str, float]) -> dict[str, int]:
    """Return whole percents in order; the largest takes what rounding leaves.

    >>> normalise({"a": 1, "b": 2})
    {'b': 67, 'a': 33}
    """
    order = sorted(percents, key=lambda name: (-percents[name], name))
    total = sum(percents.values())
    if total == 100:
        return {name: int(percents[name]) for name in order}
    rest = {name: math.floor(percents[name] / total * 100) for name in order[1:]}
    return {order[0]: 100 - sum(rest.values()), **rest}


DECORATION = re.compile(r"\.[*+?]|[\^$\\?*+]")


def overlaps(entries: Sequence[Mapping[str, str]], requestors: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield requestors that match entries of several classes: of those given, and what the expressions plainly say.

    >>> [found["text"] for found in overlaps([{"match": "a.*", "class": "x"}, {"match": "ann", "class": "y"}], [])]
    ['ann matches several classes and uses x; also matches: y']
    """
    compiled = [(compile_regex(entry["match"]), entry["class"]) for entry in entries]
    plain = {DECORATION.sub("", entry["match"]) for entry in entries}
    for requestor in sorted({*plain, *requestors}):
        claims = list(dict.fromkeys(name for pattern, name in compiled if pattern.fullmatch(requestor)))
        if len(claims) > 1:
            first, *also = claims
            text = f"{requestor} matches several classes and uses {first}; also matches: {', '.join(also)}"
            yield {"requestor": requestor, "class": first, "also": also, "text": text}


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The two settings; both must be above 0 for anything to happen."""

    threshold: float = 0.0  # percent points
    minimum: float = 0.0  # minutes

    @property
    def on(self) -> bool:
        """Whether rebalancing is asked for at all."""
        return self.threshold > 0 and self.minimum > 0

    def due(self, spread: float, excess: float | None, now: float, *, clears: bool) -> tuple[bool, float | None]:
        """Return whether to rebalance now, and since when the spread is over the threshold from here on.

        `clears`: a spread back under the threshold ends the excess (Scoot continues counting).

        >>> Rebalance(10, 4).due(20, 0.0, 241.0, clears=True)
        (True, None)
        """
        if not self.on:
            return False, None if clears else excess
        if spread <= self.threshold:
            return False, None if clears else excess
        if excess is None:
            return False, now
        return (True, None) if now - excess > self.minimum * 60 else (False, excess)
