"""Figures of clusters: their sizes, their use, and the time at which more is free, as the web page shows them.

A part of the client (http_client.py), as waiting is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rainbow.client.transport import given, of_cluster

if TYPE_CHECKING:
    from rainbow.client.transport import Calls


class Figures:
    """The methods of a client that only ask, about clusters, nodes and time."""

    _calls: Calls

    def summary(self, top: int | None = None) -> dict[str, Any]:
        """Count workers and jobs of all clusters; `first` has the `top` ones that need their operator, and why."""
        return self._get("/v1/summary", top=top)

    def series(self, cluster: str | None = None) -> dict[str, Any]:
        """Return jobs that wait, run and started, and nodes in use, every two minutes of the last 24 hours."""
        return self._get("/v1/series", cluster=cluster)

    def job_counts(self, by: str = "state") -> dict[str, int]:
        """Count the jobs that have not ended `by` state, cluster, requestor or reason."""
        return cast("dict[str, int]", self._get("/v1/jobs:counts", by=by)["counts"])

    def policy_diff(self, config: str, limit: int = 500) -> dict[str, Any]:
        """Decide the last decisions again under the text of a configuration; nothing is changed. For the admin."""
        return cast("dict[str, Any]", self._calls.call("POST", "/v1/policy:diff", {"config": config, "limit": limit}))

    def policy_check(self, policy: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Check the settings of a scheduling policy at the server, which may have others installed."""
        body = {"policy": policy, "settings": settings}
        return cast("dict[str, Any]", self._calls.call("POST", "/v1/policy:check", body))

    def models(
        self, *, since: str | None = None, group: str | None = None, by: str | None = None
    ) -> list[dict[str, Any]]:
        """Fit linear models of run times to finished runs, and list them by group; needs the admin token."""
        return cast("list[dict[str, Any]]", self._get("/v1/models", since=since, group=group, by=by)["models"])

    def memory(self) -> list[dict[str, Any]]:
        """List the tables that the server keeps in memory; needs the admin token."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", "/v1/config/memory")["memory"])

    def nodes(self) -> list[dict[str, Any]]:
        """Count the workers of the clusters you see by state, with their amounts in all and the free ones."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", "/v1/nodes")["nodes"])

    def workers(self, name: str) -> list[dict[str, Any]]:
        """List the cluster's workers and their states."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", of_cluster(name, "workers"))["workers"])

    def worker(self, name: str, worker: str) -> dict[str, Any]:
        """Show one worker of a cluster: its state, its use, and the tasks that hold it."""
        return self._get(of_cluster(name, "workers", worker))

    def occupancy(self, name: str) -> dict[str, Any]:
        """Say how full each worker of a cluster is, kind by kind: a letter for each worker in `levels`."""
        return self._get(of_cluster(name, "occupancy"))

    def bars(
        self, name: str, begin: float | None = None, end: float | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        """Return past, running and planned tasks between two times in seconds since 1970, as columns."""
        return self._get(of_cluster(name, "bars"), **{"from": begin, "to": end, "limit": limit})

    def timeline(self, name: str) -> dict[str, Any]:
        """Show the cluster's resource diagram after the next step."""
        return self._get(of_cluster(name, "timeline"))

    def forecast(self, name: str, *, limit: int | None = None, after: str | None = None) -> dict[str, Any]:
        """Show the expected start and end of each job of a cluster, and the amounts then free; page by page."""
        answer: dict[str, Any] = self._calls.call(
            "GET", of_cluster(name, "forecast"), query=given(limit=limit, after=after)
        )
        return answer

    def accuracy(self, name: str) -> dict[str, Any]:
        """Say how a cluster's forecasts of starts and lengths turned out."""
        return self._get(of_cluster(name, "forecast", "accuracy"))

    def _get(self, address: str, **query: Any) -> dict[str, Any]:
        return cast("dict[str, Any]", self._calls.call("GET", address, query=given(**query)))
