"""Blocks of job numbers: each process reserves one in a short transaction of its own, before a submit's begins.

A submit takes its numbers of the block without any statement; one that is refused leaves a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from rainbow.errors import LimitError
from rainbow.service.core.memory import place
from rainbow.store.engine import once_stored
from rainbow.store.names import numbers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service

BLOCK = 1_000
LOOK = 5.0  # seconds after which low numbers are looked at again: a site may have been connected


@place("numbers", most="one block", of="numbers that this process has reserved in the store")
@dataclass
class Block:
    """Numbers that this process may give: from `following` until before `end`."""

    following: int = 0
    end: int = 0
    looked_at: float = 0.0
    turn: Lock = field(default_factory=Lock)


def take(service: Service, many: int) -> int:
    """Return the first of consecutive numbers that no other job ever has."""
    block = service.state(Block)
    with block.turn:
        if block.end - block.following < many or _is_low(service, block):
            _reserve(service, block, many)
        first, block.following = block.following, block.following + many
    return first


def _is_low(service: Service, block: Block) -> bool:
    """Return whether numbers continue above this block, because of a site that has numbers of its own."""
    if service.settings.numbers.first != numbers.AUTO or block.following >= numbers.OF_SITES:
        return False
    now = service.monotonic()
    if now - block.looked_at < LOOK:
        return False
    block.looked_at = now
    with service.store.read() as connection:
        return numbers.first_number(connection, numbers.AUTO) >= numbers.OF_SITES


def _reserve(service: Service, block: Block, many: int) -> None:
    settings, size = service.settings.numbers, max(BLOCK, many)
    with service.store.write() as connection:
        first = numbers.reserve(connection, size, settings.first)
        if first + many - 1 > settings.last:
            raise LimitError(f"the numbers of jobs end at {settings.last}", limit="numbers")
    block.following, block.end = first, min(first + size, settings.last + 1)
    block.looked_at = service.monotonic()


def note_site(service: Service, connection: sa.Connection) -> None:
    """Note that a site has numbered a job by itself: our numbers continue above its."""
    if service.settings.numbers.first == numbers.AUTO and not service.state(Sites).known:
        numbers.leave_to_sites(connection)
        once_stored(partial(setattr, service.state(Sites), "known", True))


@place("numbered-sites", most="one", of="whether it is stored that a site has numbers of its own")
@dataclass
class Sites:
    """Whether this process has seen a number of a site."""

    known: bool = False
