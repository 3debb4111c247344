"""The agent's side of the API: see docs/reference-agent.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from rainbow.client import wire
from rainbow.client.paths import given, of_cluster

if TYPE_CHECKING:
    from rainbow.client.calls import Calls


class AgentVerbs:
    """What an agent says and hears."""

    _calls: Calls

    def receive(self, name: str, agent: str, max: int = 16, wait: float = 20.0) -> wire.Received:
        """Wait up to `wait` seconds for tasks to run, at most `max` of them, or to stop."""
        body = {"agent": agent, "max": max, "wait": wait}
        return cast("wire.Received", self._calls.call("POST", of_cluster(name, "receive"), body, patience=wait))

    def accept(self, name: str, agent: str, tasks: Sequence[wire.RunRef], *, seq: int | None = None) -> wire.Accepted:
        """Accept offered tasks; only those answered as accepted may be started."""
        body = {"agent": agent, "tasks": tasks} | given(seq=seq)
        return cast("wire.Accepted", self._calls.call("POST", of_cluster(name, "accept"), body))

    def events(self, name: str, agent: str, events: Sequence[wire.Event], *, seq: int | None = None) -> wire.Recorded:
        """Report what happened to tasks, in order."""
        body = {"agent": agent, "events": events} | given(seq=seq)
        return cast("wire.Recorded", self._calls.call("POST", of_cluster(name, "events"), body))

    def heartbeat(
        self,
        name: str,
        agent: str,
        running: Sequence[wire.RunRef] = (),
        workers: Sequence[str] | None = None,
        *,
        seq: int | None = None,
        load: Mapping[str, float] | None = None,
    ) -> wire.Beat:
        """Say that the agent lives, what it runs, which workers are up (None: all), and their load if measured."""
        body = {"agent": agent, "workers": workers, "running": list(running)} | given(seq=seq, load=load)
        return cast("wire.Beat", self._calls.call("POST", of_cluster(name, "heartbeat"), body))
