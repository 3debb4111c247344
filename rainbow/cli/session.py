"""The server's URL and the credentials of a command, from options, environment and credentials file.

    {"url": "http://127.0.0.1:8080", "clusters": {"willow": {"token": "rbt_...", "secret": "rbs_..."}}}

Only its owner may read the file. `cluster register --save` writes it, `cluster delete` and `token revoke` remove
entries; every other command reads it.
"""

from __future__ import annotations

import functools
import getpass
import json
import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from rainbow.cli.exit_codes import LACKING
from rainbow.cli.output.progress import Upload
from rainbow.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from rainbow.client import Client

FORM = '{"url": URL, "clusters": {NAME: {"token": TOKEN, "secret": SECRET}}}'
USED = "rainbow.credentials"  # where a command's context keeps its credentials file
DEFAULT_URL = "http://127.0.0.1:8080"

Command = TypeVar("Command", bound=Callable[..., Any])
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


DEFAULT = Path("~/.config/rainbow/credentials.json")


def _connection(*names: str, **more: Any) -> Callable[[Any], Any]:
    """Return an option that every help would repeat: `rainbow help connection` has them all."""
    return click.option(*names, hidden=True, **more)


_server = [
    _connection(
        "--url",
        envvar="RAINBOW_URL",
        help=f"Server URL. Default: the URL in the credentials file, else {DEFAULT_URL}.",
    ),
    _connection(
        "--credentials",
        envvar="RAINBOW_CREDENTIALS",
        type=click.Path(dir_okay=False, path_type=Path),
        default=DEFAULT,
        show_default=True,
        help="Credentials file written by `cluster register --save`.",
    ),
]
_token = [
    _connection("--token", multiple=True, envvar="RAINBOW_TOKEN", help="Submit token. Repeatable."),
    _connection(
        "--token-file", type=FILE, envvar="RAINBOW_TOKEN_FILE", help="File with submit tokens, one per line."
    ),
]
_secret = [
    _connection(
        "--secret", envvar="RAINBOW_SECRET", help="Cluster secret. Visible in process listings; prefer --secret-file."
    ),
    _connection(
        "--secret-file",
        type=FILE,
        envvar="RAINBOW_SECRET_FILE",
        help="File that contains the cluster secret; /dev/fd/N is a descriptor.",
    ),
]
_registration = [
    _connection(
        "--secret",
        envvar=["RAINBOW_REGISTRATION_SECRET", "RAINBOW_SECRET"],
        help="Registration secret. Visible in process listings; prefer --secret-file.",
    ),
    _connection(
        "--secret-file",
        type=FILE,
        envvar=["RAINBOW_REGISTRATION_SECRET_FILE", "RAINBOW_SECRET_FILE"],
        help="File that contains the registration secret.",
    ),
]


def with_tokens(command: Callable[..., Any], *, and_secret: bool = False, alone_by: str = "") -> Callable[..., Any]:
    """Give the command a `client` that asks with submit tokens; `and_secret`: with that of its `cluster`, too.

    None where the parameter `alone_by` is given: then no server is asked, and what would ask one is not imported.
    """

    @functools.wraps(command)
    def run(url: str | None, credentials: Path, token: Sequence[str], token_file: Path | None, **rest: Any) -> Any:
        if rest.get(alone_by):
            return command(None, **rest)
        saved = _saved(credentials)
        words = [word for one in token for word in one.replace(",", " ").split()]
        words = words or lines(token_file)
        secret = [] if words else _environment("RAINBOW_SECRET")  # it may look at what a token may
        tokens = words or list(filter(_is_admin, secret)) or saved.tokens or secret
        own = saved.secret(rest["cluster"]) if and_secret and not words else None
        return command(_client(url or saved.url, [*tokens, *([own] if own else [])]), **rest)

    return _add(run, [*_server, *_token])


def with_secret(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command a `client` that asks with the secret of the cluster in its parameter `cluster`."""

    @functools.wraps(command)
    def run(
        url: str | None, credentials: Path, secret: str | None, secret_file: Path | None, cluster: str, **rest: Any
    ) -> Any:
        saved = _saved(credentials)
        result = secret or next(iter(lines(secret_file)), None) or saved.secret(cluster) or _admin()
        _note_lack(result, f"the secret of cluster {cluster}")
        return command(_client(url or saved.url, [result] if result else []), cluster=cluster, **rest)

    return _add(run, [*_server, *_secret])


def of_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let CLUSTER be an argument, or an option as elsewhere."""

    @click.argument("cluster", required=False)
    @click.option("--cluster", "named", metavar="CLUSTER", help="Same as the CLUSTER argument.")
    @functools.wraps(command)
    def run(cluster: str | None, named: str | None, **rest: Any) -> Any:
        if not (cluster or named) or (cluster and named):
            raise click.UsageError("missing CLUSTER: give it as an argument or with --cluster, not both")
        return command(cluster=cluster or named, **rest)

    return run


def with_any_secret(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command a `client` that asks with all the secrets there are, or the administrator's token."""

    @functools.wraps(command)
    def run(url: str | None, credentials: Path, secret: str | None, secret_file: Path | None, **rest: Any) -> Any:
        saved = _saved(credentials)
        inputs = [secret] if secret else lines(secret_file)
        inputs = inputs or [word for word in [_admin()] if word] or saved.secrets
        return command(_client(url or saved.url, inputs), **rest)

    return _add(run, [*_server, *_secret])


def with_registration(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command a `client` that asks with the registration secret, and the server's `url`."""

    @functools.wraps(command)
    def run(url: str | None, credentials: Path, secret: str | None, secret_file: Path | None, **rest: Any) -> Any:
        saved = _saved(credentials)
        url = url or saved.url or DEFAULT_URL
        result = secret or next(iter(lines(secret_file)), None) or _admin()
        _note_lack(result, "the registration secret")
        return command(_client(url, [result] if result else []), url=url, **rest)

    return _add(run, [*_server, *_registration])


def with_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command the server's `url` and where the `credentials` file is; nothing is asked."""

    @functools.wraps(command)
    def run(url: str | None, credentials: Path, **rest: Any) -> Any:
        there = url or _saved(credentials).url or DEFAULT_URL
        return command(url=there, credentials=credentials.expanduser().absolute(), **rest)

    return _add(run, _server)


def _note_lack(text: str | None, what: str) -> None:
    """Note what a command asks without, for the message if the server refuses it."""
    if not text:
        click.get_current_context().meta[LACKING] = what


def _environment(name: str) -> list[str]:
    """Return the credentials of a variable, or of the file that it names with _FILE."""
    file = os.environ.get(f"{name}_FILE")
    return os.environ.get(name, "").replace(",", " ").split() or lines(Path(file) if file else None)


def _is_admin(word: str) -> bool:
    return word.startswith("rba_")


def _admin() -> str | None:
    """Return the administrator's token, if the environment holds it for the commands that take tokens."""
    return next(filter(_is_admin, _environment("RAINBOW_TOKEN")), None)


def _add(command: Callable[..., Any], options: Sequence[Callable[[Any], Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def credentials_used() -> Path:
    """Return the credentials file of the command that runs."""
    path: Path = click.get_current_context().meta[USED]
    return path


def first_time(what: str) -> bool:
    """Return whether something is to be said that is said once; without a folder to note it in, each time."""
    mark = credentials_used().expanduser().parent / f"told-{what}"
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        with mark.open("x"):
            return True
    except FileExistsError:
        return False
    except OSError:
        return True


def login() -> str | None:
    """Return the name of the account that calls, None if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _saved(path: Path) -> Saved:
    """Read the credentials; a file that was named is there, but for an agent that is about to write it."""
    context = click.get_current_context()
    context.meta[USED] = path
    named = context.get_parameter_source("credentials") is ParameterSource.COMMANDLINE
    if named and not context.params.get("register") and not path.expanduser().exists():
        raise click.BadParameter(f"file {str(path)!r} not found", param_hint="--credentials")
    return read(path)


def _client(url: str, tokens: Sequence[str]) -> Client:
    from rainbow.client import Client  # `serve` and the like ask no server: they do not wait for this
    from rainbow.client.transport import UrlError

    upload = Upload()
    try:
        client = Client(url or DEFAULT_URL, tokens, sent=upload, login=login())
    except UrlError as fault:
        raise click.UsageError(fault.message) from None
    for close in (client.close, upload.close, functools.partial(_warn_of_away, client)):
        click.get_current_context().call_on_close(close)
    return client


def _warn_of_away(client: Client) -> None:
    """Say that a list was not whole, where its rows cannot."""
    for why in client.away.values():
        click.echo(f"rainbow: warning: {why}; what is there is not shown", err=True)


def lines(path: Path | None) -> list[str]:
    """Return the words of a file of credentials, which may be a descriptor (/dev/fd/3); none without a file."""
    if path is None:
        return []
    try:
        return path.read_text(encoding="utf-8").split()
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not a text file") from error


@dataclass(frozen=True, slots=True)
class Saved:
    """What the file says. `clusters` is {name: {"token"?, "secret"}}: a token that was revoked is not there."""

    url: str = ""
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def tokens(self) -> list[str]:
        """The submit tokens of all clusters."""
        return [one["token"] for one in self.clusters.values() if "token" in one]

    @property
    def secrets(self) -> list[str]:
        """The secrets of all clusters."""
        return [one["secret"] for one in self.clusters.values()]

    def secret(self, cluster: str) -> str | None:
        """The secret of a cluster."""
        return self.clusters[cluster]["secret"] if cluster in self.clusters else None


def read(path: Path) -> Saved:
    """Read the file; without one, nothing is saved. ConfigError if it is no such file."""
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except FileNotFoundError:
        return Saved()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a credentials file: {error}") from error
    clusters = document.get("clusters", {}) if isinstance(document, dict) else None
    if not isinstance(clusters, dict) or not all(map(_is_saved, clusters.values())):
        raise ConfigError(f"{path} is not a credentials file: expected {FORM}")
    saved = {
        name: {kind: str(one[kind]) for kind in ("token", "secret") if kind in one} for name, one in clusters.items()
    }
    return Saved(str(document.get("url", "")), saved)


def _is_saved(one: Any) -> bool:
    return isinstance(one, dict) and "secret" in one


def save(path: Path, url: str, name: str, token: str, secret: str) -> None:
    """Add a cluster's credentials; the file is whole at every moment, and for its owner alone."""
    _write(path, Saved(url, {**read(path).clusters, name: {"token": token, "secret": secret}}))


def forget_cluster(path: Path, name: str) -> bool:
    """Take a cluster's credentials out; return whether there were any."""
    saved = read(path)
    if name in saved.clusters:
        _write(path, Saved(saved.url, {other: one for other, one in saved.clusters.items() if other != name}))
    return name in saved.clusters


def forget_tokens(path: Path, ended: Collection[str]) -> None:
    """Take tokens out; the secrets beside them stay."""
    saved = read(path)
    remaining = {
        name: {kind: one[kind] for kind in one if kind != "token" or one[kind] not in ended}
        for name, one in saved.clusters.items()
    }
    _write(path, Saved(saved.url, remaining))


def renew(path: Path, new: Mapping[str, str]) -> None:
    """Put new tokens and secrets in the place of old ones."""
    saved = read(path)
    renewed = {name: {kind: new.get(one[kind], one[kind]) for kind in one} for name, one in saved.clusters.items()}
    _write(path, Saved(saved.url, renewed))


def _write(path: Path, saved: Saved) -> None:
    path = path.expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".credentials-")  # made with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"url": saved.url, "clusters": saved.clusters}, file, indent=2)
        file.write("\n")
    Path(draft).replace(path)
