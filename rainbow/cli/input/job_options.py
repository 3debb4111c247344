"""A job on the command line: jobspec files, a batch script, or a command, with the options of sbatch."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from rainbow.cli.input import files as input_files
from rainbow.cli.input.files import text_of
from rainbow.cli.output import printer
from rainbow.errors import JobspecError, RainbowError
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.sbatch import GivenOptions, Surroundings, is_script, jobspec_of_call, read_call
from rainbow.jobspec.times import WANTED, seconds_of
from rainbow.jobspec.times import moment as read_moment
from rainbow.text import IGNORED, UNREAD, VERSION
from rainbow.text import seconds_of as time_of


def duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Read an option's value."""
    result = None if value is None else seconds_of(value.strip())
    if value is not None and result is None:
        raise click.BadParameter(f"invalid duration {value[:100]!r}: expected {WANTED}")
    return result


def some_duration(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Read an option's value, which is not 0."""
    result = duration(context, option, value)
    if result == 0:
        raise click.BadParameter("duration must be greater than 0")
    return result


def point_in_time(_: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Read a time as Slurm's commands do: a day, a time of today, or one before now."""
    result = None if value is None else read_moment(value, datetime.now())
    if value is not None and result is None:
        text = f"{value[:60]!r} is not a time: give 2030-01-31[T12:00], 16:00, today or now-2days"
        raise click.BadParameter(text, param=option)
    return result


def moment(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Return an option's value as a time with its zone: without one it is local, as all times are shown."""
    if value is None:
        return None
    try:
        time_of(value)
        if not _is_without_zone(value):
            return value
        # by way of its timestamp: `astimezone` puts a time that no clock shows, in spring, an hour before
        return datetime.fromtimestamp(datetime.fromisoformat(value).timestamp()).astimezone().isoformat()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"invalid time {value!r:.100}: expected one such as 2030-01-31T12:00:00Z") from None


def _is_without_zone(text: str) -> bool:
    with suppress(ValueError):  # a leap second, which has a zone
        return datetime.fromisoformat(text.upper()).tzinfo is None
    return False


def caller() -> Surroundings:
    """Return who calls: the time, the working directory, the environment and the umask of this process."""
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:
        folder = ""
    # without a zone: one of a fixed offset would be wrong for a time after daylight saving begins or ends
    os.umask(umask := os.umask(0o077))  # there is no other way to read it
    return Surroundings(datetime.now(), folder, os.environ, umask)


PLAIN = "rainbow.plain_time"


def limit(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Read a time limit; a bare number is kept as it was written, as beside a script it is minutes."""
    if value is not None and value.strip().isdecimal():
        context.meta[PLAIN] = value.strip()
    return duration(context, option, value)


Jobspec = str | dict[str, Any]
_NAMED = re.compile("--([a-z-]+)")
AFTER = "rainbow.after_dashes"
MISPLACED = "-n, -c, -g and -t go with a command after -- or with a batch script, as do {}"
TASKS_NOW = "-n is a number of tasks, as in Slurm; nodes are -N"
SECONDS_STILL = "-t {0} is {0} seconds; Slurm's {0} minutes are -t {0}m"
COUNT = click.IntRange(1)
# options of sbatch that a submit has, by their names there
_OPTIONS = [
    click.argument("what", nargs=-1, metavar="FILE... | SCRIPT [ARGS...] | -- COMMAND..."),
    click.option("-N", "--nodes", metavar="N[-MAX]", help="Number of nodes; else the tasks may share one or spread."),
    click.option(
        "-n", "--ntasks", type=COUNT, help="Number of tasks: how often the command starts; 1 a node by default."
    ),
    click.option("--ntasks-per-node", type=COUNT, help="Number of tasks on each node."),
    click.option(
        "-c", "--cpus-per-task", "--cores", "cpus_per_task", type=COUNT, help="Cores of each task; 1 by default."
    ),
    click.option("--mem", metavar="SIZE", help="Memory on each node, such as 500M or 4G; MiB without a unit."),
    click.option("--mem-per-cpu", metavar="SIZE", help="Memory for each core."),
    click.option("-G", "--gpus", metavar="N", help="GPUs of the whole job."),
    click.option("-g", "--gpus-per-task", metavar="N", help="GPUs of each task."),
    click.option("--gpus-per-node", metavar="N", help="GPUs on each node."),
    click.option("--exclusive", is_flag=True, help="Whole nodes, though less is used; with --nodes."),
    click.option(
        "-t",
        "--time",
        "--seconds",
        "time",
        metavar="DURATION",
        callback=limit,
        help="Time limit of a task: seconds, or as 10m, 2h, 1d, MM:SS, HH:MM:SS, D-HH, D-HH:MM; 0: none. "
        "Beside a batch script a bare number is minutes.",
    ),
    click.option(
        "-a", "--array", metavar="IDS[%K]", help="Copies of the job, such as 0-15 or 1,3,8-12:2, K at once."
    ),
    click.option(
        "-d", "--dependency", metavar="KIND:JOB", help="Start after other jobs: afterok:JOB[:JOB][,afterany:JOB]."
    ),
    click.option("-b", "--begin", metavar="TIME", help="Start no earlier: 16:00, now+1hour, 2030-01-31T12:00."),
    click.option("-D", "--chdir", metavar="FOLDER", help="Working directory; else this one, if the cluster has it."),
    click.option(
        "--export", metavar="NAMES", help="Variables to send: A,B=1; ALL: your environment. None by default."
    ),
    click.option("-e", "--error", metavar="FILE", help="File for the error output, where the cluster writes one."),
    click.option("-i", "--input", metavar="FILE", help="File to read as input, where the cluster opens one."),
    click.option("-p", "--partition", metavar="NAME", help="Partition of a Slurm cluster."),
    click.option(
        "-A",
        "--account",
        metavar="NAME",
        help="Account that pays; of a Slurm cluster where the server has no accounts.",
    ),
    click.option(
        "-q", "--qos", metavar="NAME", help="Quality of service; of a Slurm cluster where the server has none."
    ),
    click.option("-C", "--constraint", metavar="PROPERTIES", help="Properties that nodes have: a&b, or a|b."),
    click.option("-w", "--nodelist", metavar="HOSTS", help="Nodes to run on, such as n[1-3]."),
    click.option("-x", "--exclude", metavar="HOSTS", help="Nodes to leave out."),
    click.option("-H", "--hold", is_flag=True, help="Let it wait until `rainbow job resume`."),
    click.option("--nice", metavar="N", help="Lower its priority by N."),
    click.option("--comment", help="A comment."),
    click.option(
        "--strict",
        is_flag=True,
        help="Refuse a jobspec with unread keys, misspelt ones above all, or of an unknown version.",
    ),
]
NAMES = (
    *("nodes", "ntasks", "ntasks_per_node", "cpus_per_task", "mem", "mem_per_cpu", "gpus", "gpus_per_task"),
    *("gpus_per_node", "exclusive", "time", "array", "dependency", "begin", "chdir", "export", "error", "input"),
    *("partition", "account", "qos", "constraint", "nodelist", "exclude", "hold", "nice", "comment"),
)


@contextmanager
def as_usage(container: Container[str]) -> Iterator[None]:
    """Let the fault of an option of sbatch be one of the command line, if it was given there and not in a script."""
    try:
        yield
    except JobspecError as fault:
        if (named := _NAMED.match(fault.message)) and named[1] in container:
            raise click.UsageError(fault.message) from None
        raise


class JobCommand(click.Command):
    """A command that knows whether there was a `--`: click takes it away, and what follows need not be a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and keep what follows the first `--`."""
        if "--" in args:
            ctx.meta[AFTER] = tuple(args[args.index("--") + 1 :])
        return super().parse_args(ctx, args)


@dataclass(frozen=True, slots=True)
class JobSource:
    """Jobspec files and folders, a batch script and its arguments, or a command's words; and options of sbatch."""

    words: tuple[str, ...]
    options: Mapping[str, str]
    command: bool
    strict: bool = False  # what has keys that are not read is refused
    plain: str = ""  # a time limit that was written as a bare number
    notes: list[str] = field(default_factory=list)  # what was carried in another form, once the jobspec was made

    @property
    def script(self) -> str | None:
        """The text of the batch script that was given, None if none was."""
        if self.command or not self.words or not _is_file(self.words[0]):
            return None
        with open(self.words[0], "rb") as file:
            return text_of(Path(self.words[0])) if file.read(2) == b"#!" else None

    @property
    def files(self) -> list[Path]:
        """The files and folders, which are there; none of a command, of a script, or of stdin."""
        if self.command or "-" in self.words or self.script is not None:
            return []
        for word in self.words:
            _must_be_there(Path(word).exists(), word)
        return [Path(word) for word in self.words]

    @property
    def many(self) -> bool:
        """Whether these are several jobspecs, or a folder of them."""
        return not self.command and self.script is None and input_files.is_many(self.words)

    def jobspec(self) -> Jobspec:
        """Return the one jobspec that was given, or is written for the script or the command."""
        if self.command:
            return self._of(GivenOptions((self.options,), arguments=self.words))
        if (script := self.script) is not None:
            return self._of_script(script, Path(self.words[0]).name, self.words[1:])
        if len(self.words) != 1:
            raise click.UsageError("give one jobspec FILE (or - for stdin), a batch script, or a command after --")
        word = self.words[0]
        _must_be_there(word == "-" or Path(word).is_file(), word)
        text = text_of(Path(word))
        if is_script(text):
            return self._of_script(text, "sbatch", ())
        if self.options:
            raise click.UsageError(MISPLACED.format(", ".join(f"--{name}" for name in self.options)))
        if self.strict:
            check(text)
        return text

    def _of_script(self, script: str, name: str, arguments: tuple[str, ...]) -> Jobspec:
        limit = {"time": self.plain} if self.plain else {}  # beside a script a bare number is Slurm's: minutes
        words = [*GivenOptions(({**self.options, **limit},)).argv(), "script", *arguments]
        read = read_call(script, words, os.environ, name)
        return self._of(GivenOptions(read.components, read.script, name, arguments, notes=read.notes))

    def _of(self, call: GivenOptions) -> Jobspec:
        with as_usage(self.options):
            document, notes = jobspec_of_call(call, caller())
        self.notes[:] = notes
        return document

    @property
    def news(self) -> dict[str, str]:
        """What is said once to a user: {what it is about: words}."""
        answer = {"tasks": TASKS_NOW} if self.command and "ntasks" in self.options else {}
        return answer | ({"seconds": SECONDS_STILL.format(self.plain)} if self.command and self.plain else {})


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command the options of a job, as its parameter `given`."""

    @functools.wraps(command)
    def run(what: tuple[str, ...], strict: bool, **rest: Any) -> Any:
        values = {name: rest.pop(name) for name in NAMES}
        if isinstance(said := rest.get("output"), tuple):
            rest["output"], values["output"] = _answer_and_file(said)
        return command(given=_given(what, values, strict), **rest)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _answer_and_file(said: tuple[str, ...]) -> tuple[str, str | None]:
    """Divide what -o says: how the answer is shown, and the file of the job's output."""
    forms = [word for word in said if word in printer.FORMS]
    files = [word for word in said if word not in printer.FORMS]
    return (forms or [os.environ.get("RAINBOW_OUTPUT") or printer.FORMS[0]])[-1], files[-1] if files else None


def _given(words: tuple[str, ...], values: Mapping[str, Any], strict: bool) -> JobSource:
    after = click.get_current_context().meta.get(AFTER)
    if after is not None and words != after:
        raise click.UsageError("give either a jobspec FILE or a command after --, not both")
    options, plain = _options_of(values)
    named = after is None and bool(words) and (words[0] == "-" or Path(words[0]).exists())
    if after is None and words and not named and words[0].endswith(FILES):
        _must_be_there(False, words[0])
    inputs = JobSource(words, options, after is not None or bool(options and words and not named), strict, plain)
    if options and not words:
        raise click.UsageError(MISPLACED.format(", ".join(f"--{name}" for name in options)))
    if options and named and words[0] != "-" and inputs.script is None:
        raise click.UsageError(MISPLACED.format(", ".join(f"--{name}" for name in options)))
    if after is not None and not words:
        raise click.UsageError("missing command after --")
    return inputs


def _options_of(values: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Return the options by their names in sbatch, and a time limit that was written as a bare number."""
    options = {
        name.replace("_", "-"): "" if value is True else str(value)
        for name, value in values.items()
        if value is not None and value is not False
    }
    if "time" not in options:
        return options, ""
    seconds = float(values["time"])
    options["time"] = f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
    return options, str(click.get_current_context().meta.get(PLAIN, ""))


def _is_file(word: str) -> bool:
    return word != "-" and Path(word).is_file()


FILES = (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", ".json")  # programs are seldom named so


def _must_be_there(there: bool, word: str) -> None:
    if not there:
        raise click.UsageError(f"file {word!r} not found; to submit a command, put it after --")


MOST_KEYS = 5


def check(jobspec: str | dict[str, Any], of: str = "") -> None:
    """Refuse a jobspec with keys that are not read."""
    check_read(parse_jobspec(jobspec), of)


def check_read(request: Request, of: str = "") -> None:
    """Refuse a jobspec, read already, with keys that are not, or of a version that is not known."""
    unread = [warning for warning in request.warnings if warning.startswith((UNREAD, VERSION))]
    if unread:
        more = [f"and {len(unread) - MOST_KEYS} more"] if len(unread) > MOST_KEYS else []
        pointer = unread[0].removeprefix(UNREAD).partition(IGNORED)[0].split(" ")[0]
        raise JobspecError(f"{of and f'{of}: '}{', '.join([*unread[:MOST_KEYS], *more])}", pointer=pointer)


def check_files(paths: Iterable[Path]) -> None:
    """Refuse the first of these jobspecs with such keys; what cannot be read at all has an answer of its own."""
    for path in paths:
        try:
            request = parse_jobspec(text_of(path))
        except RainbowError:
            continue
        check_read(request, str(path))
