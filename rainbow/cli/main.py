"""The command itself, its help, and the completion of shells."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

import click
from click.shell_completion import CompletionItem, get_completion_class

from rainbow import __version__
from rainbow.cli.exit_codes import INTERRUPTED, LACKING, Exit, exit_of
from rainbow.cli.output import printer
from rainbow.cli.session import DEFAULT, DEFAULT_URL, with_tokens
from rainbow.cli.session import read as read_credentials
from rainbow.errors import NotFound, RainbowError

if TYPE_CHECKING:
    from rainbow.client import Client

# section → command → (where it is, what it does); each is imported when it is run: a help, too, waits for no import
SECTIONS = {
    "Jobs": {
        "submit": ("commands.submit:submit", "Submit a jobspec, a batch script or a command."),
        "run": ("commands.logs:run", "Submit one job, print what it writes, exit with its code."),
        "sbatch": ("slurm.sbatch:sbatch", "Submit a batch script with the options of sbatch."),
        "slurm-shims": ("slurm.shims:slurm_shims", "Write Slurm's commands over Rainbow into a folder."),
        "match": ("commands.match:match", "Show which clusters fit a jobspec, and why others do not."),
        "verify": ("commands.verify:verify", "Check a printed answer of match, without a server."),
        "jobs": ("commands.jobs:jobs", "List the jobs that have not ended."),
        "history": ("slurm.history:history", "List jobs that have ended, too, as sacct does."),
        # with `job logs`, which stands beside `run`
        "job": ("job.verbs:job", "Show, explain, cancel, hold and change jobs."),
        "attach": ("commands.logs:attach", "Follow the output of a job; exit with its code."),
        "jobspec": ("slurm.sbatch:jobspec", "Translate a batch script into a jobspec, or back."),
    },
    "Clusters": {
        "fleet": ("commands.cluster_parts:fleet", "Count clusters and jobs; name the clusters that need you first."),
        "nodes": ("slurm.history:nodes", "List nodes by state, with what is free, as sinfo does."),
        "top": ("slurm.history:top", "Watch what is free, and the largest jobs."),
        "events": ("commands.events:events", "Print what happens to jobs and clusters, as it happens."),
        "cluster": ("commands.clusters:cluster", "Import, register, list, show, drain, delete clusters."),
        "subsystem": ("commands.cluster_parts:subsystem", "Register and delete subsystem graphs of a cluster."),
        "worker": ("commands.cluster_parts:worker", "List, show, drain and reinstate the nodes of a cluster."),
        "state": ("commands.cluster_parts:state", "Show and set the values that selection reads."),
        "token": ("commands.tokens:token", "Mint, list, rotate and revoke tokens and secrets."),
    },
    "Agents": {
        "agent": ("commands.agent:agent", "Run the tasks of a cluster, here or by its Slurm."),
        "receive": ("commands.receive:receive", "Receive whole jobs for a scheduler of your own."),
        "report": ("commands.receive:report", "Report that a received job has started or ended."),
    },
    "Who gets how much": {
        "scheduler": ("commands.scheduler:scheduler", "Show and set a cluster's policy; its plan; its timeline."),
        "reserve": ("commands.reservations:reserve", "Reserve nodes for users, or for maintenance."),
        "account": ("accounts:account", "Accounts: who may use how much over all clusters."),
        "qos": ("accounts:qos", "Qualities of service: priority, limits, preemption."),
        "usage": ("accounts:usage", "Show what accounts have used."),
        "model": ("run_models:model", "Models of run times, learned from finished runs."),
        # with `policy simulate`, which stands beside `simulate`
        "policy": ("commands.simulation:policy", "Check settings; try other rules on past decisions."),
        "simulate": ("commands.simulation:simulate_command", "Run recorded jobs in virtual time."),
    },
    "The server": {
        "demo": ("demo:demo", "Run a server, three clusters and their jobs."),
        "up": ("demo:up", "Start a server and an agent for this machine."),
        "down": ("demo:down", "End what `rainbow up` has started."),
        "serve": ("commands.server_admin:serve", "Run the server."),
        "route": ("commands.server_admin:route", "Run one address in front of several servers."),
        "config": ("commands.server_admin:config", "Write, check, view, show and reload the configuration."),
        "audit": ("commands.events:audit", "Show who asked for which change."),
        "db": ("commands.server_admin:db", "Upgrade, back up and restore the database."),
        "doctor": ("commands.server_admin:doctor", "Check configuration, database, credentials, drivers."),
    },
    "More": {
        "docs": ("main:docs", "Show a page of the documentation, or search it."),
        "help": ("main:show_help", "Explain a command or a topic."),
        "completion": ("main:completion", "Print the completion script of a shell."),
        "version": ("main:version", "Show the versions of command and server."),
    },
}
COMMANDS = {name: place for commands in SECTIONS.values() for name, (place, _) in commands.items()}
# what a command is called here → its names in Slurm, PBS, LSF, HTCondor, Kubernetes and Flux, and parts of ours
CALLED_ELSEWHERE = {
    "jobs": "squeue, qstat, bjobs, condor_q, get, ls, list, ps, queue, status, job list, job ls",
    "submit": "qsub, bsub, condor_submit, batch",
    "submit FILE": "apply, create",
    "run": "srun, alloc, mini",
    "history": "sacct",
    "attach JOB": "sattach",
    "job show JOB": "scontrol, describe, show, job status",
    "job cancel JOB": "scancel, qdel, bkill, condor_rm, cancel, delete, kill, job delete, job kill",
    "job logs JOB": "logs, job output",
    "job why JOB": "why",
    "job wait JOB": "wait",
    "nodes": "sinfo, condor_status, resource",
    "top": "smap, slurmtop",
    "worker": "node",
    "worker reinstate NAME": "worker resume, worker undrain",
    "cluster list": "clusters, cluster ls",
    "cluster register": "register, cluster add, cluster create",
    "cluster import": "import",
    "cluster delete CLUSTER": "cluster remove, cluster rm",
    "account": "sacctmgr",
    "account tree": "sshare",
    "usage": "sreport",
}
ELSEWHERE = {name: here for here, names in CALLED_ELSEWHERE.items() for name in names.split(", ")}
NO_COMMAND = re.compile(r"No such command '(.+?)'")


def examples() -> list[str]:
    """Return the example of each command, one or more lines a command."""
    return (files("rainbow.cli") / "examples.txt").read_text(encoding="utf-8").splitlines()


def _explain(command: click.Command, path: str, lines: Sequence[str]) -> None:
    """Give a command, and those in it, a whole first sentence in lists and an example at the end of the help."""
    _complete(command, path)
    command.short_help = command.short_help or first_sentence(command.help or "")
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            _explain(inner, f"{path} {name}", lines)
    elif own := [line for line in lines if f"{line} ".startswith(f"{path} ")]:
        command.epilog = "\n".join(["\b", "Example:", *(f"  {line}" for line in own)])


def first_sentence(text: str) -> str:
    """Return the first sentence of a help, which click would cut.

    >>> first_sentence("List jobs: all, e.g.\\nold ones. And more.")
    'List jobs: all, e.g. old ones.'
    """
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[^.].)\. (?=[A-Z])", paragraph, maxsplit=1)[0].rstrip(".") + "."


class LazyCommands(MutableMapping[str, click.Command]):
    """The commands by name, each imported when it is asked for: a command waits for no other's imports."""

    def __init__(self) -> None:
        self._places: dict[str, str] = dict(COMMANDS)
        self._there: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._there:
            module, _, attribute = self._places[name].partition(":")
            command = getattr(import_module(f"rainbow.cli.{module}"), attribute)
            _explain(command, f"rainbow {name}", examples())
            self._there[name] = command
        return self._there[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places[name], self._there[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._places))

    def __len__(self) -> int:
        return len(self._places)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script: eval "$(rainbow completion bash)"."""
    made = get_completion_class(shell)
    if made is None:
        raise RainbowError(f"no completion for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, "rainbow", "_RAINBOW_COMPLETE").source())


PAGES = files("rainbow.cli") / "topics"


def topics() -> dict[str, str]:
    """Return {topic: its page}."""
    results = {page.name.removesuffix(".txt"): page.read_text(encoding="utf-8") for page in PAGES.iterdir()}
    return dict(sorted(results.items()))


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
            raise NotFound(f"no command or topic named {' '.join(path)!r}; run `rainbow help` for a list")
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    return command.get_help(context)


PACKED_DOCS = Path(__file__).parent / "docs"  # where the wheel has them
DOCS = PACKED_DOCS if PACKED_DOCS.is_dir() else Path(__file__).resolve().parents[2] / "docs"
MOST_FOUND = 10  # pages that a search lists
LISTED = re.compile(r"^- \[([^]]*)\]\(([\w-]+)\.md\)(.*)$", re.M)


class Page(NamedTuple):
    """A page as the index lists it."""

    name: str
    title: str
    section: str


def listed_pages(index: str) -> list[Page]:
    """Return the pages that the index lists, in its order.

    >>> listed_pages("## How-to: do one thing\\n\\n- [Order jobs](dependencies.md): chains")
    [Page(name='dependencies', title='Order jobs: chains', section='How-to')]
    """
    parts = re.split(r"^## (.*)$", index, flags=re.M)[1:]
    return [
        Page(name, f"{title}{rest}", heading.partition(":")[0])
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
        for title, name, rest in LISTED.findall(text)
    ]


@click.command()
@click.argument("topic", nargs=-1)
def docs(topic: tuple[str, ...]) -> None:
    """Show the page TOPIC of this version; without one, list them. Other words are searched in all pages."""
    pages = listed_pages((DOCS / "index.md").read_text(encoding="utf-8"))
    name = _moved().get("-".join(topic), "-".join(topic)).removesuffix(".md").lower()
    if not topic:
        click.echo(_page_table(pages))
    elif name in {page.name for page in pages}:
        page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        click.echo_via_pager(re.sub(r"<!--.*?-->\n*", "", page, flags=re.S))
    elif matches := _with_words(pages, topic):
        click.echo(_page_table(matches))
    else:
        raise NotFound(f"no page named {' '.join(topic)!r} and none with these words; run `rainbow docs` for a list")


def _moved() -> dict[str, str]:
    """Return {former name of a page: the name of the page that has its text now}."""
    moved: dict[str, str] = json.loads((DOCS / "moved.json").read_text(encoding="utf-8"))
    return moved


def _with_words(pages: list[Page], words: tuple[str, ...]) -> list[Page]:
    """Return the pages that contain every word, those first that have them in their title or most often."""
    counts = []
    for at, page in enumerate(pages):
        text = (DOCS / f"{page.name}.md").read_text(encoding="utf-8").lower()
        each = [text.count(word.lower()) for word in words]
        in_title = sum(word.lower() in f"{page.name} {page.title}".lower() for word in words)
        if all(each):
            counts.append((-in_title, -sum(each), at))
    return [pages[at] for _, _, at in sorted(counts)[:MOST_FOUND]]


def _page_table(pages: list[Page]) -> str:
    """Return a line for each page, below the name of its section."""
    wide = max(len(page.name) for page in pages)
    lines: list[str] = []
    for section in dict.fromkeys(page.section for page in pages):
        lines += ["", section] if lines else [section]
        lines += [f"  {page.name:{wide}}  {page.title}" for page in pages if page.section == section]
    return "\n".join([*lines, "", "rainbow docs TOPIC shows a page."])


EPILOG = """\b
Exit codes: 0 ok, 1 error, 2 usage, 3 no match, 4 not found, 5 not allowed,
6 conflict, 7 job failed, 75 server unavailable or busy.

Settings come from flags, then the environment (RAINBOW_URL, RAINBOW_TOKEN,
RAINBOW_TOKEN_FILE, RAINBOW_SECRET, RAINBOW_SECRET_FILE), then the credentials
file that `cluster register --save` writes (RAINBOW_CREDENTIALS):
`rainbow help connection`. `rainbow help TOPIC` explains more."""


class Root(click.Group):
    """Turns every fault into its line and exit code; a traceback is shown only if RAINBOW_DEBUG is set."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()], col_max=12, col_spacing=2)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command by the table alone, or an option."""
        lines = {name: line for commands in SECTIONS.values() for name, (_, line) in commands.items()}
        results = [CompletionItem(name, help=line) for name, line in lines.items() if name.startswith(incomplete)]
        return [*results, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RainbowError as fault:
            code, lacking = exit_of(fault), ctx.meta.get(LACKING)
            lacks = f"; the command lacks {lacking}" if lacking and code is Exit.NOT_ALLOWED else ""
            # who opens a database is told its own words; users of a server are not
            cause = getattr(fault.__cause__, "orig", None) if code is Exit.UNAVAILABLE else None
            _say(f"{fault}{lacks}{f': {cause}' if cause else ''}")
            ctx.exit(code)
        except click.UsageError as fault:
            raise _of_elsewhere(fault) or fault from None
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            raise  # click ends quietly when whoever reads us has gone
        except OSError as fault:
            _say(f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror or str(fault))
            ctx.exit(Exit.ERROR)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as fault:
            if os.environ.get("RAINBOW_DEBUG"):
                raise
            first = next(iter(str(fault).splitlines()), "")
            _say(
                f"internal error: {type(fault).__name__}: {first}; set RAINBOW_DEBUG=1 for a traceback and please "
                "report it"
            )
            ctx.exit(Exit.ERROR)


def _of_elsewhere(fault: click.UsageError) -> click.UsageError | None:
    """Name the command meant by someone who is used to another workload manager."""
    result = NO_COMMAND.match(fault.message)
    path = f"{fault.ctx.command_path} {result[1]}".partition(" ")[2] if result and fault.ctx else ""
    if not result or path not in ELSEWHERE:
        return None
    return click.UsageError(f"No such command '{result[1]}'; here it is `rainbow {ELSEWHERE[path]}`.", fault.ctx)


def _say(text: str) -> None:
    click.echo(f"rainbow: {printer.one_line(text)}", err=True)


@click.group(cls=Root, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rainbow")
def main() -> None:
    """Which cluster should run this job, and when does each of its tasks start there?"""


main.commands = LazyCommands()  # click asks no more of it than a mapping has


@click.command()
@printer.output_option
@with_tokens
def version(client: Client, output: str) -> None:
    """Show the versions of this command, and of the server where one answers."""
    answer: dict[str, Any] = {"client": __version__}
    try:
        answer |= client.version()
    except RainbowError:
        answer["server"] = None
    printer.show(output, answer, _versions(answer))
    if far_apart(__version__, answer["server"]):
        _say(f"warning: client {__version__} and server {answer['server']} are more than one minor release apart")


def _versions(answer: Mapping[str, Any]) -> str:
    if not answer["server"]:
        return f"rainbow {answer['client']}"
    server = f"server {answer['server']}, API {', '.join(answer['api'])}, schema {answer['schema']}"
    return f"rainbow {answer['client']}, {server}"


def far_apart(client: str, server: str | None) -> bool:
    """Return whether two releases are too far apart to work together as promised.

    >>> far_apart("0.2.0", "0.3.1"), far_apart("0.2.0", "0.4.0"), far_apart("1.0.0", "0.9.0")
    (False, True, True)
    """
    if server is None:
        return False
    ours, theirs = ([int(part) for part in re.findall(r"\d+", text)[:2]] for text in (client, server))
    return ours[0] != theirs[0] or abs(ours[1] - theirs[1]) > 1


# ── completion ──

ANSWERS_WITHIN = 0.3  # seconds: later is as good as never
PLAIN_NAME = re.compile(r"[\w.+@%/][\w.+@%/-]*")  # what every shell takes as one word as it is
# of a parameter of these names: what lists its values, and the keys of an entry that are values
VALUES = {
    **dict.fromkeys(("job_id", "jobs", "job", "ids"), ("jobs?limit=200", "jobs", ("number", "name"))),
    **dict.fromkeys(("cluster", "clusters", "named"), ("clusters", "clusters", ("name",))),
    **dict.fromkeys(("requestor", "user"), ("jobs?limit=1000", "jobs", ("requestor",))),
    **dict.fromkeys(("account", "accounts"), ("accounts", "accounts", ("name",))),
    "worker": ("clusters/{cluster}/workers", "workers", ("name",)),
}


class Completed(click.ParamType[Any]):
    """The type of a parameter whose values the server knows: completion asks for them."""

    def __init__(self, inner: click.ParamType[Any], source: tuple[str, str, tuple[str, ...]]) -> None:
        self.inner, self.source, self.name = inner, source, inner.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a value as the type does that it stands for."""
        return self.inner.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Ask the server; nothing is said of one that does not answer in time, or answers something else."""
        path, listed, keys = self.source
        rows: list[Mapping[str, Any]] = []
        asking = Thread(target=_ask, args=(ctx.params, path, listed, rows), daemon=True)
        asking.start()
        asking.join(ANSWERS_WITHIN)
        words = {str(row.get(key)): str(row.get("name", "")) for row in [*rows] for key in keys if row.get(key)}
        known = {
            word: text for word, text in words.items() if word.startswith(incomplete) and PLAIN_NAME.fullmatch(word)
        }
        return [CompletionItem(word, help=printer.one_line(text)) for word, text in known.items()]


def _ask(options: Mapping[str, Any], path: str, listed: str, rows: list[Mapping[str, Any]]) -> None:
    """Add the entries of a list of the server's; whatever goes wrong, none."""
    from http.client import HTTPConnection, HTTPSConnection  # completion alone: no other command waits for them

    with suppress(Exception):
        saved = read_credentials(Path(options.get("credentials") or DEFAULT))
        url = options.get("url") or saved.url or DEFAULT_URL
        tokens = [*(options.get("token") or os.environ.get("RAINBOW_TOKEN", "").replace(",", " ").split())]
        tokens = tokens or saved.tokens
        place = str(options.get("cluster") or options.get("named") or "")
        headers = {"Authorization": f"Bearer {','.join(tokens or saved.secrets)}"}
        there = urlsplit(url)
        kind = HTTPSConnection if there.scheme == "https" else HTTPConnection
        connection = kind(str(there.hostname), there.port, timeout=ANSWERS_WITHIN)
        connection.request(
            "GET", f"{there.path.rstrip('/')}/v1/{path.format(cluster=quote(place, safe=''))}", headers=headers
        )
        answer = json.loads(connection.getresponse().read())
        rows += [row for row in answer[listed] if isinstance(row, dict)]


def _complete(command: click.Command, path: str) -> None:
    """Let the parameters of a command be completed that name what a server knows."""
    for param in command.params:
        name = "worker" if path.startswith("rainbow worker ") and param.name == "name" else str(param.name)
        if name in VALUES and isinstance(param.type, click.types.StringParamType):
            param.type = Completed(param.type, VALUES[name])
