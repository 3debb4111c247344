"""The service: store, clock, and the compiled clusters, wired together once.

The stored graphs are the truth. A cluster is compiled from its summary, which is of one revision and one format;
where it is missing the graphs are read and the summary is stored for the next start. The vertices, which a summary
leaves out, are read from the graphs when they are asked for; matching does not ask.

The verbs are functions of the folders next to this one, each with the service as its first argument:

    clusters/      clusters come, change and go; how each is scheduled
    placement/     a jobspec is matched, a cluster selected, job and decision stored; jobs that move
    jobs/          stored jobs: cancelled, settled, suspended
    live_state/    what a cluster has, kept in memory from step to step
    scheduler/     one scheduling step of one cluster, and the loop that takes them
    agents/        what an agent asks and reports; agents and workers there are, and are lost
    queries/       jobs listed and explained, plans and figures shown
    reservations   what users reserve in advance
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from rainbow.errors import NotFound, RainbowError, Unavailable
from rainbow.forecast import outlook
from rainbow.graph import Cluster, read_cluster
from rainbow.matching import prepare
from rainbow.matching.equivalence.subtree_classes import FORMATS, restored, summarise
from rainbow.process_secrets import secret_of
from rainbow.service.core.counters import gauge, observe
from rainbow.service.core.heartbeats import Heartbeats
from rainbow.service.core.memory import DECLARED, ByCluster, Row, picture, place, rows
from rainbow.service.core.pubsub import PubSub, offers_to_all, orders_to, work_for
from rainbow.service.core.readiness import Readiness
from rainbow.service.core.settings import Settings
from rainbow.service.core.threads import Threads
from rainbow.store import clusters, file_of, open_store, sqlite
from rainbow.store.credentials import digest, mint
from rainbow.store.engine import on_undo, once_stored
from rainbow.store.step_lock import StepLocks

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.state_machine import ForAgents
    from rainbow.store import Store
    from rainbow.store.clusters import ClusterRecord


State = TypeVar("State")

log = structlog.get_logger("rainbow")
LOOK = 2.0  # seconds that a start looks at a store's file before it goes on
NO_FORECASTS = "the server makes no forecasts: scheduler.forecast_share is 0"


def compile_all(store: Store, backend: str) -> dict[str, tuple[ClusterRecord, Cluster]]:
    """Return {name: (record, cluster)} of all clusters that can be compiled."""
    with store.read() as connection:
        records, known = clusters.every(connection), clusters.get_summaries(connection, FORMATS)
        results = {record.name: (record, _made(store, connection, record, known, backend)) for record in records}
    made = {name: (record, cluster) for name, (record, cluster) in results.items() if cluster}
    new = [(record, cluster) for record, cluster in made.values() if record.id not in known]
    if new:
        with store.write() as connection:
            for record, cluster in new:
                keep_summary(connection, record.id, record.revision, cluster)
    return made


def compile_one(store: Store, connection: sa.Connection, record: ClusterRecord, backend: str) -> Cluster | None:
    """Return one cluster; None, and a line in the log, if its graphs cannot be read any more."""
    return _made(store, connection, record, clusters.get_summaries(connection, FORMATS, record.id), backend)


def keep_summary(connection: sa.Connection, cluster_id: str, revision: int, cluster: Cluster) -> None:
    """Store what a cluster is in short, if it can be said."""
    now = clusters.get(connection, cluster_id)
    summary = summarise(cluster)
    if summary and now and now.revision == revision:
        clusters.put_summary(connection, cluster_id, revision, *summary)


def _made(
    store: Store, connection: sa.Connection, record: ClusterRecord, known: Mapping[str, bytes], backend: str
) -> Cluster | None:
    try:
        if record.id not in known:
            return prepare(_read(connection, record), backend)
        content = known[record.id]
        whole = cache(partial(_whole, store, record))
        made = restored(content, record.name, record.levels, record.worker_type, whole)
        return prepare(made, backend)
    except RainbowError as fault:  # it was accepted once: one bad graph must not keep the others away
        log.error("cluster-not-compiled", cluster=record.name, fault=str(fault))
        return None


def _read(connection: sa.Connection, record: ClusterRecord) -> Cluster:
    document, hung = clusters.document(connection, record.id), clusters.graphs_of(connection, record.id)
    cluster = read_cluster(document, record.name, record.levels, record.worker_type)
    for name, subsystem in hung.items():
        cluster = cluster.with_subsystem(name, subsystem)
    return cluster


def _whole(store: Store, record: ClusterRecord) -> Cluster:
    """Read the graphs of a revision; Unavailable if they have just been replaced."""
    with store.read() as connection:
        now = clusters.get(connection, record.id)
        if now is None or now.revision != record.revision:
            raise Unavailable(f"the graphs of {record.name} are being changed; try again", retry_after=1)
        return _read(connection, record)


@dataclass(frozen=True, slots=True)
class RegisteredCluster:
    """A cluster compiled from the stored graphs."""

    id: str
    revision: int
    cluster: Cluster
    draining: bool = False  # takes no more jobs, and goes when its last has ended
    drained: bool = False  # takes nothing new until it is reinstated


MOST_REPLACED = 64  # changes that a catalogue knows of itself


@picture("catalogue", most="every cluster", true="its entries have the revision of the stored graphs")
class CompiledClusters(dict[str, RegisteredCluster]):
    """Compiled clusters by name; replaced whole, never changed. It knows how it came of those before."""

    def __init__(self, entries: Mapping[str, RegisteredCluster]) -> None:
        super().__init__(entries)
        self._clusters = object()  # the same of all that have these clusters, whatever their graphs
        self._changes = 0
        self._last: tuple[str, ...] = ()

    def with_entry(self, entry: RegisteredCluster) -> CompiledClusters:
        """Return those with another one in its place, or one more."""
        name, made = entry.cluster.name, CompiledClusters(self)
        if name in self:
            made._clusters, made._changes = self._clusters, self._changes + 1
            made._last = (*self._last, name)[-MOST_REPLACED:]
        made[name] = entry
        return made

    def replaced_since(self, before: CompiledClusters) -> set[str] | None:
        """Return which are others than they were before; None of other clusters, or if that is too long ago."""
        new = self._changes - before._changes
        if self._clusters is not before._clusters or not 0 <= new <= len(self._last):
            return None
        return set(self._last[len(self._last) - new :])


@place("faults", most="one for a cluster", of="why a cluster's last step failed")
class Faults(ByCluster[str]):
    """Why a cluster's last step failed."""


@place("overdue", most="one for a cluster", of="since when a step does not come back")
class Overdue(ByCluster[float]):
    """When a step began that does not come back, by cluster id."""


@place("every-tick", most="one for a cluster", of="clusters that time alone may change")
class EveryTick(set[str]):
    """Ids of clusters that are stepped at every tick."""


@place("backlog", most="one for a cluster", of="clusters whose last step left something to do")
class Backlog(set[str]):
    """Ids of clusters whose last step left something to do, workers or not."""


@picture("outlook", most="one for a cluster", true="forecasts say their time; bookings fall with a commit")
class Outlook(outlook.Outlook):
    """What is known of each cluster's time to come, changed by the forecaster's thread and by submits."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())
        self.elsewhere: Callable[[outlook.Booking], None] | None = None  # tells the other processes

    def book(self, booking: outlook.Booking) -> None:
        """Book a job here until its transaction is undone, and elsewhere once it is stored."""
        super().book(booking)
        on_undo(partial(self.take_back, booking))
        if self.elsewhere is not None and booking.start < inf:
            once_stored(partial(self.elsewhere, booking))


class Service:
    """What the verbs work on. `registration` and `administration` are digests of the two global credentials."""

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.store = store
        self.folder = folder  # where reports for operators are written; None: nowhere
        self.store.observe = partial(observe, "rainbow_store_seconds")
        self.settings = settings or Settings()
        self.clock = clock
        # who brings a clock brings it for both; the time of day may be set, and no lease ends by it
        self.monotonic = monotonic or (time.monotonic if clock is time.time else clock)
        self.heartbeats = Heartbeats(self.monotonic, clock)
        self.registration = digest(self.settings.secret or mint("registration"))
        self.administration = digest(self.settings.admin or mint("admin"))
        # credentials are derived of the admin token, which fewer know than the registration secret
        self.derivation = (self.settings.admin or mint("admin")).encode()
        self.catalogue = CompiledClusters({})
        self.changing = threading.RLock()  # held from writing a cluster's new graphs until they are seen
        self.news = PubSub()
        self.store.for_agents = self._tell_agents
        self.turns = StepLocks(store)
        self.ending = False
        self._states: dict[type, Any] = {}
        self.faults, self.overdue = self.state(Faults), self.state(Overdue)
        self.poll_every_tick, self.has_backlog = self.state(EveryTick), self.state(Backlog)
        for what in ("entries", "hits", "misses"):
            gauge(f"rainbow_memory_{what}", partial(self._remembered, what))
        self._compile_all()

    def _remembered(self, what: str) -> dict[str, float]:
        return {row.name: value for row in self.memory() if (value := getattr(row, what)) is not None}

    def _compile_all(self) -> None:
        """Compile every stored cluster: the stored graph is the truth, the catalogue never is."""
        results = compile_all(self.store, self.settings.backend)
        made = {name: entry_of(record, cluster) for name, (record, cluster) in results.items()}
        self.catalogue = CompiledClusters(made)

    def state(self, kind: type[State]) -> State:
        """Return the service's one object of a kind that is declared in memory.py, made at its first use."""
        known: State | None = self._states.get(kind)
        if known is None and kind not in DECLARED:
            raise LookupError(f"{kind.__name__} is no declared memory")
        return known if known is not None else self._states.setdefault(kind, kind())

    def memory(self) -> list[Row]:
        """Return what this process remembers, by name."""
        return rows([*self._states.values(), self.catalogue, self.heartbeats, self.news])

    def entry(self, record: ClusterRecord) -> RegisteredCluster:
        """Return a cluster's compiled form as of this record; NotFound while it has none."""
        known = self.catalogue.get(record.name)
        if known is None or known.id != record.id or known.revision < record.revision:
            known = self.compile(record.name)
        if known is None or known.id != record.id:
            raise NotFound(f"cluster {record.name} is not ready to be used")
        return known

    def compile(self, name: str) -> RegisteredCluster | None:
        """Compile one cluster again from the store: another process has changed it, or this one has never seen it."""
        with self.changing:
            with self.store.read() as connection:
                record = clusters.find(connection, name)
                known = self.catalogue.get(name)
                if record and known and (known.id, known.revision) == (record.id, record.revision):
                    return known
                cluster = record and compile_one(self.store, connection, record, self.settings.backend)
                made = entry_of(record, cluster) if record and cluster else None
            if made:
                self.put_entry(made)
            else:
                self.drop_entry(name)
            return made

    def catch_up(self, catalogue: Mapping[str, RegisteredCluster]) -> bool:
        """Take over what other processes have changed; return whether this catalogue of before is outdated."""
        if not self.store.many_processes:
            return False
        known = self.catalogue.values()
        with self.store.read() as connection:
            extent = clusters.extent(connection)
        if extent != (len(known), sum(entry.revision for entry in known)):
            self.refresh()
        return self.catalogue is not catalogue

    def refresh(self, ids: Collection[str] | None = None) -> None:
        """Take over what other processes have changed since the catalogue was made; None: of any cluster."""
        with self.store.read() as connection:
            stored = clusters.revisions(connection, ids)
        known = self.catalogue
        gone = known if ids is None else set(ids) - {result for result, _ in stored.values()}
        others = [name for name, entry in known.items() if ids is None or entry.id in gone] if gone else []
        for name in sorted({*stored, *others}):
            entry = known.get(name)
            if stored.get(name) != (entry and (entry.id, entry.revision)):
                self.compile(name)

    def put_entry(self, entry: RegisteredCluster) -> None:
        """Let all see a cluster's new form, in one assignment."""
        with self.changing:
            self.catalogue = self.catalogue.with_entry(entry)

    def drop_entry(self, name: str) -> None:
        """Hide a cluster from all callers."""
        with self.changing:
            gone = self.catalogue.get(name)
            self.catalogue = CompiledClusters({key: one for key, one in self.catalogue.items() if key != name})
        if gone is not None:
            for stored in self._states.values():
                if isinstance(stored, ByCluster):
                    stored.pop(gone.id, None)
            self.poll_every_tick.discard(gone.id)
            self.has_backlog.discard(gone.id)

    def tell(self, *cluster_ids: str, changed: bool = False, agents: bool = False) -> None:
        """Wake who waits for something to happen to these clusters (none: any); `changed`: their graphs have.

        `agents`: all of theirs are woken too. What is written for some the store tells them.
        """
        self.news.tell(*cluster_ids, *(map(offers_to_all, cluster_ids) if agents else ()), changed=changed)

    def _tell_agents(self, agents: Iterable[ForAgents]) -> None:
        """Wake the agents that something is for."""
        self.news.tell(*map(topic_of, agents))

    def let_go(self) -> None:
        """Let all who waits go: the server is about to end."""
        self.ending = True
        self.news.hear([])

    def close(self) -> None:
        """Release the store."""
        self.turns.close()
        self.store.close()


def topic_of(one: ForAgents) -> str:
    """Name the topic for which those wait whom something is for."""
    if one.agent is not None:
        return orders_to(one.cluster_id, one.agent)
    return offers_to_all(one.cluster_id) if one.worker is None else work_for(one.cluster_id, one.worker)


def entry_of(record: ClusterRecord, cluster: Cluster) -> RegisteredCluster:
    """Return a cluster as it is compiled and as its record says it stands."""
    draining, drained = record.draining_at is not None, record.drained_at is not None
    return RegisteredCluster(record.id, record.revision, cluster, draining, drained)


def open_service(
    database: str,
    settings: Settings,
    config: str | None = None,
    *,
    existing: bool = False,
    is_sound: bool | None = None,
) -> Service:
    """Open the store and make the two global credentials if nothing sets them; their file is named in the log.

    They are kept beside the database if that is a file, else beside the configuration, else in the working folder.
    `existing`: NotFound if there is no store, instead of a new one. A file is looked at first, unless `is_sound` says
    what `check_service` has seen; what of a large one is not seen within LOOK seconds is looked at while the service
    works.
    """
    if is_sound is None:
        is_sound = _look_at(file_of(database))
    store, settings = _opened(database, settings, config, existing=existing)
    service = Service(store, settings, folder=folder_of(file_of(database), config))
    if not is_sound:
        look = partial(service.state(Readiness).watch, store)
        service.state(Threads).make("store-check", look).start()
    return service


def check_service(database: str, settings: Settings, config: str | None = None) -> bool:
    """Do of `open_service` all that may fail, and nothing that takes long.

    Return whether the whole store has been looked at.
    """
    is_sound = _look_at(file_of(database))
    _opened(database, settings, config)[0].close()
    return is_sound


def _look_at(file: Path | None) -> bool:
    """Return whether LOOK seconds were enough to look at the whole of a store. ConfigError: it is damaged."""
    return file is None or not file.exists() or sqlite.check_file(file, LOOK)


def _opened(
    database: str, settings: Settings, config: str | None, *, existing: bool = False
) -> tuple[Store, Settings]:
    """Return the store, and the settings with their credentials."""
    file = file_of(database)
    made = file is not None and not file.exists()
    store = open_store(database, existing=existing)
    store.remember_clusters()
    if made:  # a mistyped path is seen here
        log.info("database-created", file=str(file and file.absolute()))
    folder = folder_of(file, config)
    secret = settings.secret or secret_of("RAINBOW_REGISTRATION_SECRET") or _kept(folder, "registration")
    admin = settings.admin or secret_of("RAINBOW_ADMIN_TOKEN") or _kept(folder, "admin")
    return store, replace(settings, secret=secret, admin=admin)


def folder_of(file: Path | None, config: str | None) -> Path:
    """Return the folder that a server keeps files of its own in."""
    if file is not None:
        return file.absolute().parent
    return Path(config).absolute().parent if config else Path.cwd()


def _kept(folder: Path, kind: str) -> str:
    """Read a credential from its file beside the database, making it at the first start."""
    path = folder / f"rainbow-{kind}.secret"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(mint(kind) + "\n")
            file.flush()
            os.fsync(file.fileno())
        log.info("credential-created", kind=kind, file=str(path))
    except FileExistsError:
        pass
    return path.read_text().strip()
