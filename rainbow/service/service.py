"""The service: the store, the compiled clusters and the clock, wired together once.

The verbs are functions of the modules beside this one, each with the service as its first argument:

    registering  clusters come, report states, go     graphs     their graphs and subsystems change
    submitting   match, submit                        showing    list, show, why, cancel
    receiving    what an agent asks and reports       presence   agents and workers there are, and are lost
    stepping     one scheduling step of a cluster     policy     a cluster's policy and workers, for people
    operating    workers put away and brought back    quarantine those that fail to start tasks
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from rainbow.errors import NotFound, RainbowError
from rainbow.graph import read_cluster
from rainbow.matching import prepare
from rainbow.service.access import digest, mint
from rainbow.service.settings import Settings
from rainbow.store import clusters, open_store

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.service.presence import Sign
    from rainbow.store import Store
    from rainbow.store.clusters import ClusterRecord

log = structlog.get_logger("rainbow")


@dataclass(frozen=True, slots=True)
class Entry:
    """A cluster compiled from the stored graphs."""

    id: str
    revision: int
    cluster: Cluster


class Service:
    """What the verbs work on. `registration` and `administration` are digests of the two global credentials."""

    def __init__(
        self, store: Store, settings: Settings | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.settings = settings or Settings()
        self.clock = clock
        self.started = clock()
        self.registration = digest(self.settings.secret or mint("registration"))
        self.administration = digest(self.settings.admin or mint("admin"))
        self.catalogue: dict[str, Entry] = {}  # by name; replaced whole, never changed
        self.seen: dict[tuple[str, str], Sign] = {}  # (cluster id, agent) → its last sign of life
        self.timed: dict[str, float] = {}  # cluster id → when its running tasks were last looked at
        self.looked: dict[str, float] = {}  # cluster id → when its jobs may be placed anew again
        self.faults: dict[str, str] = {}  # cluster id → why its last step failed
        self.changing = threading.RLock()  # held from reading a cluster's graphs until the new ones are seen
        self._news = threading.Condition()
        self._version = 0
        self._touched: set[str | None] = {None}
        self.restless: set[str] = set()  # ids of clusters to be stepped at every tick, even if nothing happens there
        self.ending = False
        self._stepping: dict[str, threading.Lock] = {}
        self._compile_all()

    def _compile_all(self) -> None:
        """Compile every stored cluster: the stored graph is the truth, the catalogue never is."""
        with self.store.read() as connection:
            found = {record.name: self._compiled(connection, record) for record in clusters.every(connection)}
        self.catalogue = {name: entry for name, entry in found.items() if entry}

    def _compiled(self, connection: sa.Connection, record: ClusterRecord) -> Entry | None:
        try:
            document = clusters.document(connection, record.id)
            cluster = read_cluster(document, record.name, record.levels, record.worker_type)
            for name, subsystem in clusters.graphs_of(connection, record.id).items():
                cluster = cluster.with_subsystem(name, subsystem)
            return Entry(record.id, record.revision, prepare(cluster, self.settings.backend))
        except RainbowError as fault:  # it was accepted once: one bad graph must not keep the others away
            log.error("cluster-not-compiled", cluster=record.name, fault=str(fault))
            return None

    def entry(self, name: str) -> Entry:
        """Return a cluster's compiled form; NotFound while it has none."""
        if name not in self.catalogue:
            raise NotFound(f"cluster {name} is not ready to be used")
        return self.catalogue[name]

    def put_entry(self, entry: Entry) -> None:
        """Let everybody see a cluster's new form, in one assignment."""
        with self.changing:
            self.catalogue = {**self.catalogue, entry.cluster.name: entry}

    def drop_entry(self, name: str) -> None:
        """Let nobody see a cluster any more."""
        with self.changing:
            self.catalogue = {key: entry for key, entry in self.catalogue.items() if key != name}

    # ── news: who waits for something to happen, waits here ──

    def tell(self, cluster_id: str | None = None) -> None:
        """Wake everybody who waits for something to happen, at this cluster (None: at any)."""
        with self._news:
            self._version += 1
            self._touched.add(cluster_id)
            self._news.notify_all()

    def take_touched(self) -> set[str | None]:
        """Return the clusters at which something has happened since the last time; None among them: any."""
        with self._news:
            touched, self._touched = self._touched, set()
            return touched

    @property
    def version(self) -> int:
        """How often something has happened."""
        return self._version

    def wait(self, version: int, seconds: float) -> int:
        """Wait until something happens after `version`, or the seconds are over; return the version then."""
        with self._news:
            self._news.wait_for(lambda: self._version != version, timeout=max(0.0, seconds))
            return self._version

    def let_go(self) -> None:
        """Let everybody who waits go: the server is about to end."""
        self.ending = True
        self.tell()

    @contextmanager
    def stepping(self, cluster_id: str) -> Iterator[None]:
        """Hold a cluster's step: one at a time."""
        with self._stepping.setdefault(cluster_id, threading.Lock()):
            yield

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()


def open_service(database: str, settings: Settings) -> Service:
    """Open the store and make the two global credentials if nothing sets them; their file is named in the log."""
    store = open_store(database)
    folder = _folder(database)
    settings = replace(
        settings,
        secret=settings.secret or os.environ.get("RAINBOW_REGISTRATION_SECRET") or _kept(folder, "registration"),
        admin=settings.admin or os.environ.get("RAINBOW_ADMIN_TOKEN") or _kept(folder, "admin"),
    )
    return Service(store, settings)


def _folder(database: str) -> Path:
    path = database.removeprefix("sqlite:///")
    return Path.cwd() if "://" in path else Path(path).absolute().parent


def _kept(folder: Path, kind: str) -> str:
    """Read a credential from its file beside the database, making it at the first start."""
    path = folder / f"rainbow-{kind}.secret"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(mint(kind) + "\n")
            file.flush()
            os.fsync(file.fileno())
        log.info("credential-made", kind=kind, file=str(path))
    except FileExistsError:
        pass
    return path.read_text().strip()
