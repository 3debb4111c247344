"""The places for connections: how many may be open in all, from one address and for one credential.

A connection is a stranger's until it has shown a credential that is known. When places run out, the connection that
is closed is the stranger that came first: whoever means to send a request has had the time to do so. So one who
holds thousands of connections closes its own, and a newcomer always gets in. Connections with a credential are closed
only while they carry no request, and only by others with one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

Held = OrderedDict[Hashable, None]  # connections, the first to come first


class Places:
    """Connections by address, or by credential once they have shown one; a connection is anything hashable."""

    def __init__(self, most: int, of_address: int) -> None:
        self.most, self.of_address = most, of_address
        self._strangers: Held = OrderedDict()
        self._idle: Held = OrderedDict()  # with a credential, and no request at the moment
        self._groups: dict[Hashable, Held] = {}  # strangers by address, others by credential
        self._group: dict[Hashable, Hashable] = {}

    def __len__(self) -> int:
        """Connections that are open."""
        return len(self._group)

    def counts(self) -> dict[str, int]:
        """Open connections by kind."""
        return {"stranger": len(self._strangers), "known": len(self._group) - len(self._strangers)}

    def enter(self, connection: Hashable, address: str) -> Hashable | None:
        """Give a place to a stranger; return the connection to close for it, itself if there is no place.

        >>> places = Places(most=3, of_address=2)
        >>> [places.enter(name, "10.0.0.1") for name in "abc"]
        [None, None, 'a']
        """
        group = ("address", address)
        full = len(self._groups.get(group, ())) >= self.of_address
        gone = next(iter(self._groups[group])) if full else self._to_close()
        if gone is connection:
            return connection
        self._put(connection, group)
        self._strangers[connection] = None
        if gone is not None:
            self.leave(gone)
        return gone

    def prove(self, connection: Hashable, credential: str) -> bool:
        """Note that a stranger has shown a known credential; False if too many hold that one already."""
        if connection not in self._strangers:
            return connection in self._group
        group = ("credential", credential)
        if len(self._groups.get(group, ())) >= max(1, self.most // 2):
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
        """Free the place of a connection; nothing if it has none."""
        group = self._group.pop(connection, None)
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)
        if group is not None:
            self._groups[group].pop(connection, None)
            if not self._groups[group]:
                del self._groups[group]

    def _to_close(self) -> Hashable | None:
        if len(self._group) < self.most:
            return None
        return next(iter(self._strangers), None) or next(iter(self._idle), None)

    def _put(self, connection: Hashable, group: Hashable) -> None:
        self._group[connection] = group
        self._groups.setdefault(group, OrderedDict())[connection] = None
