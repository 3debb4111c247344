"""`rainbow help`: a command's help, or a page about what commands have in common."""

from __future__ import annotations

from importlib.resources import files

import click

from rainbow.errors import NotFound

PAGES = files("rainbow.cli") / "topics"


def topics() -> dict[str, str]:
    """Return {topic: its page}."""
    found = {page.name.removesuffix(".txt"): page.read_text(encoding="utf-8") for page in PAGES.iterdir()}
    return dict(sorted(found.items()))


@click.command(name="help")
@click.argument("topic", nargs=-1)
def show_help(topic: tuple[str, ...]) -> None:
    """Explain a command (`rainbow help cluster register`) or a TOPIC; without one, list them."""
    context = click.get_current_context().find_root()
    pages = topics()
    if not topic:
        click.echo(context.get_help())
        click.echo(f"\nTopics: {', '.join(pages)}. rainbow help TOPIC explains one.")
    elif topic[0] in pages and len(topic) == 1:
        click.echo(pages[topic[0]].rstrip())
    else:
        click.echo(_of_command(context, topic))


def _of_command(context: click.Context, path: tuple[str, ...]) -> str:
    command = context.command
    for name in path:
        inner = command.get_command(context, name) if isinstance(command, click.Group) else None
        if inner is None:
            raise NotFound(f"there is no command and no topic {' '.join(path)!r}; rainbow help lists them")
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    return command.get_help(context)
