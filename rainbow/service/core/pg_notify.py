"""Topics across processes, by PostgreSQL's notifications.

A notification is a hint, sent after the commit: a process that misses one reads the change at its next tick. For
agents that wait, whose polls are answered from memory meanwhile, one statement looks whether something was missed.
"""

from __future__ import annotations

import json
import secrets
import select
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from rainbow.errors import RainbowError
from rainbow.forecast.outlook import Booking, read_booking
from rainbow.service.core.pubsub import ALL, OFFERS, cluster_of, offers_to_all
from rainbow.service.core.service import Outlook, log, topic_of
from rainbow.service.core.threads import Threads
from rainbow.store import tasks
from rainbow.store.postgresql import end_frozen

if TYPE_CHECKING:
    from rainbow.service.core.service import Service


CHANNEL = "rainbow"
# seconds before a lost connection is tried again, and between two times that signs of life are stored
RETRY_INTERVAL = 1.0
MISSED = 5  # of these until it is looked what another process has left undone
PAUSE = 0.02  # seconds between two messages: what happens meanwhile goes with the next
BOOKINGS = 20  # in one message
ROOM = 7_000  # characters of the topics in one message, which PostgreSQL keeps below 8,000 bytes
MESSAGES = 20  # at once: of what agents wait for only the clusters are named then, and of still more all is told
LONGEST = 500  # characters of one topic
NOTIFY = sa.text("SELECT pg_notify(:channel, :message)")
TROUBLE = (sa.exc.SQLAlchemyError, RainbowError, OSError)


class PgNotify:
    """Sends and hears news. `start` makes three threads, `stop` ends them; `each_second` is called by one of them."""

    def __init__(self, service: Service, each_second: Callable[[], None] = lambda: None) -> None:
        self.service, self._each_second = service, each_second
        self._me = secrets.token_hex(8)
        self._unsent: set[str] = set()
        self._changed = False
        self._bookings: list[Booking] = []
        self._lock = threading.Lock()  # of these three
        self._some = threading.Event()
        self._stop = threading.Event()
        work = {"peers-send": self._send_all, "peers-hear": self._hear_all, "peers-look": self._look_all}
        self._threads = [service.state(Threads).make(name, do, needed=True) for name, do in work.items()]

    def start(self) -> None:
        """Begin to send and hear."""
        self.service.news.elsewhere = self.tell
        self.service.state(Outlook).elsewhere = self.book
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads."""
        self.service.news.elsewhere = self.service.state(Outlook).elsewhere = None
        self._stop.set()
        self._some.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def tell(self, topics: Iterable[str], changed: bool) -> None:
        """Send these topics soon; topics published meanwhile go with them."""
        with self._lock:
            self._unsent.update(topics)
            self._changed |= changed
        self._some.set()

    def book(self, booking: Booking) -> None:
        """Send soon what is booked in a cluster's room."""
        with self._lock:
            self._bookings.append(booking)
        self._some.set()

    # ── sending ──

    def _send_all(self) -> None:
        while not self._stop.is_set():
            self._some.wait()
            self._some.clear()
            with self._lock:
                unsent, self._unsent = self._unsent, set()
                changed, self._changed = self._changed, False
                bookings, self._bookings = self._bookings, []
            for first in range(0, len(bookings), BOOKINGS):
                self._send({"bookings": list(map(asdict, bookings[first : first + BOOKINGS]))})
            ours = {topic for topic in unsent if topic.startswith(OFFERS)}
            for part in messages(unsent - ours):
                self._send({"topics": part, "changed": changed})
            for part in messages(ours):
                self._send({"topics": part, "changed": False})
            if unsent or changed or bookings:
                self._stop.wait(PAUSE)

    def _send(self, answer: Mapping[str, Any]) -> None:
        message = json.dumps({"from": self._me, **answer})
        try:
            with self.service.store.look() as connection:
                connection.execute(NOTIFY, {"channel": CHANNEL, "message": message})
        except TROUBLE as fault:
            log.warning("notify-send-failed", fault=type(fault).__name__)

    # ── hearing ──

    def _hear_all(self) -> None:
        while not self._stop.is_set():
            try:
                with _listening(self.service.store.engine, self._hear) as driver:
                    self._changed_elsewhere()  # what was said while nobody listened
                    self.service.news.heard = True
                    self._listen(driver)
            except TROUBLE as fault:
                self.service.news.heard = False
                log.warning("news-not-heard", fault=type(fault).__name__)
                self._stop.wait(RETRY_INTERVAL)
        self.service.news.heard = False

    def _listen(self, driver: Any) -> None:
        ready = select.poll()  # not select(), which knows no descriptor above 1,023
        ready.register(driver, select.POLLIN)
        while not self._stop.is_set():
            ready.poll(RETRY_INTERVAL * 1000)
            driver.execute("SELECT 1")  # hands over what has come, and fails if the connection is gone

    def _hear(self, notice: Any) -> None:
        message = json.loads(notice.payload)
        if message["from"] == self._me:
            return
        for booking in message.get("bookings", ()):
            self.service.state(Outlook).hear(read_booking(booking))
        if "topics" in message:
            self._hear_topics(message["topics"], message["changed"])

    def _hear_topics(self, topics: Sequence[str], changed: bool) -> None:
        named = {topic for topic in topics if not topic.startswith(OFFERS)}
        if changed and named and ALL not in named:
            self.service.refresh(named)
        elif changed:
            self._changed_elsewhere()
        self.service.news.hear(topics)

    def _look_all(self) -> None:
        times = 0
        while not self._stop.wait(RETRY_INTERVAL):
            times += 1
            try:
                self._each_second()
                if times % MISSED == 0:
                    self._look()
            except TROUBLE as fault:
                log.warning("database-unavailable", fault=str(fault))

    def _look(self) -> None:
        """Look for what a process that was killed or stopped has left."""
        with self.service.store.look() as connection:
            end_frozen(connection)
        self._look_for_offers()

    def _look_for_offers(self) -> None:
        """Wake the agents of clusters where a task has to start or stop: of a server that was killed nobody heard."""
        if waiting := set(map(cluster_of, self.service.news.waited_for(OFFERS))):
            with self.service.store.read() as connection:
                agents = tasks.for_agents(connection, waiting)
            if agents:
                self.service.news.hear(map(topic_of, agents))

    def _changed_elsewhere(self) -> None:
        self.service.refresh()
        self.service.news.hear([])


def messages(topics: Collection[str]) -> list[list[str]]:
    """Divide topics over messages; one that names none tells of all.

    >>> messages({"oak", "elm"}), messages([])
    ([['elm', 'oak']], [])
    """
    exact = list(_parts({topic if len(topic) <= LONGEST else _of_cluster(topic) for topic in topics}))
    if len(exact) > MESSAGES:
        exact = list(_parts(set(map(_of_cluster, topics))))
    return exact if len(exact) <= MESSAGES else [[]]


def _of_cluster(topic: str) -> str:
    return offers_to_all(cluster_of(topic)) if topic.startswith(OFFERS) else topic


def _parts(topics: Collection[str]) -> Iterator[list[str]]:
    part, room = list[str](), ROOM
    for topic in sorted(topics):
        size = len(json.dumps(topic)) + 2
        if part and size > room:
            yield part
            part, room = [], ROOM
        part.append(topic)
        room -= size
    if part:
        yield part


@contextmanager
def _listening(engine: sa.Engine, hear: Callable[[Any], None]) -> Iterator[Any]:
    """Give a connection of the driver's own that listens: the pool's are for transactions. OSError if it is lost."""
    dialect = engine.dialect
    arguments, named = dialect.create_connect_args(engine.url)
    driver: Any = None
    try:
        driver = dialect.loaded_dbapi.connect(*arguments, **named)
        driver.autocommit = True
        driver.add_notify_handler(hear)
        driver.execute(f"LISTEN {CHANNEL}")
        yield driver
    except dialect.loaded_dbapi.Error as fault:
        raise OSError(str(fault)) from fault
    finally:
        if driver is not None:
            driver.close()
