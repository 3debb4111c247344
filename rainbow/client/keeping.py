"""The client's verbs for advance reservations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.client.calls import Calls
from rainbow.client.paths import given, of_cluster


class Keeping:
    """Verbs of Client; it has the calls."""

    _calls: Calls

    def reserve(
        self,
        cluster: str,
        jobspec: str | Mapping[str, Any],
        *,
        start: str | None = None,
        end: str | None = None,
        duration: float | None = None,
        requestor: str | None = None,
        requestors: Sequence[str] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Keep space for a jobspec's resources, from `start` (RFC 3339) or the earliest time on; Problem if none."""
        body = {"jobspec": jobspec} | given(start=start, end=end, duration=duration, requestor=requestor, name=name)
        body |= given(requestors=requestors and list(requestors))
        made: dict[str, Any] = self._calls.call("POST", of_cluster(cluster, "reservations"), body, repeatable=False)
        return made

    def reservations(self, cluster: str, *, over: bool = False) -> list[dict[str, Any]]:
        """List a cluster's reservations one may see, the first to start first; `over`: those that are over too."""
        query = given(over="true" if over else None)
        found: list[dict[str, Any]] = self._calls.call("GET", of_cluster(cluster, "reservations"), query=query)[
            "reservations"
        ]
        return found

    def reservation(self, cluster: str, reservation_id: str) -> dict[str, Any]:
        """Show one."""
        found: dict[str, Any] = self._calls.call("GET", of_cluster(cluster, "reservations", reservation_id))
        return found

    def delete_reservation(self, cluster: str, reservation_id: str) -> None:
        """End one now; the jobs that name it end with it."""
        self._calls.call("DELETE", of_cluster(cluster, "reservations", reservation_id))
