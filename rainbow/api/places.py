"""The places for connections: how many may be open in all, from one address and for one credential.

A connection is a stranger's until it has shown a credential that is known. When places run out, the stranger that
came first loses its own: who means to send a request has had the time to do so. So one who holds thousands of
connections takes places from itself, and a newcomer always gets in. Connections with a credential are closed only
while they carry no request, and only by others with one.

A stranger without a place is not closed at once, but set aside: it stays open and costs nothing. One that is closed
comes again, and thousands that come again each second would take a third of a processor.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

Held = OrderedDict[Hashable, None]  # connections, the first to come first


class Losers(NamedTuple):
    """Who loses something to a newcomer: the stranger that is set aside, and the connection to close."""

    aside: Hashable | None = None
    closed: Hashable | None = None


class Places:
    """Connections by address, or by credential once they have shown one; a connection is anything hashable."""

    def __init__(self, most: int, of_address: int, aside: int = 0) -> None:
        self.most, self.of_address, self.most_aside = most, of_address, aside
        self._aside: Held = OrderedDict()  # open, without a place
        self._strangers: Held = OrderedDict()
        self._idle: Held = OrderedDict()  # with a credential, and no request at the moment
        self._groups: dict[Hashable, Held] = {}  # strangers by address, others by credential
        self._group: dict[Hashable, Hashable] = {}

    def __len__(self) -> int:
        """Connections that are open."""
        return len(self._group)

    def counts(self) -> dict[str, int]:
        """Open connections by kind."""
        strangers = len(self._strangers)
        return {"stranger": strangers, "known": len(self._group) - strangers, "aside": len(self._aside)}

    def enter(self, connection: Hashable, address: str) -> Losers:
        """Give a place to a stranger; return who loses one for it, itself if there is no place.

        >>> places = Places(most=3, of_address=2, aside=1)
        >>> [tuple(places.enter(name, "10.0.0.1")) for name in "abcd"]
        [(None, None), (None, None), ('a', None), ('b', 'a')]
        """
        group = ("address", address)
        full = len(self._groups.get(group, ())) >= self.of_address
        gone = next(iter(self._groups[group])) if full else self._first()
        if gone is None and len(self._group) >= self.most:
            return Losers(closed=connection)
        stranger = gone in self._strangers
        if gone is not None:
            self.leave(gone)
        self._put(connection, group)
        self._strangers[connection] = None
        return self._set_aside(gone) if stranger else Losers(closed=gone)

    def _set_aside(self, stranger: Hashable) -> Losers:
        self._aside[stranger] = None
        if len(self._aside) <= self.most_aside:
            return Losers(stranger)
        first, _ = self._aside.popitem(last=False)
        return Losers(None if first is stranger else stranger, first)

    def prove(self, connection: Hashable, credential: str) -> bool:
        """Note that a stranger has shown a known credential; False if too many hold that one already.

        One that is set aside, and whose request was here before, has a place again if there is one.
        """
        if connection not in self._strangers and connection not in self._aside:
            return connection in self._group
        group = ("credential", credential)
        if len(self._groups.get(group, ())) >= max(1, self.most // 2):
            return False
        if connection in self._aside and len(self._group) >= self.most:
            return False
        self.leave(connection)
        self._put(connection, group)
        return True

    def rests(self, connection: Hashable, rests: bool) -> None:
        """Note whether a connection carries a request at the moment."""
        if not rests:
            self._idle.pop(connection, None)
        elif connection in self._group and connection not in self._strangers:
            self._idle[connection] = None

    def leave(self, connection: Hashable) -> None:
        """Forget a connection; nothing if it is not here."""
        self._aside.pop(connection, None)
        group = self._group.pop(connection, None)
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)
        if group is not None:
            self._groups[group].pop(connection, None)
            if not self._groups[group]:
                del self._groups[group]

    def _first(self) -> Hashable | None:
        """Return who is the first to go while all places are taken."""
        if len(self._group) < self.most:
            return None
        return next(iter(self._strangers), None) or next(iter(self._idle), None)

    def _put(self, connection: Hashable, group: Hashable) -> None:
        self._group[connection] = group
        self._groups.setdefault(group, OrderedDict())[connection] = None
