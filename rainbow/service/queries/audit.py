"""Who asked for which change: for the administrator all of it, for an owner what concerns their clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.errors import Forbidden, RequestError
from rainbow.service.jobs import names
from rainbow.store import clusters, events
from rainbow.store.events import AuditRecord

if TYPE_CHECKING:
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service


def listing(
    service: Service,
    who: Caller,
    *,
    job: str | None,
    credential: str | None,
    since: float | None,
    until: float | None,
    cursor: str | None,
    limit: int,
    login: str | None = None,
) -> tuple[list[dict[str, Any]], str | None]:
    """Return changes, the newest first, and the cursor of the page after; None: that was all."""
    if not who.admin and not who.secrets:
        raise Forbidden("this needs a cluster's secret, or the admin token")
    if cursor and not cursor.isdecimal():
        raise RequestError(f"unknown cursor {cursor[:40]!r}; give what a page said under next", pointer="/cursor")
    about = None if job is None else f"job {names.whole_id(service, who, job, login)}"
    with service.store.read() as connection:
        records = events.list_audit(
            connection,
            None if who.admin else who.secrets,
            limit + 1,
            int(cursor) if cursor else None,
            object=about,
            credential=credential,
            since=since,
            until=until,
        )
        named = clusters.names(connection, {one.cluster_id for one in records} - {""})
    rows, more = records[:limit], len(records) > limit
    return [_shown(one, named.get(one.cluster_id)) for one in rows], str(rows[-1].id) if more else None


def _shown(one: AuditRecord, cluster: str | None) -> dict[str, Any]:
    return {
        "changed_at": one.at,
        "verb": one.verb,
        "object": one.object,
        "cluster": cluster,
        "credential": one.credential,
        "login": one.login or None,
        "address": one.address,
        "request": one.request,
        "path": one.path,
    }
