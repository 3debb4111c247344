"""What `rainbow submit` and `rainbow match` are given: jobspec files, or a command and a few numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rainbow.cli import many
from rainbow.cli.durations import duration
from rainbow.cli.reading import text_of
from rainbow.cli.strict import check

Jobspec = str | dict[str, Any]
AFTER = "rainbow.after_dashes"
MISPLACED = "-n, -c, -g and -t go with a command after --"
NUMBERS = ("nodes", "cores", "gpus", "seconds")
_OPTIONS = [
    click.argument("what", nargs=-1, metavar="FILE... | -- COMMAND..."),
    click.option("-n", "--nodes", type=click.IntRange(1), help="Nodes for the command."),
    click.option("-c", "--cores", type=click.IntRange(1), help="Cores for the command, on every node; else 1."),
    click.option("-g", "--gpus", type=click.IntRange(1), help="GPUs for the command, on every node."),
    click.option(
        "-t",
        "--seconds",
        metavar="DURATION",
        callback=duration,
        help="The command's time limit: seconds, or as 10m, 2h, 1d, HH:MM:SS; 0: none.",
    ),
    click.option(
        "--strict", is_flag=True, help="Refuse a jobspec with keys that are not read, misspelt ones above all."
    ),
]


class JobCommand(click.Command):
    """A command that knows whether there was a `--`: click takes it away, and what follows need not be a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and keep what stands after the first `--`."""
        if "--" in args:
            ctx.meta[AFTER] = tuple(args[args.index("--") + 1 :])
        return super().parse_args(ctx, args)


@dataclass(frozen=True, slots=True)
class Given:
    """Jobspec files and folders, or the words of a command and its numbers."""

    words: tuple[str, ...]
    numbers: Mapping[str, Any]
    command: bool
    strict: bool = False  # what has keys that are not read is refused

    @property
    def files(self) -> list[Path]:
        """The files and folders, which are there; none of a command, or of stdin."""
        if self.command or "-" in self.words:
            return []
        for word in self.words:
            _must_be_there(Path(word).exists(), word)
        return [Path(word) for word in self.words]

    @property
    def many(self) -> bool:
        """Whether these are several jobspecs, or a folder of them."""
        return not self.command and many.is_many(self.words)

    def jobspec(self) -> Jobspec:
        """Return the one jobspec that was given, or is written for the command."""
        from rainbow.jobspec import jobspec_of

        if self.command:
            nodes, cores, gpus, seconds = (self.numbers.get(name) for name in NUMBERS)
            return jobspec_of(self.words, nodes or 0, cores or 1, gpus or 0, seconds or 0.0)
        if len(self.words) != 1:
            raise click.UsageError("give one jobspec FILE (or - for stdin), or a command after --")
        word = self.words[0]
        _must_be_there(word == "-" or Path(word).is_file(), word)
        text = text_of(Path(word))
        if self.strict:
            check(text)
        return text


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command the options of a job, as its parameter `given`."""

    @functools.wraps(command)
    def run(what: tuple[str, ...], strict: bool, **rest: Any) -> Any:
        numbers = {name: value for name in NUMBERS if (value := rest.pop(name)) is not None}
        return command(given=_given(what, numbers, strict), **rest)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _given(words: tuple[str, ...], numbers: Mapping[str, Any], strict: bool) -> Given:
    after = click.get_current_context().meta.get(AFTER)
    if after is not None and words != after:
        raise click.UsageError("give a jobspec FILE or a command after --, not both")
    named = after is None and bool(words) and (words[0] == "-" or Path(words[0]).exists())
    if numbers and (named or not words):
        raise click.UsageError(MISPLACED)
    if after is not None and not words:
        raise click.UsageError("there is no command after --")
    return Given(words, numbers, after is not None or bool(numbers), strict)


def _must_be_there(there: bool, word: str) -> None:
    if not there:
        raise click.UsageError(f"there is no file {word!r}; a command goes after --")
