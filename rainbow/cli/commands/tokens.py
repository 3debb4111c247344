"""`rainbow token`: mint, list, rotate, revoke."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from rainbow.cli import session
from rainbow.cli.input.job_options import moment
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
@click.option(
    "--user",
    "--requestor",
    "requestors",
    multiple=True,
    help="User the token may submit for. Repeatable. Default: any user.",
)
@click.option(
    "--account", "accounts", multiple=True, help="Account that may pay. Repeatable. Default: any of the user."
)
@click.option("--expires", callback=moment, help="Expiry time, as 2030-01-31T12:00:00Z, or local without Z.")
@click.option("--name", help="Description of the token.")
@click.option("--monitor", is_flag=True, help="Token that only reads /metrics; needs the admin token.")
@printer.output_option
@with_any_secret
def mint(
    client: Client,
    clusters: tuple[str, ...],
    requestors: tuple[str, ...],
    accounts: tuple[str, ...],
    expires: str | None,
    name: str | None,
    monitor: bool,
    output: str,
) -> None:
    """Create a submit token, or a monitor token. It cannot be shown again."""
    if not (clusters or monitor):
        raise click.UsageError("Missing option '--cluster' (or '--monitor').")
    whom = {"requestors": requestors or None, "accounts": accounts or None}
    made = client.mint_token(clusters, **whom, expires_at=expires, name=name, monitor=monitor)
    printer.show(output, made, printer.facts(made))


@token.command(name="list")
@printer.output_option
@with_any_secret
def list_tokens(client: Client, output: str) -> None:
    """List the tokens and secrets of your clusters."""
    result = client.tokens()
    titles = ["ID", "KIND", "NAME", "EXPIRES", "REVOKED", "USERS", "CLUSTERS"]
    table = printer.table(titles, map(_row, result))
    printer.show(output, result, table)


def _row(one: dict[str, Any]) -> list[Any]:
    named = [one[key] for key in ("id", "kind", "name")]
    requestors = "any" if one["requestors"] is None else one["requestors"]
    times = printer.minute(one["expires_at"]), printer.minute(one["revoked_at"])
    return [*named, *times, requestors, one["clusters"]]


@token.command()
@click.argument("token_id")
@printer.output_option
@with_any_secret
def rotate(client: Client, token_id: str, output: str) -> None:
    """Replace a token or secret with a new value, which cannot be shown again; put it into the credentials file.
    The old value stops working immediately.
    """
    made = client.rotate_token(token_id)
    printer.show(output, made, printer.facts(made))
    kind = "secret" if "secret" in made else "token"
    if ended := _ended(client.url, made["clusters"], kind):
        session.renew(credentials_used(), dict.fromkeys(ended, made[kind]))
        click.echo(f"renewed it in {credentials_used()}", err=True)


@token.command()
@click.argument("token_id")
@with_any_secret
def revoke(client: Client, token_id: str) -> None:
    """Revoke a token immediately and remove it from the credentials file."""
    of_it = [name for one in client.tokens() if one["id"] == token_id for name in one["clusters"]]
    client.revoke_token(token_id)
    click.echo(f"revoked token {token_id}")
    if ended := _ended(client.url, of_it, "token"):
        session.forget_tokens(credentials_used(), ended)
        click.echo(f"removed it from {credentials_used()}")


def _ended(url: str, clusters: Iterable[str], kind: str) -> set[str]:
    """Return the tokens or secrets of these clusters that the credentials file has and the server knows no more."""
    saved = session.read(credentials_used()).clusters
    words = {saved[name].get(kind, "") for name in clusters if name in saved} - {""}
    return {word for word in words if _has_ended(url, word)}


def _has_ended(url: str, token: str) -> bool:
    """Return whether the server knows a token no more: it tells no ids, and ids tell no tokens."""
    with Client(url, token) as asking:
        try:
            asking.jobs(limit=1)
        except Problem as refused:
            return refused.status == UNAUTHENTICATED
        except TryLater:
            return False
    return False
