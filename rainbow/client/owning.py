"""The client's verbs for whoever owns clusters or the server: tokens, configuration, graph changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from rainbow.client.calls import Calls


class Owning:
    """Verbs of Client; it has the calls."""

    _calls: Calls

    def mint_token(
        self,
        clusters: Sequence[str] = (),
        *,
        requestors: Sequence[str] | None = None,
        expires_at: str | None = None,
        name: str | None = None,
        monitor: bool = False,
    ) -> dict[str, Any]:
        """Mint a submit token, or (monitor) one that reads /metrics; the only answer that ever shows it."""
        good_for = {"monitor": True} if monitor else {"clusters": list(clusters)}
        body = {**good_for, "requestors": requestors and list(requestors), "expires_at": expires_at, "name": name}
        return self._own("POST", "tokens", body=body, repeatable=False)

    def tokens(self) -> list[dict[str, Any]]:
        """List the tokens and secrets of one's clusters, the oldest first."""
        found: list[dict[str, Any]] = self._own("GET", "tokens")["tokens"]
        return found

    def rotate_token(self, token_id: str) -> dict[str, Any]:
        """Give a token or secret a new value; the only answer that ever shows it."""
        return self._own("POST", "tokens", f"{token_id}:rotate", repeatable=False)

    def revoke_token(self, token_id: str) -> None:
        """End a token now."""
        self._own("DELETE", "tokens", token_id)

    def reload_config(self) -> dict[str, Any]:
        """Let the server check its configuration file and take it over; needs the admin token."""
        return self._own("POST", "config:reload")

    def patch_graph(
        self, cluster: str, changes: Sequence[Mapping[str, Any]], *, revision: int | None = None
    ) -> dict[str, Any]:
        """Change a cluster's graph: add, remove, set, resize; all of it or nothing; only that of a revision."""
        headers = None if revision is None else {"If-Match": f'"{revision}"'}
        body = {"changes": list(changes)}
        return self._own("PATCH", "clusters", cluster, "graph", body=body, headers=headers, repeatable=False)

    def _own(self, verb: str, *parts: str, body: Any = None, **more: Any) -> dict[str, Any]:
        path = "/v1/" + "/".join(quote(part, safe=":") for part in parts)
        answer: dict[str, Any] = self._calls.call(verb, path, body, **more) or {}
        return answer
