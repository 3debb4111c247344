"""Whether what was written to and read from one register could have happened one after the other.

The search of Wing and Gong (Testing and verifying concurrent objects, 1993) with the memory of Lowe (Testing for
linearizability, 2017): take any access that nothing unanswered-for precedes, apply it, go on; never begin twice from
the same accesses taken and the same value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

WRITE, IS, IS_NOT = "write", "is", "is not"


@dataclass(frozen=True)
class Access:
    """A write of a value, or a read that saw it, or saw another one; `end` is infinite where it may not have been."""

    call: float
    end: float
    kind: str
    value: Any
    text: str = ""

    def shows(self, value: Any) -> bool:
        """Return whether a read may have seen this value."""
        return bool((self.kind == IS) == (self.value == value))


def unexplained(accesses: Sequence[Access], first: Any = None) -> Access | None:
    """Return the access at which every order fails; None if there is an order that explains all.

    >>> two = [Access(0, 1, WRITE, 1), Access(2, 3, WRITE, 2)]
    >>> unexplained([*two, Access(4, 5, IS, 2)])
    >>> unexplained([*two, Access(4, 5, IS, 1)]).value
    1
    """
    line = sorted(accesses, key=lambda each: each.call)
    certain = sum(1 << at for at, each in enumerate(line) if each.end < inf)
    stack, known = [(0, first)], {(0, repr(first))}
    furthest: tuple[int, Access | None] = (-1, None)
    while stack:
        taken, ready, stuck = _read_on(line, *stack.pop())
        if taken & certain == certain:
            return None
        furthest = max(furthest, ((taken & certain).bit_count(), stuck), key=lambda one: one[0])
        for at in _worth(line, ready):
            step = (taken | 1 << at, repr(line[at].value))
            if step not in known:
                known.add(step)
                stack.append((step[0], line[at].value))
    return furthest[1]


def _read_on(line: Sequence[Access], taken: int, value: Any) -> tuple[int, list[int], Access | None]:
    """Take every read that fits the value; return what is taken, what may be next, and which of that ends first."""
    while True:
        ready: list[int] = []
        deadline, stuck, before = inf, None, taken
        start = (~taken & taken + 1).bit_length() - 1  # the first that is not taken
        for at in range(start, len(line)):
            each = line[at]
            if taken >> at & 1:
                continue
            if each.call > deadline:
                break
            if each.end < deadline:
                deadline, stuck = each.end, each
            if each.kind != WRITE and each.shows(value):
                taken |= 1 << at
            else:
                ready.append(at)
        if taken == before:
            return taken, ready, stuck


def _worth(line: Sequence[Access], ready: Sequence[int]) -> Iterator[int]:
    """Give the writes that may be next and need not wait.

    One that may not have been can wait until a read shows it, and of equal ones the first is as good as any.
    """
    known = set()
    for each, at in ((line[at], at) for at in ready if line[at].kind == WRITE):
        if each.end < inf:
            yield at
        elif repr(each.value) not in known and any(
            line[read].kind != WRITE and line[read].shows(each.value) for read in ready
        ):
            known.add(repr(each.value))
            yield at
