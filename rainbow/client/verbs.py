"""The verbs of the API as methods; what they answer is described in wire.py.

Every method raises Problem if the server refuses and Unavailable if it stays out of reach.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

from rainbow.client import wire
from rainbow.client.calls import Calls, Problem
from rainbow.client.owning import Owning
from rainbow.errors import RequestError, TryLater

ENDED = frozenset({"COMPLETED", "FAILED", "CANCELED"})
Document = Mapping[str, Any]


class Client(Owning):
    """A Rainbow server, as seen with some credentials.

    `token` is one token or secret, or several: the clusters of all of them are considered together. `timeout`
    is in seconds, per try. `options` are those of calls.Calls.
    """

    def __init__(
        self, url: str, token: str | Sequence[str] | None = None, timeout: float = 30.0, **options: Any
    ) -> None:
        tokens = [token] if isinstance(token, str) else list(token or ())
        self._calls = Calls(url, tokens, timeout, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    # ── clusters ────────────────────────────────────────────────────────────────────────────────────────────

    def register_cluster(
        self,
        name: str,
        graph: Document,
        subsystems: Mapping[str, Document] | None = None,
        state: Document | None = None,
        levels: str = "any",
        policy: Document | None = None,
    ) -> wire.Registration:
        """Register a cluster; the only answer that ever shows its token and secret."""
        body = {"name": name, "graph": graph, "levels": levels}
        body |= _given(subsystems=subsystems, state=state, policy=policy)
        return cast("wire.Registration", self._calls.call("POST", "/v1/clusters", body, repeatable=False))

    def clusters(self) -> list[dict[str, Any]]:
        """List the clusters these credentials may see, by name."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", "/v1/clusters")["clusters"])

    def cluster(self, name: str) -> dict[str, Any]:
        """Show one cluster: totals, subsystems, revision."""
        return self._object("GET", _cluster(name))

    def delete_cluster(self, name: str, *, drain: bool = False) -> None:
        """Delete a cluster; with live jobs only if `drain` says so."""
        self._calls.call("DELETE", _cluster(name), query=_given(drain="true" if drain else None))

    def graph(self, name: str) -> dict[str, Any]:
        """Fetch the cluster's graph as it was given."""
        return self._object("GET", _cluster(name, "graph"))

    def put_graph(self, name: str, graph: Document) -> dict[str, Any]:
        """Replace the cluster's graph."""
        return self._object("PUT", _cluster(name, "graph"), graph)

    def put_subsystem(self, name: str, subsystem: str, graph: Document) -> dict[str, Any]:
        """Hang a subsystem graph on the cluster, in place of one of the same name."""
        return self._object("PUT", _cluster(name, "subsystems", subsystem), graph)

    def delete_subsystem(self, name: str, subsystem: str) -> None:
        """Take a subsystem and its edges away."""
        self._calls.call("DELETE", _cluster(name, "subsystems", subsystem))

    def put_state(self, name: str, state: Document) -> dict[str, Any]:
        """Replace the cluster's flat state."""
        return self._object("PUT", _cluster(name, "state"), state)

    def state(self, name: str) -> dict[str, Any]:
        """Show the cluster's state."""
        return self._object("GET", _cluster(name, "state"))

    def workers(self, name: str) -> list[dict[str, Any]]:
        """List the cluster's workers and their states."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", _cluster(name, "workers"))["workers"])

    def scheduler(self, name: str) -> dict[str, Any]:
        """Show the cluster's policy, its settings and figures."""
        return self._object("GET", _cluster(name, "scheduler"))

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        jobspec: str | Document,
        name: str | None = None,
        requestor: str | None = None,
        selector: Document | None = None,
        clusters: Sequence[Document] | None = None,
        idempotency_key: str | None = None,
    ) -> wire.Submission:
        """Submit a jobspec (YAML or JSON text, or a mapping); sent twice under one key, it is one job.

        Without a key one is made for this call, so that a try repeated over a broken connection is harmless.
        """
        body = {"jobspec": jobspec}
        body |= _given(name=name, requestor=requestor, selector=selector, clusters=clusters)
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return cast("wire.Submission", self._calls.call("POST", "/v1/jobs", body, headers=headers))

    def match(
        self,
        jobspec: str | Document,
        selector: Document | None = None,
        clusters: Sequence[Document] | None = None,
        *,
        explain: bool = False,
    ) -> wire.Match:
        """Ask which clusters could run a jobspec; nothing is stored. `explain`: each with an `explanation`."""
        body = {"jobspec": jobspec} | _given(selector=selector, clusters=clusters, explain=explain or None)
        return cast("wire.Match", self._calls.call("POST", "/v1/match", body))

    def jobs(
        self,
        *,
        cluster: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Return one page of jobs, the newest first: {"jobs", "next"}; `next` is the cursor of the page after."""
        query = {"cluster": cluster, "state": state, "limit": limit, "cursor": cursor}
        return self._object("GET", "/v1/jobs", query=query)

    def all_jobs(self, *, cluster: str | None = None, state: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all jobs, page after page, the newest first."""
        cursor: str | None = None
        while True:
            page = self.jobs(cluster=cluster, state=state, cursor=cursor)
            yield from page["jobs"]
            cursor = page.get("next")
            if not cursor:
                return

    def job(self, job_id: str) -> dict[str, Any]:
        """Show a job and its tasks."""
        return self._object("GET", _path("jobs", job_id))

    def why(self, job_id: str) -> dict[str, Any]:
        """Show the whole decision: match, selection steps, why it waits."""
        return self._object("GET", _path("jobs", job_id, "why"))

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job."""
        return self._object("DELETE", _path("jobs", job_id))

    def wait(self, job_id: str, timeout: float | None = None, *, every: float = 0.5) -> dict[str, Any]:
        """Return the job once it has ended, asking `every` seconds; TryLater if `timeout` seconds pass before."""
        end = None if timeout is None else time.monotonic() + timeout
        while (job := self.job(job_id))["state"] not in ENDED:
            if end is not None and time.monotonic() + every > end:
                raise TryLater(f"job {job_id} is {job['state']} after {timeout:g} seconds")
            time.sleep(every)
        return job

    # ── the agent's side: see docs/reference-agent.md ───────────────────────────────────────────────────────

    def receive(self, name: str, agent: str, max: int = 16, wait: float = 20.0) -> wire.Received:
        """Wait up to `wait` seconds for tasks to run, at most `max` of them, or to stop."""
        body = {"agent": agent, "max": max, "wait": wait}
        return cast("wire.Received", self._calls.call("POST", _cluster(name, "receive"), body, patience=wait))

    def accept(self, name: str, agent: str, tasks: Sequence[wire.RunRef]) -> wire.Accepted:
        """Accept offered tasks; only those answered as accepted may be started."""
        body = {"agent": agent, "tasks": tasks}
        return cast("wire.Accepted", self._calls.call("POST", _cluster(name, "accept"), body))

    def events(self, name: str, agent: str, events: Sequence[wire.Event]) -> wire.Recorded:
        """Report what happened to tasks, in order."""
        body = {"agent": agent, "events": events}
        return cast("wire.Recorded", self._calls.call("POST", _cluster(name, "events"), body))

    def heartbeat(
        self, name: str, agent: str, running: Sequence[wire.RunRef] = (), workers: Sequence[str] | None = None
    ) -> wire.Beat:
        """Say that the agent lives, what it runs and which workers are up (None: all)."""
        body = {"agent": agent, "workers": workers, "running": list(running)}
        return cast("wire.Beat", self._calls.call("POST", _cluster(name, "heartbeat"), body))

    # ── the server ──────────────────────────────────────────────────────────────────────────────────────────

    def ready(self) -> bool:
        """Tell whether the server is there and can serve."""
        try:
            self._calls.call("GET", "/readyz", repeatable=False)
        except (TryLater, Problem):
            return False
        return True

    def _object(self, verb: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        return cast("dict[str, Any]", self._calls.call(verb, path, body, **more) or {})


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _path(*parts: str) -> str:
    for part in parts:
        if part in ("", ".", ".."):  # they would name another address
            raise RequestError(f"{part!r} is not the name of anything")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _cluster(*parts: str) -> str:
    return _path("clusters", *parts)
