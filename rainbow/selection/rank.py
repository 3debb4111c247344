"""The best of the choices that several servers make, each among clusters of its own.

The best standing is that of the cluster which one server with all of the clusters would have chosen: an earlier
priority comes before a later one, then what its sorts computed, the last sort first, then the name. Where a step
draws, every cluster it could take has the same chance: a server counts as often as it has such clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import log
from typing import Any, Self

from rainbow.selection.choice import Choice, Scalar, Step
from rainbow.text import natural

FIRST, LAST, RANDOM = "first", "last", "random"
SELECTORS = ("random", "constraint")  # whose choices can be compared


@dataclass(frozen=True, slots=True)
class Standing:
    """The values by which choices are compared."""

    cluster: str
    tried: int  # priorities that left nobody before the one that decided
    select: str  # first, last or random
    keys: tuple[Scalar, ...]  # by the last sort first, so that less is better
    among: int  # clusters that the select could take
    alone: bool = False  # no agent works for it: any choice of a cluster with one comes before

    @classmethod
    def of(cls, choice: Choice, *, alone: bool) -> Self | None:
        """Read a choice; None if there is none, or of a selector that is not ours."""
        if choice.cluster is None or choice.selector not in SELECTORS:
            return None
        last = choice.steps[-1]
        ends = [at for at, step in enumerate(choice.steps) if not step.survivors]  # of priorities that left nobody
        decided = choice.steps[ends[-1] + 1 if ends else 0 :]
        keys = [_key(step, choice.cluster) for step in reversed(decided) if choice.cluster in step.values]
        sorts = tuple(key for key in keys if key is not None)
        return cls(choice.cluster, len(ends), last.argument, sorts, last.among, alone)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """Read the rank that another server has sent of its own choice."""
        return cls(**{**answer, "keys": tuple(answer["keys"])})


def _key(step: Step, cluster: str) -> Scalar | None:
    value = step.values[cluster]
    if isinstance(value, str) or not step.step.startswith("sort_"):
        return None
    return value if step.step == "sort_ascending" else -value


def best(standings: Mapping[str, Standing], chance: Callable[[str], float]) -> str:
    """Return the server whose choice is the best of all; `chance` gives a number in (0, 1] for each.

    >>> one, two = (Standing(name, 0, "first", (cost,), 1) for name, cost in (("oak", 2), ("elm", 1)))
    >>> best({"here": one, "there": two}, lambda _: 1.0)
    'there'
    """
    foremost = min((one.alone, one.tried) for one in standings.values())
    remaining = {server: one for server, one in standings.items() if (one.alone, one.tried) == foremost}
    select = next(iter(remaining.values())).select
    if select == RANDOM:
        return drawn({server: one.among for server, one in remaining.items()}, chance)
    rank = {server: (one.keys, natural(one.cluster)) for server, one in remaining.items()}
    return (max if select == LAST else min)(rank, key=rank.__getitem__)


def drawn(weights: Mapping[str, float], chance: Callable[[str], float]) -> str:
    """Draw by weight, so that with equal chances another weight moves no more draws than it must.

    >>> drawn({"a": 1, "b": 3}, {"a": 0.9, "b": 0.5}.__getitem__)
    'a'
    """
    return min(weights, key=lambda one: (-log(chance(one)) / weights[one] if weights[one] else float("inf"), one))


def chance_of(text: str) -> Callable[[str], float]:
    """Return chances that are the same for the same text."""

    def chance(server: str) -> float:
        return (int.from_bytes(sha256(f"{text}\n{server}".encode("utf-8", "surrogatepass")).digest()[:7]) + 1) / 2**56

    return chance
