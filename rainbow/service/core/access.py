"""The rights that tokens and secrets give to a caller.

    rbr_  registration secret   register clusters
    rbs_  cluster secret        everything about that one cluster but submitting to it
    rbt_  submit token          submit to, match against and see the jobs of its cluster
    rbm_  monitor token         read /metrics
    rba_  admin token           everything

256 random bits each; only their SHA-256 is stored. A cluster outside a caller's credentials does not exist for
that caller: the same statements run and the answer is the one for an unknown name.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.errors import Forbidden, NotFound, Unauthenticated
from rainbow.outcome import note_cluster, note_credentials
from rainbow.service.core.memory import IMMUTABLE, Table
from rainbow.store import clusters, credentials
from rainbow.store.clusters import ClusterRecord
from rainbow.store.credentials import MONITOR, SECRET, TOKEN, CredentialRecord, digest

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service


MISSING = "authentication required"
ANONYMOUS = "anonymous"  # whom a job is for where nobody says it
UNKNOWN = "credential not recognized: it is mistyped, expired, revoked, or belongs to a deleted cluster"
MOST_CALLERS = 256  # callers that are remembered
HELP = "see `rainbow help credentials`"


@dataclass(frozen=True, slots=True)
class Caller:
    """What some credentials allow. `submits`: cluster id → requestors (None: any).

    Requests with the same credentials share one, until these change: what it holds may be long.
    """

    registers: bool = False
    admin: bool = False
    secrets: frozenset[str] = frozenset()
    submits: Mapping[str, list[str] | None] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)  # cluster id → id of its secret that was brought
    known: tuple[str, ...] = ()  # ids of the credentials brought that are known
    monitors: bool = False  # may read the metrics of the whole server
    accounts: frozenset[str] | None = None  # that submits may be paid by; None: any of the requestor's
    confined: frozenset[str] = frozenset()  # clusters where only the jobs of the requestors named are shown
    until: float = inf  # when the first of the credentials ends

    def called(self, cluster_id: str) -> str:
        """Say who this is to a cluster, without saying a credential."""
        return "admin" if self.admin else f"secret {self.ids[cluster_id]}"

    def owns(self, cluster_id: str) -> bool:
        """Return whether the caller has a cluster's secret, or all of them."""
        return self.admin or cluster_id in self.secrets

    def sees(self, cluster_id: str) -> bool:
        """Return whether a cluster exists for this caller."""
        return self.owns(cluster_id) or cluster_id in self.submits

    def submits_to(self, cluster_id: str, requestor: str) -> bool:
        """Return whether the caller may submit to a cluster for this requestor."""
        allowed = self.submits.get(cluster_id, [])
        return self.admin or allowed is None or requestor in allowed

    def speaks_for(self, cluster_id: str, requestor: str) -> bool:
        """Return whether what is this requestor's at a cluster that exists for this caller is also the caller's."""
        if self.owns(cluster_id):
            return True
        allowed = self.submits.get(cluster_id)
        return allowed is None or requestor in allowed

    def sees_of(self, cluster_id: str, requestor: str) -> bool:
        """Return whether a job of this requestor at a cluster exists for this caller."""
        return self.sees(cluster_id) and (cluster_id not in self.confined or requestor in self.own[cluster_id])

    @property
    def own(self) -> dict[str, list[str]]:
        """The requestors whose jobs are shown, by cluster, where not all's are."""
        return {cluster: self.submits[cluster] or [] for cluster in self.confined}

    @property
    def visible(self) -> Collection[str] | None:
        """The clusters this caller may see; None: all."""
        return None if self.admin else self.secrets | set(self.submits)


class Callers(Table[Any, Caller], name="callers", most=MOST_CALLERS, valid=IMMUTABLE, key="tokens and their changes"):
    """The last callers of a service, by what of their credentials is known."""


def caller(service: Service, connection: sa.Connection, brought: Collection[str]) -> Caller:
    """Say who asks, by what of it is known: a dead token takes nothing away. Unauthenticated if none of it is."""
    return caller_by(service, connection, {digest(credential) for credential in brought})


def caller_by(service: Service, connection: sa.Connection, hashes: Collection[str]) -> Caller:
    """Say who asks by the digests of the credentials that were brought."""
    results = credentials.valid(connection, hashes, service.clock())
    registers = any(hmac.compare_digest(own, service.registration) for own in hashes)
    admin = any(hmac.compare_digest(own, service.administration) for own in hashes)
    if not (registers or admin or results):
        raise Unauthenticated(f"{UNKNOWN if hashes else MISSING} ({HELP})")
    key = (registers, admin, *sorted(results.items()))
    callers = service.state(Callers)
    known = callers.get(key) or callers.put(key, _made(connection, registers, admin, results))
    note_credentials(known.known)
    return _confined(connection, known)


def known_of(service: Service, connection: sa.Connection, hashes: Collection[str]) -> list[str]:
    """Return those of these digests whose credentials are known; Unauthenticated if there are none."""
    ours, now = {service.registration, service.administration}, service.clock()
    result = [own for own in hashes if own in ours or credentials.valid(connection, [own], now)]
    if not result:
        raise Unauthenticated(f"{UNKNOWN if hashes else MISSING} ({HELP})")
    return result


def registers(service: Service, hashes: Collection[str]) -> bool:
    """Return whether one of these digests is of a credential that lets clusters register."""
    return service.registration in hashes or service.administration in hashes


def _confined(connection: sa.Connection, known: Caller) -> Caller:
    """Add which clusters show their own jobs only: asked each time, as an owner may change it at any."""
    named = {cluster for cluster, requestors in known.submits.items() if requestors is not None} - known.secrets
    if known.admin or not named:
        return known
    confined = frozenset(clusters.confining(connection, named))
    return replace(known, confined=confined) if confined else known


def _made(connection: sa.Connection, registers: bool, admin: bool, ids: Collection[str]) -> Caller:
    records = credentials.some(connection, ids) if ids else []
    secrets_of = _secrets(records)
    known = (*(["registration"] * registers), *(["admin"] * admin), *sorted(ids))
    monitors = admin or any(record.kind == MONITOR for record in records)
    return Caller(
        registers or admin,
        admin,
        frozenset(secrets_of),
        _submits(records),
        secrets_of,
        known,
        monitors,
        accounts=None if admin else _accounts(records),
        until=min((one.expires_at for one in records if one.expires_at is not None), default=inf),
    )


def _secrets(records: Iterable[CredentialRecord]) -> dict[str, str]:
    """Return {cluster id: id of the secret brought for it}."""
    return {cluster: record.id for record in records if record.kind == SECRET for cluster in record.clusters}


def _submits(records: Iterable[CredentialRecord]) -> dict[str, list[str] | None]:
    """Of two tokens for one cluster both count: what one allows the other does not take away."""
    allowed: dict[str, list[str] | None] = {}
    for record in (record for record in records if record.kind == TOKEN):
        for cluster in record.clusters:
            before = allowed.get(cluster, [])
            any_of_them = before is None or record.requestors is None
            allowed[cluster] = None if any_of_them else sorted({*(before or []), *(record.requestors or [])})
    return allowed


def _accounts(records: Iterable[CredentialRecord]) -> frozenset[str] | None:
    """Return the accounts tokens name together; None where one of them names none."""
    named = [record.accounts for record in records if record.kind == TOKEN]
    if not named or None in named:
        return None
    return frozenset(name for accounts in named for name in accounts or ())


def visible_cluster(connection: sa.Connection, who: Caller, name: str) -> ClusterRecord:
    """Return a cluster that exists for this caller, else NotFound."""
    record = clusters.find(connection, name)
    if record is None or not who.sees(record.id):
        raise NotFound(f"cluster {name} not found")
    return record


def own_cluster(connection: sa.Connection, who: Caller, name: str) -> ClusterRecord:
    """Return a cluster whose secret the caller has; Forbidden for those who only may submit to it."""
    record = visible_cluster(connection, who, name)
    if not who.owns(record.id):
        raise Forbidden(f"the secret of cluster {name} is required")
    note_cluster(name, record.id)
    return record


def requestor_of(query: str | None, allowed: list[str] | None, login: str | None = None) -> str:
    """Return who a job is for: what the request says, if the token may act for them, else the caller's login."""
    if allowed is None:
        return query or login or ANONYMOUS
    if query is None and login in allowed:
        return str(login)
    if query is None and allowed:
        return allowed[0]
    if query not in allowed:
        raise not_for(query)
    return query


def not_for(requestor: str | None) -> Forbidden:
    """Return what is raised where a token that names requestors is used for another."""
    return Forbidden(f"this token does not allow user {requestor}")
