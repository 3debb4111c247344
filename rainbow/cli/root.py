"""The command itself, and how it ends when something is wrong: one line on stderr, and an exit code."""

from __future__ import annotations

import os
from typing import Any

import click

from rainbow import __version__
from rainbow.cli import (
    agent,
    clusters,
    completion,
    config,
    database,
    doctor,
    helping,
    importing,
    jobs,
    policy,
    printing,
    receive,
    reserving,
    scheduler,
    serve,
    state,
    submit,
    subsystems,
    tokens,
    watching,
    workers,
)
from rainbow.cli.exits import Exit, exit_of
from rainbow.errors import RainbowError

EPILOG = """\b
Exit codes: 0 ok, 1 error, 2 usage, 3 no match, 4 not found, 5 not allowed,
6 conflict, 7 job failed, 75 server unavailable or busy.

Settings come from flags, then the environment (RAINBOW_URL, RAINBOW_TOKEN,
RAINBOW_TOKEN_FILE, RAINBOW_SECRET, RAINBOW_SECRET_FILE), then the credentials
file that `cluster register --save` writes (RAINBOW_CREDENTIALS).
`rainbow help TOPIC` explains these and more."""


class Root(click.Group):
    """Turns every fault into its line and exit code; a traceback is shown only if RAINBOW_DEBUG is set."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RainbowError as fault:
            _say(str(fault))
            ctx.exit(exit_of(fault))
        except BrokenPipeError:
            raise  # click ends quietly when whoever reads us has gone
        except OSError as fault:
            _say(f"{fault.filename}: {fault.strerror}" if fault.filename else str(fault))
            ctx.exit(Exit.ERROR)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as fault:
            if os.environ.get("RAINBOW_DEBUG"):
                raise
            first = next(iter(str(fault).splitlines()), "")
            _say(f"a fault of rainbow itself: {type(fault).__name__}: {first} (RAINBOW_DEBUG=1 shows where)")
            ctx.exit(Exit.ERROR)


def _say(text: str) -> None:
    click.echo(f"rainbow: {printing.one_line(text)}", err=True)


@click.group(cls=Root, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rainbow")
def main() -> None:
    """Which cluster should run this job, and when does each of its tasks start there?"""


@main.command()
def version() -> None:
    """Show the version."""
    click.echo(f"rainbow {__version__}")


clusters.cluster.add_command(importing.import_graph)
for _command in (
    serve.serve,
    agent.agent,
    receive.receive,
    receive.report,
    clusters.cluster,
    subsystems.subsystem,
    state.state,
    submit.submit,
    submit.match,
    jobs.jobs,
    jobs.job,
    workers.worker,
    reserving.reserve,
    scheduler.scheduler,
    config.config,
    policy.policy,
    database.db,
    doctor.doctor,
    tokens.token,
    watching.events,
    completion.completion,
    helping.show_help,
):
    main.add_command(_command)
