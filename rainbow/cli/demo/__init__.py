"""`rainbow demo`: a server, the example clusters with their agents, the example jobspecs, and what became of them."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--files",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the example clusters and jobspecs to this directory and exit.",
)
@click.option(
    "--keep", is_flag=True, help="Leave the server and the agents running until Enter, to look at the web page."
)
def demo(folder: Path | None, keep: bool) -> None:
    """Run a server, three clusters and their jobs; show where each job went and why."""
    if folder is None:
        from rainbow.cli.demo.run import main  # no other command needs what it imports

        click.get_current_context().exit(main(keep=keep))
    from rainbow.cli.demo.examples import copy_to

    for made in copy_to(folder):
        click.echo(made)


@click.command()
@click.argument("name")
@click.option(
    "--port",
    envvar="RAINBOW_PORT",
    type=click.IntRange(1, 65535),
    default=8080,
    show_default=True,
    help="Port of the server.",
)
def up(name: str, port: int) -> None:
    """Start a server and an agent for this machine, as cluster NAME, in the background; what runs stays as it is."""
    from rainbow.cli.demo.processes import bring_up

    click.echo(bring_up(name, port))


@click.command()
def down() -> None:
    """End the server and the agent that `rainbow up` has started; their files stay."""
    from rainbow.cli.demo.processes import bring_down

    click.echo(bring_down())
