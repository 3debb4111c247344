"""`rainbow events`, `rainbow audit`, and `--watch`: events as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rainbow.cli.input.job_options import point_in_time
from rainbow.cli.output import printer
from rainbow.cli.session import with_any_secret, with_tokens
from rainbow.text import rfc3339

if TYPE_CHECKING:
    from rainbow.client import Client

watch_option = click.option(
    "--watch", is_flag=True, help="Refresh the output on every change until interrupted (Ctrl-C)."
)


@click.command()
@click.option("--after", type=click.IntRange(0), help="Start after the event with this ID. Default: new events only.")
@click.option("--follow/--no-follow", default=True, show_default=True, help="Keep listening for new events.")
@printer.output_option
@with_tokens
def events(client: Client, after: int | None, follow: bool, output: str) -> None:
    """Stream events of your clusters and jobs, one per line."""
    for place, event in enumerate(client.stream(after, follow=follow)):
        if output in printer.DRAWN:
            click.echo(_line(event))
        elif output == "json":
            click.echo(json.dumps(event))
        elif output == "csv":
            printer.write_fields([*event], [[_field(value) for value in event.values()]], header=not place)
        else:  # YAML: the whole stream is one list
            printer.show(output, [event], "")


def _field(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _line(event: dict[str, Any]) -> str:
    answer = {key: value for key, value in event["data"].items() if key != "at"}
    words = " ".join(f"{key}={printer.words(value)}" for key, value in answer.items())
    return printer.one_line(f"{event['id']:>6} {printer.when(event['data']['at'])} {event['event']} {words}")


@click.command()
@click.option("--job", help="Show only changes of this job: its number, id or name, or `last`.")
@click.option(
    "--credential", metavar="ID", help="Show only changes with this credential (see `token list`), or `admin`."
)
@click.option("--since", callback=point_in_time, help="Show only changes from this time on.")
@click.option("--until", callback=point_in_time, help="Show only changes before this time.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Most changes to show.")
@printer.output_option
@with_any_secret
def audit(
    client: Client,
    job: str | None,
    credential: str | None,
    since: float | None,
    until: float | None,
    limit: int,
    output: str,
) -> None:
    """Show who asked for which change, newest first: with which credential, from which address.

    The administrator sees all changes, an owner those of the own clusters.
    """
    times = {name: None if at is None else rfc3339(at) for name, at in (("since", since), ("until", until))}
    results = list(islice(client.all_audit(job=job, credential=credential, **times), limit))
    rows = [
        (printer.when(one["changed_at"]), one["verb"], one["object"], one["login"], one["credential"], one["address"])
        for one in results
    ]
    printer.show(output, results, printer.table(["WHEN", "VERB", "OBJECT", "LOGIN", "CREDENTIAL", "ADDRESS"], rows))


def again(client: Client, watch: bool, show: Callable[[], bool]) -> None:
    """Show something, and with --watch again after every event, until `show` says that nothing more can come."""
    heard: Iterator[Any] = client.stream(beats=True) if watch else iter(())
    if watch:
        next(heard)  # the stream has begun: nothing that happens from now on is missed
    while show() and watch:
        if next(heard, None) is None:
            return
