"""`rainbow agent`: runs the tasks of a cluster, and can register the cluster itself."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rainbow import process_secrets
from rainbow.agent import Agent, open_executor
from rainbow.agent.background_call import NOT_OURS
from rainbow.agent.executors import isolation
from rainbow.agent.executors.interface import Checks, Executor, Helped
from rainbow.agent.executors.local import allowed
from rainbow.agent.executors.slurm.accounts import Identity
from rainbow.agent.executors.slurm.commands import Commands
from rainbow.agent.executors.slurm.site import Part
from rainbow.agent.executors.wards import keep_private
from rainbow.agent.journal import Journal, faults_named, take_folder
from rainbow.agent.work_loop import MAX_TASKS, PROCESSES
from rainbow.cli import session
from rainbow.cli.agent_doctor import doctor
from rainbow.cli.exit_codes import LACKING
from rainbow.cli.output import printer
from rainbow.cli.session import FILE, lines, with_secret
from rainbow.client import Client, Problem
from rainbow.client.wait import FIRST_PAUSE, LONGEST_PAUSE, passes
from rainbow.errors import RainbowError, RequestError
from rainbow.standard_streams import keep_working_without_log

if TYPE_CHECKING:
    from rainbow.agent.cluster_survey import ClusterWatch, Survey

APART = "local:apart"  # each task in a space of processes of its own
SOURCES = {
    "psij:slurm": "slurm",
    "psij:flux": "flux-r",
    "slurm": "slurm",
    "gridengine": "gridengine",
}  # what says what a cluster is, by executor
SITE, SITES = "slurm", ("slurm", "gridengine")  # the executors of clusters that schedule for themselves
SHARED, OWNED = "shared", "owned"
HANDED_OVER = 10_000  # tasks at once where another queues them


def _only_doctor(_context: click.Context, _argument: click.Parameter, action: str | None) -> str | None:
    if action not in (None, "doctor"):
        raise click.UsageError(f"{action!r} is not `doctor`; to run the tasks of a cluster, use --cluster {action}")
    return action


@click.command()
@click.argument("action", required=False, metavar="[doctor]", callback=_only_doctor)
@click.option("--cluster", help="Cluster to run tasks for.")
@click.option(
    "--executor", default="local", show_default=True, help="Executor that runs tasks: NAME or NAME:ARGUMENT."
)
@click.option(
    "--mode",
    type=click.Choice([SHARED, OWNED]),
    help="With the executor slurm: Slurm places whole requests (shared, the default), or the policy pins tasks.",
)
@click.option("--partition", default="", help="With --mode owned: the partition that is this cluster's alone.")
@click.option("--reservation", default="", help="With --mode owned: the reservation that is this cluster's alone.")
@click.option(
    "--identity",
    type=click.Choice(["self", "service", "root", "helper", "rest"]),
    help="With the executors slurm and gridengine: whose jobs they are. self (default): this account's, for its own "
    "user alone; service: this account's, for all users; root, helper, rest: those of the user's account.",
)
@click.option(
    "--users",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File that says which account of this site a user is (users.yaml).",
)
@click.option(
    "--max-tasks",
    type=click.IntRange(1, 100_000),
    help=f"Most tasks at once [default: {MAX_TASKS}; with slurm and gridengine {HANDED_OVER:,}].",
)
@click.option(
    "--worker",
    "workers",
    multiple=True,
    help="Worker this agent serves. Repeatable. Default: all workers of the cluster.",
)
@click.option(
    "--pass-env",
    multiple=True,
    metavar="NAME",
    help="Pass this environment variable of the agent to tasks. Repeatable.",
)
@click.option(
    "--state-dir",
    envvar="RAINBOW_STATE_DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the agent's state. Default: $XDG_STATE_HOME/rainbow or ~/.local/state/rainbow.",
)
@click.option(
    "--register",
    is_flag=True,
    help="Register the cluster from --source if it is not registered, and keep its graph and state up to date.",
)
@click.option(
    "--source",
    help="Source of the cluster description: slurm, slurm-topology (with its switches), gridengine, flux-r, hwloc or "
    "local. "
    "Default: chosen by the executor.",
)
@click.option(
    "--registration-secret",
    envvar="RAINBOW_REGISTRATION_SECRET",
    help="Registration secret; needed to register a new cluster.",
)
@click.option(
    "--registration-secret-file",
    type=FILE,
    envvar="RAINBOW_REGISTRATION_SECRET_FILE",
    help="A file with it; /dev/fd/N is a descriptor.",
)
@click.option(
    "--policy", help="Scheduling policy for a newly registered cluster. Default: the server's default policy."
)
@click.option("--report-load", is_flag=True, help="Report this machine's load for every worker the agent serves.")
@click.option(
    "--processes-per-core",
    type=click.IntRange(min=0),
    default=PROCESSES,
    show_default=True,
    help="Most processes of a task for each core it holds, also where the server allows more; 0 is no limit.",
)
@click.option(
    "--on-lost-server",
    type=click.Choice(["stop", "keep"]),
    help="What becomes of tasks when the server has not answered for a lease [default: stop; with slurm and "
    "gridengine keep].",
)
@click.option(
    "--isolate",
    type=click.Choice(["auto", "none"]),
    default="auto",
    show_default=True,
    help="Give each task of the executor local a space of processes of its own, where the system allows it.",
)
@click.option("--quiet", is_flag=True, help="Do not print a line for each finished task.")
@with_secret
def agent(
    client: Client,
    action: str | None,
    cluster: str | None,
    executor: str,
    mode: str | None,
    partition: str,
    reservation: str,
    identity: str | None,
    users: Path | None,
    max_tasks: int | None,
    workers: tuple[str, ...],
    pass_env: tuple[str, ...],
    state_dir: Path | None,
    register: bool,
    source: str | None,
    registration_secret: str | None,
    registration_secret_file: Path | None,
    policy: str | None,
    report_load: bool,
    processes_per_core: int,
    on_lost_server: str | None,
    isolate: str,
    quiet: bool,
) -> None:
    """Run the tasks of a cluster and report their results.

    Tasks run as the user that runs the agent, see a few of its environment variables (PATH, HOME, LANG, ...)
    and never its secret. SIGTERM or Ctrl-C stops the tasks; the server gives them to the queue again. Killed and
    started again it continues with what still runs. `rainbow agent doctor` says what of this the machine allows, and
    with --executor slurm or gridengine whether its site, accounts and helper work; if one does not, it exits with 1.
    """
    if action == "doctor":
        click.get_current_context().exit(doctor(executor, identity or "self", users, state_dir or _state_home()))
    cluster = _named(cluster)
    registration_secret = _forgotten(registration_secret or next(iter(lines(registration_secret_file)), None))
    part, words, workers = _part(mode, partition, reservation, workers)
    policy = policy or ("delegate" if _kind(executor) in SITES and mode != OWNED else None)
    say, chosen = _speaker(quiet), _chosen(executor, words, isolate, identity, users)
    look = partial(_survey, source or SOURCES.get(executor, SOURCES.get(_kind(executor), "local")))
    if register:
        client = _once_up(partial(enrolled, client, cluster, look, registration_secret, policy, say), say)
    folder, _ = take_folder(state_dir or _state_home(), _called(client, cluster, executor))
    with faults_named(_without_secrets(folder)):
        working = Agent(
            client,
            cluster,
            runs_in := _opened(chosen, allowed(os.environ, pass_env), folder, say),
            Journal(folder),
            max_tasks=max_tasks or (HANDED_OVER if _kind(executor) in SITES else MAX_TASKS),
            workers=workers or None,
            say=say,
            measure=_load if report_load else None,
            on_lost_server=on_lost_server or ("keep" if _kind(executor) in SITES else "stop"),
            processes_per_core=processes_per_core,
        )
        _end_by_signal(working)  # before it says that it works: who reads that may end it
        _greet(say, f"agent {working.id} started for cluster {cluster}", _warning(chosen, identity, users))
        see = _of_part(working, part, workers)
        _work(working, cluster, _watch(client, cluster, partial(look, runs_in), see, say) if register else None)


# surveys read graphs: an agent that makes none starts in half the time without them


def _without_secrets(folder: Path) -> Path:
    """Return the folder of an agent, whose tasks with walls around them do not see the files of its secrets."""
    options = click.get_current_context().params
    keep_private(folder, filter(None, (options["secret_file"], options["registration_secret_file"])))
    return folder


def _survey(source: str, executor: Executor | None = None) -> Survey:
    from rainbow.agent.cluster_survey import survey

    return survey(source, executor.waits() if isinstance(executor, Checks) else {})


def _part(
    mode: str | None, partition: str, reservation: str, workers: tuple[str, ...]
) -> tuple[Part, str | None, tuple[str, ...]]:
    """Return the part of a Slurm that is the cluster's own, the mode with it, and the workers that are served."""
    part = Part(partition, reservation)
    if part.options and mode != OWNED:
        raise click.UsageError(f"--partition and --reservation are for --mode {OWNED}")
    words = mode and ";".join([mode, *(f"{name}={value}" for name, value in part.options.items())])
    return part, words, workers or _nodes_of(part)


def _nodes_of(part: Part) -> tuple[str, ...]:
    """Return the nodes of a part of a Slurm; none: all are the cluster's."""
    if not part.options:
        return ()
    request = part.nodes()
    if result := request.read(Commands().ask(*request.command)):
        return tuple(result)
    raise RequestError(f"this Slurm has no nodes in {' and '.join(part.options.values())}")


def _of_part(working: Agent, part: Part, nodes: Sequence[str]) -> Callable[[tuple[str, ...]], None]:
    """Return what gets the workers that are up: those of the part alone, where the cluster is a part."""
    if not part.options:
        return working.speak_for
    return lambda up: working.speak_for([name for name in up if name in nodes])


def _load() -> dict[str, float]:
    from rainbow.agent.cluster_survey import load

    return load()


def _watch(*inputs: Any) -> ClusterWatch:
    from rainbow.agent.cluster_survey import ClusterWatch

    return ClusterWatch(*inputs)


def _forgotten(secret: str | None) -> str | None:
    """Return the registration secret, and take it and the cluster's from the environment."""
    process_secrets.forget(secret, click.get_current_context().params.get("secret"))
    return secret


def _named(cluster: str | None) -> str:
    if not cluster:
        raise click.UsageError("missing option --cluster: the cluster to work for")
    return cluster


def _greet(say: Callable[[str], None], *lines: str) -> None:
    for line in filter(None, lines):
        say(line)


def _warning(chosen: str, identity: str | None, users: Path | None) -> str:
    """Return what an operator should know of whose tasks run, and of what they see of each other; empty: nothing."""
    if chosen == APART and (why := isolation.allowed()):
        open_to = "they see each other's processes and the agent's secret file"
        return f"tasks are not walled off: {why}; {open_to}: run each user's agent as its own user"
    return Identity(identity or "self", users).warning if _kind(chosen) in SITES else ""


def _chosen(executor: str, mode: str | None, isolate: str, identity: str | None, users: Path | None) -> str:
    """Return the executor to open, with what follows its colon."""
    for option, value in (("mode", mode), ("identity", identity), ("users", users)):
        if value and (executor != SITE if option == "mode" else _kind(executor) not in SITES):
            raise click.UsageError(f"--{option} is for --executor {SITE}, got --executor {executor}")
    if _kind(executor) == "gridengine":
        pe = executor.partition(":")[2]
        return ",".join([f"gridengine:{pe}", identity or "self", *([str(users.resolve())] if users else [])])
    if executor == SITE:
        return ",".join([f"{SITE}:{mode or SHARED}", identity or "self", *([str(users.resolve())] if users else [])])
    return APART if executor == "local" and isolate == "auto" else executor


def _kind(executor: str) -> str:
    return executor.partition(":")[0]


def _end_by_signal(working: Agent) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: working.stop())


def _work(working: Agent, cluster: str, watch: ClusterWatch | None) -> None:
    """Work until a signal comes; keep the server's picture of the cluster true meanwhile, if asked to."""
    if watch:
        watch.start()
    try:
        working.run()
    except Problem as problem:
        raise _in_plain_words(problem, cluster) from None
    finally:
        if watch:
            watch.stop()


def _opened(chosen: str, environment: Mapping[str, str], folder: Path, say: Callable[[str], None]) -> Executor:
    """Open an executor; if it has a helper that does not work, jobs wait until it does."""
    executor, pause = open_executor(chosen, environment, folder), FIRST_PAUSE
    while isinstance(executor, Helped) and (why := executor.trouble()):
        say(f"{why}; no job is taken until it works, trying again in {pause:g} s")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return executor


def _in_plain_words(problem: Problem, cluster: str) -> Problem:
    if problem.status not in NOT_OURS or LACKING in click.get_current_context().meta:
        return problem
    said = (
        f"the secret for cluster {cluster} was rejected: it is wrong, revoked or rotated; ask the cluster's "
        "owner for the current secret"
    )
    return Problem(problem.status, {"code": problem.code, "title": problem.title, "detail": said})


def _state_home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rainbow"


def _called(client: Client, cluster: str, executor: str) -> str:
    """Name the folder: one for every server, cluster and executor."""
    which = sha256("\n".join([client.url, cluster, executor]).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{re.sub('[^A-Za-z0-9._-]', '_', cluster)[:40]}-{which}"


def _speaker(quiet: bool) -> Callable[[str], None]:
    """Return what prints a line; a log without room must not end an agent."""
    keep_working_without_log()
    return partial(_say, quiet)


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        click.echo(f"rainbow agent: {printer.one_line(text)}", err=True)
        sys.stderr.flush()


def _once_up(do: Callable[[], Client], say: Callable[[str], None]) -> Client:
    """Do something once the server is there: at a site's start an agent may be up first."""
    pause = FIRST_PAUSE
    while True:
        try:
            return do()
        except RainbowError as fault:
            if not passes(fault):
                raise
            say(f"{fault}; trying again in {pause:g} s")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


UNKNOWN = frozenset({401, 404})  # the secret is of another server, or of a cluster that was deleted


def enrolled(
    client: Client,
    cluster: str,
    look: Callable[[], Survey],
    secret: str | None,
    policy: str | None,
    say: Callable[[str], None],
) -> Client:
    """Return a client with the cluster's secret; the cluster is registered unless the client has it already."""
    if client.has_credentials and _is_ours(client, cluster, bool(secret)):
        return client
    if not secret:
        raise RequestError(f"cluster {cluster} is not registered; pass --registration-secret to register it")
    file = Path(click.get_current_context().params["credentials"])
    session.read(file)  # a file that cannot be added to is better known before than after
    result = look()
    with Client(client.url, secret) as registering:
        made = registering.register_cluster(
            cluster, result.document, state=result.state, policy={"name": policy} if policy else None
        )
    session.save(file, client.url, cluster, made["token"], made["secret"])
    counted = ", ".join(f"{size} {kind}" for kind, size in printer.totals(made).items() if kind != "cluster")
    say(f"registered cluster {cluster} ({counted}); token and secret saved in {file}")
    ours = Client(client.url, made["secret"])
    click.get_current_context().call_on_close(ours.close)
    return ours


def _is_ours(client: Client, cluster: str, may_register: bool) -> bool:
    try:
        client.cluster(cluster)
    except Problem as problem:
        if may_register and problem.status in UNKNOWN:
            return False
        raise
    return True
