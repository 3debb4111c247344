"""`rainbow completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from rainbow.errors import RainbowError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script: eval "$(rainbow completion bash)"."""
    made = get_completion_class(shell)
    if made is None:
        raise RainbowError(f"no completion for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, "rainbow", "_RAINBOW_COMPLETE").source())
