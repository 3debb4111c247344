"""The outcome of the work at hand: whether it has stored something, and what fails after that.

A fault that comes after a commit must not say that nothing was stored. The store notes here what was committed, in
the thread that asked for it; and the API looks when it answers the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
    """Log a fault of the block, which follows a commit: what is stored stays, and the answer says so."""
    try:
        yield
    except Exception as fault:  # listeners, counters and caches are anybody's: none of them undoes a commit
        log.error("after-commit-failed", what=what, fault=repr(fault), exc_info=fault)
