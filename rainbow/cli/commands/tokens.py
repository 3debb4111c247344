"""`rainbow token`: mint, list, rotate, revoke."""

from __future__ import annotations

from typing import Any

import click

from rainbow.cli import session
from rainbow.cli.output import printer
from rainbow.cli.session import credentials_used, with_any_secret
from rainbow.client import Client, Problem
from rainbow.errors import TryLater

UNAUTHENTICATED = 401


@click.group()
def token() -> None:
    """Tokens and secrets of your clusters: mint, list, rotate, revoke."""


@token.command()
@click.option("--cluster", "clusters", multiple=True, help="Cluster the token may submit to. Repeatable.")
@click.option("--requestor", "requestors", multiple=True, help="May speak for this one; else for anybody.")
@click.option("--expires", help="Ends then: 2030-01-31T12:00:00Z.")
@click.option("--name", help="What you call it.")
@click.option("--monitor", is_flag=True, help="Token that only reads /metrics; needs the admin token.")
@printer.output_option
@with_any_secret
def mint(
    client: Client,
    clusters: tuple[str, ...],
    requestors: tuple[str, ...],
    expires: str | None,
    name: str | None,
    monitor: bool,
    output: str,
) -> None:
    """Mint a submit token, or one for a monitor; it is shown this once."""
    if not (clusters or monitor):
        raise click.UsageError("Missing option '--cluster' (or '--monitor').")
    made = client.mint_token(clusters, requestors=requestors or None, expires_at=expires, name=name, monitor=monitor)
    printer.show(output, made, lambda console: console.print(printer.facts(made)))


@token.command(name="list")
@printer.output_option
@with_any_secret
def list_tokens(client: Client, output: str) -> None:
    """List the tokens and secrets of your clusters."""
    found = client.tokens()
    titles = ["ID", "KIND", "NAME", "EXPIRES", "REVOKED", "REQUESTORS", "CLUSTERS"]
    table = printer.table(titles, map(_row, found))
    printer.show(output, found, lambda console: console.print(table))


def _row(one: dict[str, Any]) -> list[Any]:
    named = [one[key] for key in ("id", "kind", "name")]
    requestors = "any" if one["requestors"] is None else one["requestors"]
    return [
        *named,
        printer.minute(one["expires_at"]),
        printer.minute(one["revoked_at"]),
        requestors,
        one["clusters"],
    ]


@token.command()
@click.argument("token_id")
@printer.output_option
@with_any_secret
def rotate(client: Client, token_id: str, output: str) -> None:
    """Give a token or secret a new value, shown this once; the old one ends now."""
    made = client.rotate_token(token_id)
    printer.show(output, made, lambda console: console.print(printer.facts(made)))


@token.command()
@click.argument("token_id")
@with_any_secret
def revoke(client: Client, token_id: str) -> None:
    """End a token now; if it stands in the credentials file it goes from there too."""
    file = credentials_used()
    saved = session.read(file)
    of_it = {name for one in client.tokens() if one["id"] == token_id for name in one["clusters"]}
    client.revoke_token(token_id)
    click.echo(f"token {token_id} is revoked")
    candidates = {saved.clusters[name].get("token", "") for name in of_it & set(saved.clusters)} - {""}
    if ended := {one for one in candidates if _has_ended(client.url, one)}:
        session.forget_tokens(file, ended)
        click.echo(f"it is taken out of {file}")


def _has_ended(url: str, token: str) -> bool:
    """Tell whether the server knows a token no more: it tells no ids, and ids tell no tokens."""
    with Client(url, token) as asking:
        try:
            asking.jobs(limit=1)
        except Problem as refused:
            return refused.status == UNAUTHENTICATED
        except TryLater:
            return False
    return False
