"""Keeps the server's picture of a cluster true: asks its resource manager again and again, and says what is new."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rainbow.agent.survey import Survey
from rainbow.client import Client
from rainbow.errors import RainbowError

EVERY = 15.0  # seconds


class Watch:
    """Tells the server what is new in a cluster; `see` is told which workers are up."""

    def __init__(
        self,
        client: Client,
        cluster: str,
        look: Callable[[], Survey],
        see: Callable[[tuple[str, ...]], None],
        say: Callable[[str], None],
        every: float = EVERY,
    ) -> None:
        self._client, self._cluster, self._look, self._see, self._say = client, cluster, look, see, say
        self._every = every
        self._over = threading.Event()
        self._known: Survey | None = None
        self._fault = ""

    def start(self) -> None:
        """Begin to look, in the background."""
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def look(self) -> None:
        """Look once, and say what has changed since the server was last told."""
        now = self._look()
        before = self._known
        if before is None or now.document != before.document:
            self._tell_graph(now)
        if before is None or now.state != before.state:
            self._client.change_state(self._cluster, now.state)
        self._see(now.up)
        self._known = now

    def _tell_graph(self, now: Survey) -> None:
        if now.document != self._client.graph(self._cluster):
            self._client.put_graph(self._cluster, now.document)
            self._say("the cluster's graph has changed")

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.look()
                self._fault = ""
            except RainbowError as fault:  # a graph that lacks a worker in use is taken when that is free
                self._complain(fault)
            self._over.wait(self._every)

    def _complain(self, fault: RainbowError) -> None:
        if str(fault) != self._fault:
            self._say(f"the cluster's state is not told: {fault}")
        self._fault = str(fault)
