"""Keeps the server's picture of a cluster true: asks its resource manager again and again, and says what is new.

A graph that has changed is told by its changes, and whole only where the server does not have what they build on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from rainbow.agent.survey import Survey
from rainbow.client import Client, Problem
from rainbow.errors import RainbowError
from rainbow.graph.difference import changes_between

EVERY = 15.0  # seconds
WHOLE = frozenset({409, 412, 422})  # how the server refuses changes of a graph that is not as we believe


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
        self._graph: tuple[Mapping[str, Any], int] | None = None  # what the server has, and its revision
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
            self._tell_graph(now.document)
        if before is None or now.state != before.state:
            self._client.change_state(self._cluster, now.state)
        self._see(now.up)
        self._known = now

    def _tell_graph(self, document: Mapping[str, Any]) -> None:
        if self._graph is None:
            revision = self._client.cluster(self._cluster)["revision"]  # before the graph: it may only be too low
            self._graph = self._client.graph(self._cluster), revision
        changes = changes_between(self._graph[0], document)
        if changes == []:
            return
        told = self._changed(changes, self._graph[1]) or self._client.put_graph(self._cluster, document)
        self._graph = document, told["revision"]
        self._say("the cluster's graph has changed")

    def _changed(self, changes: list[dict[str, Any]] | None, revision: int) -> dict[str, Any] | None:
        """Change the graph; None if it must be told whole, as where somebody else has changed it meanwhile."""
        if changes is None:
            return None
        try:
            return self._client.patch_graph(self._cluster, changes, revision=revision)
        except Problem as problem:
            if problem.status not in WHOLE:
                raise
            self._graph = None
            return None

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
