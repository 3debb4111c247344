"""A job on the command line: files, or a command with numbers and durations."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rainbow.cli.input import files as input_files
from rainbow.cli.input.files import text_of
from rainbow.errors import JobspecError, RainbowError
from rainbow.jobspec import Request, parse_jobspec
from rainbow.text import NOT_READ

UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}  # RFC 23: Flux Standard Duration
FSD = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|[smhd]?)", re.ASCII)
CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+):([0-5][0-9]):([0-5][0-9])", re.ASCII)  # as Slurm writes its limits
WANTED = "seconds, or a duration such as 90s, 10m, 2h, 1d or 01:30:00 (HH:MM:SS)"


def seconds_of(text: str) -> float | None:
    """Return how many seconds a duration has; None if it is none.

    >>> [seconds_of(text) for text in ("90", "1.5h", "1d", "01:30:00", "2-00:00:10", "10 minutes")]
    [90.0, 5400.0, 86400.0, 5400.0, 172810.0, None]
    """
    if clock := CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        found = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    elif duration := FSD.fullmatch(text):
        found = float(duration[1]) * UNITS[duration[2]]
    else:
        return None
    return found if math.isfinite(found) else None


def duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Read an option's value."""
    found = None if value is None else seconds_of(value.strip())
    if value is not None and found is None:
        raise click.BadParameter(f"{value[:100]!r} is no duration: give {WANTED}")
    return found


def some_duration(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Read an option's value, which is not 0."""
    found = duration(context, option, value)
    if found == 0:
        raise click.BadParameter("a duration is longer than 0")
    return found


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
        return not self.command and input_files.is_many(self.words)

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


TOLD = 5  # keys


def check(jobspec: str | dict[str, Any], of: str = "") -> None:
    """Refuse a jobspec with keys that are not read."""
    check_read(parse_jobspec(jobspec), of)


def check_read(request: Request, of: str = "") -> None:
    """Refuse a jobspec, read already, with keys that are not."""
    unread = [warning for warning in request.warnings if NOT_READ in warning]
    if unread:
        more = [f"and {len(unread) - TOLD} more"] if len(unread) > TOLD else []
        pointer = unread[0].partition(NOT_READ)[0]
        raise JobspecError(f"{of and f'{of}: '}{', '.join([*unread[:TOLD], *more])}", pointer=pointer)


def check_files(paths: Iterable[Path]) -> None:
    """Refuse the first of these jobspecs with such keys; what cannot be read at all has an answer of its own."""
    for path in paths:
        try:
            request = parse_jobspec(text_of(path))
        except RainbowError:
            continue
        check_read(request, str(path))
