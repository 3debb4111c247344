"""`rainbow events`, and `--watch`: events as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from rainbow.cli.output import printer
from rainbow.cli.session import with_tokens

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
    for event in client.stream(after, follow=follow):
        if output == "json":
            click.echo(json.dumps(event))
        else:
            click.echo(_line(event))


def _line(event: dict[str, Any]) -> str:
    told = {key: value for key, value in event["data"].items() if key != "at"}
    words = " ".join(f"{key}={printer.words(value)}" for key, value in told.items())
    return printer.one_line(f"{event['id']:>6} {printer.when(event['data']['at'])} {event['event']} {words}")


def again(client: Client, watch: bool, show: Callable[[], bool]) -> None:
    """Show something, and with --watch again after every event, until `show` says that nothing more can come."""
    heard: Iterator[Any] = client.stream(beats=True) if watch else iter(())
    if watch:
        next(heard)  # the stream has begun: nothing that happens from now on is missed
    while show() and watch:
        if next(heard, None) is None:
            return
