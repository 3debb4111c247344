"""The credentials file: where the server is, and the tokens and secrets of the clusters registered from here.

    {"url": "http://127.0.0.1:8080", "clusters": {"willow": {"token": "rbt_...", "secret": "rbs_..."}}}

Only its owner may read it. `cluster register --save` writes it, `cluster delete` and `token revoke` take out what
ended; every other command reads it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rainbow.errors import ConfigError

DEFAULT = Path("~/.config/rainbow/credentials.json")


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
        clusters = {
            str(name): {**({"token": str(one["token"])} if "token" in one else {}), "secret": str(one["secret"])}
            for name, one in document.get("clusters", {}).items()
        }
        return Saved(str(document.get("url", "")), clusters)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a credentials file: {error}") from error


def save(path: Path, url: str, name: str, token: str, secret: str) -> None:
    """Add a cluster's credentials; the file is whole at every moment, and for its owner alone."""
    _write(path, Saved(url, {**read(path).clusters, name: {"token": token, "secret": secret}}))


def forget_cluster(path: Path, name: str) -> bool:
    """Take a cluster's credentials out; tell whether there were any."""
    saved = read(path)
    if name in saved.clusters:
        _write(path, Saved(saved.url, {other: one for other, one in saved.clusters.items() if other != name}))
    return name in saved.clusters


def forget_tokens(path: Path, ended: Collection[str]) -> None:
    """Take tokens out; the secrets beside them stay."""
    saved = read(path)
    left = {
        name: {kind: one[kind] for kind in one if kind != "token" or one[kind] not in ended}
        for name, one in saved.clusters.items()
    }
    _write(path, Saved(saved.url, left))


def _write(path: Path, saved: Saved) -> None:
    path = path.expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".credentials-")  # made with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"url": saved.url, "clusters": saved.clusters}, file, indent=2)
        file.write("\n")
    Path(draft).replace(path)
