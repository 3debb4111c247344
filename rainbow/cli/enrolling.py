"""`rainbow agent --register`: a cluster that comes by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from rainbow.agent.survey import Survey
from rainbow.cli import credentials
from rainbow.client import Client, Problem
from rainbow.errors import RequestError

UNKNOWN = frozenset({401, 404})  # the secret is of another server, or of a cluster that was deleted


def enrolled(
    client: Client, cluster: str, found: Survey, secret: str | None, policy: str | None, say: Callable[[str], None]
) -> Client:
    """Return a client with the cluster's secret; the cluster is registered unless the client has it already."""
    if client.has_credentials and _is_ours(client, cluster, bool(secret)):
        return client
    if not secret:
        raise RequestError(f"to register {cluster} the registration secret is needed (--registration-secret)")
    file = Path(click.get_current_context().params["credentials"])
    credentials.read(file)  # a file that cannot be added to is better known before than after
    with Client(client.url, secret) as registering:
        made = registering.register_cluster(
            cluster, found.document, state=found.state, policy={"name": policy} if policy else None
        )
    credentials.save(file, client.url, cluster, made["token"], made["secret"])
    counted = ", ".join(f"{size} {kind}" for kind, size in made["totals"].items() if kind != "cluster")
    say(f"registered {cluster}: {counted}; its token and secret are in {file}")
    ours = Client(client.url, made["secret"])
    click.get_current_context().call_on_close(ours.close)
    return ours


def _is_ours(client: Client, cluster: str, may_register: bool) -> bool:
    try:
        client.cluster(cluster)
    except Problem as problem:
        if may_register and problem.status in UNKNOWN:
            return False
        raise
    return True
