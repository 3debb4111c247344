"""`rainbow serve`, `rainbow db`, `rainbow doctor` and `rainbow config`."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import asdict
from errno import EACCES, EADDRINUSE
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rainbow.cli.exit_codes import BY_STATUS, Exit
from rainbow.cli.input.files import naming
from rainbow.cli.output import printer
from rainbow.cli.session import with_tokens
from rainbow.errors import Conflict, Forbidden, RainbowError
from rainbow.text import some

if TYPE_CHECKING:
    from rainbow.client import Client
    from rainbow.service.core.settings import Settings


NEW_FILE = click.Path(dir_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def url_of(database: str | None, config: Path | None) -> str:
    """Return the URL of the store: as given, else the file beside the configuration."""
    folder = config.parent if config else Path()
    return database or f"sqlite:///{(folder / 'rainbow.db').absolute()}"


def store_options(command: Any) -> Any:
    """Give a command the options that say where the store is."""
    for option in (
        click.option("--config", envvar="RAINBOW_CONFIG", type=FILE, help="The configuration file (YAML)."),
        click.option(
            "--database",
            envvar="RAINBOW_DATABASE",
            help="Database URL. Default: rainbow.db in the directory of the configuration file.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def db() -> None:
    """Manage the database: upgrade, backup, restore."""


@db.command()
@store_options
def upgrade(database: str | None, config: Path | None) -> None:
    """Upgrade the database schema. The server also does this on startup."""
    from rainbow.store import open_store  # the database is the server's alone

    open_store(url_of(database, config), existing=True).close()
    click.echo("database schema is up to date")


@db.command()
@click.argument("file", type=NEW_FILE)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@store_options
def backup(file: Path, force: bool, database: str | None, config: Path | None) -> None:
    """Back up the database, SQLite or PostgreSQL, to FILE (SQLite). Safe while a server, also an older one, works."""
    from rainbow.store import open_store
    from rainbow.store.backup import backup as write

    if file.exists() and not force:
        raise Conflict(f"{file} already exists; use --force to overwrite it")
    store = open_store(url_of(database, config), existing=True, migrate=False)
    try:
        write(store, file)
    finally:
        store.close()
    click.echo(f"wrote {file} ({file.stat().st_size:,} bytes)")


@db.command()
@click.argument("file", type=FILE)
@store_options
def restore(file: Path, database: str | None, config: Path | None) -> None:
    """Restore a backup into an empty database, SQLite or PostgreSQL."""
    from rainbow.store import file_of
    from rainbow.store.backup import restore as read

    url = url_of(database, config)
    read(file, url)
    click.echo(f"restored from {file}{f' into {into}' if (into := file_of(url)) else ''}")


DISTRIBUTION = "rainbow-hpc"  # of this package on PyPI
ROOM = 1 << 30  # bytes that should be free beside a store
Finding = tuple[str, str, str]  # what, ok | warning | fault, words


@click.command()
@store_options
@printer.output_option
def doctor(database: str | None, config: Path | None, output: str) -> None:
    """Check configuration, database, credentials, certificates and drivers. Exits 1 if the server could not run."""
    from rainbow.service.core.settings import Settings, read_config

    results: list[Finding] = []
    settings = Settings()
    try:
        settings = read_config(config) if config else settings
        results += [("configuration", "warning", words) for words in settings.warnings]
        results.append(("configuration", "ok", str(config or "no configuration file; using defaults")))
    except RainbowError as fault:
        results.append(("configuration", "fault", str(fault)))
    url = url_of(database, config)
    for check in (_packages, _store, _privacy, _disk, _secrets, _unverified, _certificates, _drivers):
        results += check(url, settings)
    rows = [{"check": what, "result": result, "detail": words} for what, result, words in results]
    printer.show(output, rows, printer.table(["CHECK", "RESULT", "DETAIL"], results))
    bad = any(result == "fault" for _, result, _ in results)
    click.get_current_context().exit(Exit.ERROR if bad else Exit.OK)


def _guarded(what: str, check: Callable[[], str]) -> Finding:
    try:
        return (what, "ok", check())
    except (RainbowError, OSError) as fault:
        return (what, "fault", printer.one_line(str(fault)))


def _packages(_url: str, _: Settings) -> Iterator[Finding]:
    """Name distributions that install a package `rainbow` over ours."""
    from importlib.metadata import packages_distributions

    if others := sorted({*packages_distributions().get("rainbow", [])} - {DISTRIBUTION}):
        names = " and ".join(others)
        yield ("package", "warning", f"{names} installs a package named rainbow, too; run: pip uninstall {names}")


def _store(url: str, settings: Settings) -> Iterator[Finding]:
    from rainbow.store import clusters, file_of, open_store, postgresql, sqlite
    from rainbow.store.migrations.upgrade import is_current

    file = file_of(url)

    def check() -> str:
        if file is not None:
            sqlite.refuse_emptied(file)
            sqlite.check_file(file)
        store = open_store(url, existing=True, migrate=False)
        try:
            current, text = is_current(store.engine), "its tables are upgraded when the server starts"
            with store.write() as connection:
                text = some(len(clusters.revisions(connection)), "cluster") if current else text
            return f"{store.engine.dialect.name}, writable, {text}"
        finally:
            store.close()

    def standbys() -> list[str]:
        store = open_store(url, existing=True, migrate=False)
        try:
            with store.look() as connection:
                return postgresql.trouble_of(connection, settings.lease)
        finally:
            store.close()

    if file is None:
        try:
            yield from (("database", "warning", words) for words in standbys())
        except RainbowError as fault:
            yield ("database", "fault", printer.one_line(str(fault)))
            return
    if file is None or file.exists() or sqlite.has_held_clusters(file):
        yield _guarded("store", check)
    else:
        yield _none_yet(file)


def _none_yet(file: Path) -> Finding:
    """Say whether a server could make the store: looking for it makes none."""
    folder = next(folder for folder in file.absolute().parents if folder.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        return ("store", "fault", f"{file} does not exist and {folder} is not writable")
    return ("store", "warning", f"{file} does not exist yet; the server creates it on first start")


def _privacy(url: str, _: Settings) -> Iterator[Finding]:
    """Warn of files of the store that others than their owner may read: jobspecs and outputs are in them."""
    from rainbow.store import file_of

    file = file_of(url)
    for path in [Path(f"{file}{kind}") for kind in ("", "-wal", "-shm")] if file else []:
        if path.exists() and path.stat().st_mode & 0o077:
            yield (
                "privacy",
                "warning",
                (f"{path} is readable by other users and contains jobspecs and job output; run chmod 600 {path}"),
            )


def _disk(url: str, _: Settings) -> Iterator[Finding]:
    from rainbow.store import file_of

    if (file := file_of(url)) and file.exists():
        free = shutil.disk_usage(file.parent).free
        yield ("disk", "ok" if free > ROOM else "warning", f"{free >> 20:,} MiB free on the file system of {file}")


def _secrets(url: str, _: Settings) -> Iterator[Finding]:
    from rainbow.store import file_of

    folder = (file_of(url) or Path("x")).absolute().parent
    for path in sorted(folder.glob("rainbow-*.secret")):
        private = not path.stat().st_mode & 0o077
        words = "readable only by its owner" if private else "readable by other users; run chmod 600"
        yield ("credentials", "ok" if private else "fault", f"{path}: {words}")


def _unverified(url: str, _: Settings) -> Iterator[Finding]:
    """Name the starts that were not made because what was placed did not meet the request."""
    from rainbow.service.scheduler.step import refusal_reports
    from rainbow.store import file_of

    paths = refusal_reports((file_of(url) or Path("x")).absolute().parent)
    if paths:
        words = f"{some(len(paths), 'start')} did not meet the request: {paths[0]}{' and others' * (len(paths) > 1)}"
        yield ("unverified", "warning", words)


def _certificates(_: str, settings: Settings) -> Iterator[Finding]:
    server = settings.server
    if not server.certificate:
        yield (
            "tls",
            "warning",
            ("TLS is not configured: listen on loopback only, or put the server behind a TLS proxy"),
        )
        return

    def check() -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(server.certificate), server.key)
        if server.client_ca:
            context.load_verify_locations(server.client_ca)
        return f"{server.certificate} matches its private key"

    yield _guarded("tls", check)


def _drivers(url: str, _settings: Settings) -> Iterator[Finding]:
    if url.startswith("postgres"):
        there = find_spec("psycopg") is not None
        yield ("driver", "ok" if there else "fault", f"psycopg is {'' if there else 'not '}installed")


PORT = 8080


@click.command()
@click.option("--host", envvar="RAINBOW_HOST", default="127.0.0.1", show_default=True)
@click.option("--port", envvar="RAINBOW_PORT", type=click.IntRange(1, 65535), default=PORT, show_default=True)
@click.option(
    "--database",
    envvar="RAINBOW_DATABASE",
    help="Database URL. Default: rainbow.db in the directory of the configuration file.",
)
@click.option(
    "--config",
    envvar="RAINBOW_CONFIG",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The configuration file (YAML).",
)
@click.option(
    "--scheduler/--no-scheduler",
    " /--no-loop",
    default=True,
    show_default=True,
    help="Run the scheduling loop in this process. With --no-loop, use `rainbow scheduler step` to run single "
    "cycles.",
)
def serve(host: str, port: int, database: str | None, config: Path | None, scheduler: bool) -> None:
    """Run the server until interrupted."""
    _check_address(host, port)
    from rainbow.api.server import serve as serve_api  # flask and the database are the server's alone

    url = url_of(database, config)
    serve_api(host, port, url, str(config) if config else None, scheduler=scheduler)


@click.command()
@click.option("--host", envvar="RAINBOW_HOST", default="127.0.0.1", show_default=True)
@click.option("--port", envvar="RAINBOW_PORT", type=click.IntRange(1, 65535), default=PORT, show_default=True)
@click.option("--shard", "shards", multiple=True, required=True, metavar="URL", help="A server. Give all of them.")
@click.option("--config", envvar="RAINBOW_CONFIG", type=FILE, help="The configuration file: its limits and TLS.")
def route(host: str, port: int, shards: tuple[str, ...], config: Path | None) -> None:
    """Run a router: one address in front of several servers with clusters of their own.

    Any number may run; each is given the same URLs.
    """
    _check_address(host, port)
    from rainbow.federation.router import route as route_api

    route_api(host, port, shards, str(config) if config else None)


def _check_address(host: str, port: int) -> None:
    """Try the address, so that one that is taken is said in a line before anything is opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself does
            one.bind((host, port))
    except OSError as fault:
        todo = (
            "--port to choose another port"
            if fault.errno in (EADDRINUSE, EACCES)
            else "--host with an address of ours"
        )
        raise RainbowError(f"cannot listen on {host}:{port}: {fault.strerror}; use {todo}") from fault


# ── the configuration file ──


@click.group()
def config() -> None:
    """The server's configuration file: init, check, view, reload; what the server remembers: show."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@printer.output_option
def check(file: Path, output: str) -> None:
    """Check FILE for errors and for settings the server would ignore."""
    from rainbow.service.core.settings import read_config

    with naming(file):
        settings = _as_written(read_config(file))
    shown = {key: value for key, value in settings.items() if key not in ("secret", "admin", "warnings", "limits")}
    results = {**shown, "warnings": list(settings["warnings"])}
    for warning in results["warnings"]:
        click.echo(f"rainbow: warning: {printer.one_line(warning)}", err=True)
    printer.show(output, results, "ok")


def _as_written(settings: Settings) -> dict[str, Any]:
    """Return settings as the file writes them: `history` in days."""
    from rainbow.service.core.settings import DAY

    return {**asdict(settings), "history": settings.history / DAY}


@config.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=Path("rainbow.yaml"))
def init(file: Path) -> None:
    """Write a commented configuration FILE with every setting at its default. Never overwrites a file."""
    text = resources.files("rainbow.service").joinpath("rainbow.yaml").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise Conflict(f"{file} already exists; not overwritten") from None
    click.echo(f"wrote {file} with every setting at its default")


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@printer.output_option
def view(file: Path | None, output: str) -> None:
    """Show the effective settings of a server started with FILE. Secrets are hidden."""
    from rainbow.service.core.settings import Settings, read_config

    settings = _as_written(read_config(file) if file else Settings())
    hidden = {key: "set" if settings.pop(key) else "generated on first start" for key in ("secret", "admin")}
    settings.pop("warnings")
    rows = {**{key: value for key, value in settings.items() if not isinstance(value, dict)}, **hidden}
    for section in ("limits", "admission", "server"):
        rows |= {f"{section}.{key}": value for key, value in settings[section].items()}
    printer.show(output, {**settings, **hidden}, printer.facts(rows))


@config.command("show")
@click.option("--memory", is_flag=True, required=True, help="What the server remembers, and why each of it is true.")
@printer.output_option
@with_tokens
def show(client: Client, memory: bool, output: str) -> None:
    """Show what a running server remembers between two calls. Requires the admin token."""
    from rainbow.client import Problem

    try:
        rows = client.memory()
    except Problem as problem:
        if Exit.NOT_ALLOWED is not BY_STATUS.get(problem.status):
            raise
        raise Forbidden("config show: --memory needs the admin token") from problem
    titles = ("MEMORY", "KIND", "ENTRIES", "MOST", "HITS", "MISSES", "WHY IT IS TRUE")
    keys = ("name", "kind", "entries", "most", "hits", "misses", "why")
    printer.show(output, rows, printer.table(titles, [[row[key] for key in keys] for row in rows]))


@config.command()
@printer.output_option
@with_tokens
def reload(client: Client, output: str) -> None:
    """Make the server reload its configuration file now. If the file is invalid, nothing changes. Requires the admin
    token.
    """
    answer = client.reload_config()
    for warning in answer.pop("warnings"):
        click.echo(f"rainbow: warning: {printer.one_line(warning)}", err=True)
    printer.show(output, answer, printer.facts(answer))
