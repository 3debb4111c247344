"""`rainbow doctor`: is everything there that a server needs, and does it work?"""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rainbow.cli import printing
from rainbow.cli.database import store_options, url_of
from rainbow.cli.exits import Exit
from rainbow.errors import RainbowError
from rainbow.scheduling.english import some

if TYPE_CHECKING:
    from rainbow.service.settings import Settings

ROOM = 1 << 30  # bytes that should be free beside a store
Found = tuple[str, str, str]  # what, ok | warning | fault, words


@click.command()
@store_options
@printing.output_option
def doctor(database: str | None, config: Path | None, output: str) -> None:
    """Check configuration, store, credentials, certificates and drivers; exit 1 if a server would not work."""
    from rainbow.service.config import read_config
    from rainbow.service.settings import Settings

    found: list[Found] = []
    settings = Settings()
    try:
        settings = read_config(config) if config else settings
        found += [("configuration", "warning", words) for words in settings.warnings]
        found.append(("configuration", "ok", str(config or "none: the defaults")))
    except RainbowError as fault:
        found.append(("configuration", "fault", str(fault)))
    url = url_of(database, config)
    for check in (_store, _privacy, _disk, _secrets, _certificates, _drivers):
        found += check(url, settings)
    rows = [{"check": what, "result": result, "detail": words} for what, result, words in found]
    printing.show(output, rows, lambda console: console.print(printing.table(["CHECK", "RESULT", "DETAIL"], found)))
    bad = any(result == "fault" for _, result, _ in found)
    click.get_current_context().exit(Exit.ERROR if bad else Exit.OK)


def _guarded(what: str, check: Callable[[], str]) -> Found:
    try:
        return (what, "ok", check())
    except (RainbowError, OSError) as fault:
        return (what, "fault", printing.one_line(str(fault)))


def _store(url: str, _: Settings) -> Iterator[Found]:
    from rainbow.store import clusters, open_store

    def check() -> str:
        store = open_store(url)
        try:
            with store.write() as connection:
                return (
                    f"{store.engine.dialect.name}, writable, {some(len(clusters.revisions(connection)), 'cluster')}"
                )
        finally:
            store.close()

    if (file := _file_of(url)) and not file.exists():
        yield _none_yet(file)
    else:
        yield _guarded("store", check)


def _none_yet(file: Path) -> Found:
    """Say whether a server could make the store: looking for it makes none."""
    folder = next(folder for folder in file.absolute().parents if folder.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        return ("store", "fault", f"there is no {file}, and {folder} may not be written")
    return ("store", "warning", f"there is no {file} yet: a server makes it when it starts")


def _privacy(url: str, _: Settings) -> Iterator[Found]:
    """Warn of files of the store that others than their owner may read: jobspecs and outputs are in them."""
    file = _file_of(url)
    for path in [Path(f"{file}{kind}") for kind in ("", "-wal", "-shm")] if file else []:
        if path.exists() and path.stat().st_mode & 0o077:
            yield ("privacy", "warning", f"{path}: others may read jobspecs and outputs in it: chmod 600")


def _file_of(url: str) -> Path | None:
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") or "://" not in url else None


def _disk(url: str, _: Settings) -> Iterator[Found]:
    if (file := _file_of(url)) and file.exists():
        free = shutil.disk_usage(file.parent).free
        yield ("disk", "ok" if free > ROOM else "warning", f"{free >> 20:,} MiB are free beside {file}")


def _secrets(url: str, _: Settings) -> Iterator[Found]:
    folder = (_file_of(url) or Path("x")).absolute().parent
    for path in sorted(folder.glob("rainbow-*.secret")):
        private = not path.stat().st_mode & 0o077
        words = "for its owner alone" if private else "others may read it: chmod 600"
        yield ("credentials", "ok" if private else "fault", f"{path}: {words}")


def _certificates(_: str, settings: Settings) -> Iterator[Found]:
    server = settings.server
    if not server.certificate:
        yield ("tls", "warning", "no certificate: listen on loopback only, or behind a proxy that speaks TLS")
        return

    def check() -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(server.certificate), server.key)
        if server.client_ca:
            context.load_verify_locations(server.client_ca)
        return f"{server.certificate} fits its key"

    yield _guarded("tls", check)


def _drivers(url: str, _settings: Settings) -> Iterator[Found]:
    if url.startswith("postgres"):
        there = find_spec("psycopg") is not None
        yield ("driver", "ok" if there else "fault", f"psycopg is {'' if there else 'not '}installed")
