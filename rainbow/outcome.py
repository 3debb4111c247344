"""The request at hand: whether it has stored something, the faults after that, and its caller.

A fault that comes after a commit must not say that nothing was stored. The store notes here what was committed, in
the thread that asked for it; and the API looks when it answers the request.

A request that changes something begins an entry of the audit; what is changed adds its name to it. The store writes
the entry in the transaction of the change, so that there is no change without it, and no row of what was refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import structlog

log = structlog.get_logger("rainbow.store")
_stored: ContextVar[bool] = ContextVar("stored", default=False)


def begin_request() -> None:
    """Begin a piece of work that has stored nothing yet."""
    _stored.set(False)


def note_stored() -> None:
    """Note that the work of this thread has been committed."""
    _stored.set(True)


def has_stored() -> bool:
    """Return whether the work of this thread has committed something since it began."""
    return _stored.get()


@contextmanager
def after_commit(what: str) -> Iterator[None]:
    """Log a fault of the block, which follows a commit: the stored change stays, and the answer says so."""
    try:
        yield
    except Exception as fault:  # listeners, counters and caches are anybody's: none of them undoes a commit
        log.error("after-commit-failed", what=what, fault=repr(fault), exc_info=fault)


@dataclass(slots=True)
class AuditEntry:
    """One request: its time, way, action and caller. No value of a credential is in it."""

    at: float
    request: str  # its id, which is in the log, too
    verb: str  # "jobs.cancel"
    path: str
    address: str  # of the peer
    login: str = ""  # whom the client says that it is
    credentials: str = ""  # ids of those it brought, or "admin", "registration"
    place: tuple[str, str] = ("", "")  # the cluster that is changed where nothing of it is named, and its id
    objects: dict[tuple[str, str], None] = field(default_factory=dict)  # what changes, and the id of its cluster
    stored: set[tuple[str, str]] = field(default_factory=set)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that a transaction stores: one for each object, or one for the request."""
        changed = [one for one in self.objects if one not in self.stored]
        if not changed and not self.stored and self.place[0]:
            changed = [self.place]
        self.stored.update(changed)
        same = {
            "at": self.at,
            "request": self.request,
            "verb": self.verb,
            "path": self.path,
            "address": self.address,
            "login": self.login,
            "credential": self.credentials,
        }
        return [{**same, "object": name, "cluster_id": cluster} for name, cluster in changed]


ENTRY: ContextVar[AuditEntry | None] = ContextVar("entry", default=None)  # None: nobody from outside asks


def note_object(name: str, cluster_id: str = "") -> None:
    """Note that the request at hand changes something: "job ID", "cluster NAME", "token ID"."""
    if (entry := ENTRY.get()) is not None:
        entry.objects[name, cluster_id] = None


def note_cluster(name: str, cluster_id: str) -> None:
    """Note that the request at hand changes a cluster, or something of it that has no name of its own."""
    if (entry := ENTRY.get()) is not None:
        entry.place = (f"cluster {name}", cluster_id)


def note_repeat() -> None:
    """Note that the request at hand was answered before, and changes nothing now."""
    if (entry := ENTRY.get()) is not None:
        entry.objects.clear()
        entry.place = ("", "")


def note_credentials(ids: tuple[str, ...]) -> None:
    """Record the caller, by the ids of the credentials that the request brought."""
    if (entry := ENTRY.get()) is not None:
        entry.credentials = " ".join(ids)
