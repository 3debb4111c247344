"""Tokens and secrets: minted, listed, rotated, revoked.

A caller needs the secret of every cluster that a token is good for. A token names clusters, the requestors it may act
for (null: any) and an end date (null: none). A cluster's own secret is listed and rotated the same way; it is never
minted a second time, nor revoked: without it only the administrator could manage the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import BY_FILE, Conflict, Forbidden, NotFound, RequestError, ValueRefused
from rainbow.outcome import note_object
from rainbow.service.core.access import Caller, own_cluster
from rainbow.service.core.keyed_call import KeyedCall
from rainbow.store import clusters, credentials, events
from rainbow.store.credentials import MONITOR, SECRET, TOKEN, CredentialRecord, digest, minted
from rainbow.text import seconds_of

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service


ZONED = re.compile(r"([Zz]|[+-]\d\d(:?\d\d)?)$")  # a time that says of which zone it is


def mint_token(
    service: Service, who: Caller, body: Mapping[str, Any], call: KeyedCall | None = None
) -> dict[str, Any]:
    """Mint a submit token: {"clusters": [names]}, and "requestors", "accounts": [names], "expires_at": time, "name".

    {"monitor": true, "expires_at"?, "name"?} mints one that reads /metrics, which needs the admin token. The body has
    the form `Token` of api/schemas.py.
    """
    call = call or KeyedCall(service)
    if body.get("monitor"):
        return _mint_monitor(service, who, body, call)
    names = _names(body, "clusters")
    requestors = _names(body, "requestors") if body.get("requestors") is not None else None
    accounts = _names(body, "accounts") if body.get("accounts") is not None else None
    more = {
        "name": body.get("name"),
        "requestors": requestors,
        "accounts": accounts,
        "expires_at": _end(service, body),
    }
    now, made = service.clock(), call.credential("token", TOKEN)
    with service.store.write() as connection:
        if (earlier := call.earlier(connection)) is not None:
            return earlier
        results = tuple(sorted({own_cluster(connection, who, name).id for name in names}))
        record = minted(made, TOKEN, now, results, **more)
        credentials.add(connection, record)
        _note(record)
        _tell(connection, record, now, "minted")
        return call.keep(connection, _shown(record, clusters.names(connection, results)), token=(TOKEN, made))


def _mint_monitor(service: Service, who: Caller, body: Mapping[str, Any], call: KeyedCall) -> dict[str, Any]:
    """Mint a token of the whole server that only reads its metrics."""
    if not who.admin:
        raise Forbidden(f"a monitor token needs the admin token; {BY_FILE}")
    end, now, made = _end(service, body), service.clock(), call.credential("token", MONITOR)
    with service.store.write() as connection:
        if (earlier := call.earlier(connection)) is not None:
            return earlier
        record = minted(made, MONITOR, now, (), name=body.get("name"), expires_at=end)
        credentials.add(connection, record)
        _note(record)
        return call.keep(connection, _shown(record, {}), token=(MONITOR, made))


def listing(service: Service, who: Caller) -> list[dict[str, Any]]:
    """List the credentials of the caller's own clusters, the oldest first; what they are is never told again."""
    if not who.admin and not who.secrets:
        raise Forbidden("this needs a cluster's secret")
    with service.store.read() as connection:
        results = credentials.listing(connection, None if who.admin else who.secrets)
        names = clusters.names(connection, {each for record in results for each in record.clusters})
    return [_shown(record, names, who) for record in results]


def rotate(service: Service, who: Caller, credential_id: str, call: KeyedCall | None = None) -> dict[str, Any]:
    """Give a token or secret a new value; the old one ends now."""
    call = call or KeyedCall(service)
    with service.store.write() as connection:
        if (earlier := call.earlier(connection)) is not None:
            return earlier
        record = _own(connection, who, credential_id)
        if record.revoked_at is not None:
            raise Conflict(f"credential {credential_id} is revoked")
        name = SECRET if record.kind == SECRET else "token"
        made = call.credential(name, record.kind)
        credentials.change(connection, record.id, hash=digest(made))
        _tell(connection, record, service.clock(), "rotated")
        shown = _shown(record, clusters.names(connection, record.clusters))
        answer = call.keep(connection, shown, **{name: (record.kind, made)})
    service.tell(*record.clusters, agents=True)  # who waits with the old one is refused now
    return answer


def revoke(service: Service, who: Caller, credential_id: str) -> None:
    """End a token now; what it submitted stays."""
    with service.store.write() as connection:
        record = _own(connection, who, credential_id)
        if record.kind == SECRET:
            raise Conflict("a cluster secret cannot be revoked; rotate it instead")
        if record.revoked_at is None:
            credentials.change(connection, record.id, revoked_at=service.clock())
            _tell(connection, record, service.clock(), "revoked")
    if record.clusters:
        service.tell(*record.clusters, agents=True)


def _own(connection: sa.Connection, who: Caller, credential_id: str) -> CredentialRecord:
    """Return a credential all of whose clusters the caller owns; one that is not is as if it did not exist."""
    record = credentials.get(connection, credential_id)
    if record is None or not (who.admin or (record.clusters and set(record.clusters) <= who.secrets)):
        raise NotFound(f"credential {credential_id} not found")
    _note(record)
    return record


def _note(record: CredentialRecord) -> None:
    for cluster_id in record.clusters or [""]:
        note_object(f"credential {record.id}", cluster_id)


def _tell(connection: sa.Connection, record: CredentialRecord, now: float, what: str) -> None:
    for cluster_id in record.clusters:
        events.add(connection, now, cluster_id, "token", id=record.id, state=what)


def _shown(record: CredentialRecord, names: Mapping[str, str], who: Caller | None = None) -> dict[str, Any]:
    seen = [each for each in record.clusters if who is None or who.owns(each)]
    return {
        "id": record.id,
        "kind": record.kind,
        "name": record.name,
        "clusters": sorted(names[each] for each in seen if each in names),
        "requestors": record.requestors,
        "accounts": record.accounts,
        "created_at": record.created_at,
        "expires_at": record.expires_at,
        "revoked_at": record.revoked_at,
    }


def _names(body: Mapping[str, Any], key: str) -> list[str]:
    return sorted(set(body.get(key, [])))


def _end(service: Service, body: Mapping[str, Any]) -> float | None:
    options = body.get("expires_at")
    if options is None:
        return None
    try:
        end = seconds_of(options) if isinstance(options, str) and ZONED.search(options) else None
    except (ValueError, OverflowError):
        end = None
    if end is None:
        raise RequestError("expires_at is a time like 2030-01-31T12:00:00Z", pointer="/expires_at")
    if end <= service.clock():
        raise ValueRefused("expires_at is in the past", pointer="/expires_at")
    return end
