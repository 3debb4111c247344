"""Basis and tag: a job may say what it is a version of; a newer version takes the place of those before it.

The same tag again is the same version: nothing is replaced. A tag that a newer one followed is refused, even if
its jobs have long ended. Only what the caller may submit to is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.errors import Conflict
from rainbow.service.jobs.showing import end
from rainbow.store import tags
from rainbow.store.tags import Basis

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.access import Caller
    from rainbow.service.service import Service
    from rainbow.store.jobs import JobRecord


def replace_ancestors(service: Service, connection: sa.Connection, who: Caller, record: JobRecord) -> None:
    """Make a job's tag the newest of its basis and end the jobs of older ones; Conflict if it is an older one."""
    if not record.basis:
        return
    basis = Basis(record.requestor, record.basis)
    allowed = {entry.id for entry in service.catalogue.values() if who.admin or entry.id in who.submits}
    known = tags.known(connection, allowed, basis)
    if record.tag in known[1:] and record.tag != known[0]:
        raise Conflict(f"tag {record.tag} has expired: {record.basis} has moved on to {known[0]}", newest=known[0])
    if record.tag not in known[:1]:
        tags.add(connection, record.cluster_id, basis, record.tag)
        for job in tags.live(connection, allowed, basis, record.tag):
            end(connection, job, service.clock())
