"""`rainbow` as a user calls it, in this process: a server, an agent, and the credentials of cluster oak."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rainbow.cli import main, session
from rainbow.cli.exit_codes import Exit
from rainbow.client import Client
from tests.conftest import REGISTRATION, grid
from tests.support.live import agent_of, rainbow_at

ROOT = Path(__file__).parents[2]


@dataclass
class Shell:
    """Runs `rainbow` in this process, with a folder of its own and the credentials of cluster oak."""

    folder: Path
    url: str
    token: str
    secret: str
    variables: dict[str, str]

    def __call__(self, *words: str | Path, stdin: str | None = None, **variables: str | None) -> Result:
        result = CliRunner().invoke(
            main, [str(word) for word in words], input=stdin, env={**self.variables, **variables}
        )
        assert "Traceback" not in result.output
        assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit), (
            result.exception
        )
        return result

    def code(self, *words: str | Path, **more: Any) -> Exit:
        return Exit(self(*words, **more).exit_code)

    def json(self, *words: str | Path, **more: Any) -> Any:
        result = self(*words, **{"RAINBOW_OUTPUT": "json", **more})
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def file(self, name: str, content: Any) -> Path:
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


def variables_of(url: str, saved: Path) -> dict[str, str]:
    nothing = [
        "RAINBOW_TOKEN",
        "RAINBOW_TOKEN_FILE",
        "RAINBOW_SECRET",
        "RAINBOW_SECRET_FILE",
        "RAINBOW_REGISTRATION_SECRET",
    ]
    options = {"RAINBOW_URL": url, "RAINBOW_CREDENTIALS": str(saved), "COLUMNS": "200", "NO_COLOR": "1"}
    return {**dict.fromkeys(nothing, ""), **options}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any, Path]]:
    folder = tmp_path_factory.mktemp("cli")
    with rainbow_at(folder) as url:
        with Client(url, REGISTRATION) as client:
            registration = client.register_cluster("oak", grid(2, 4), state={"price": 3})
        saved = folder / "credentials.json"
        session.save(saved, url, "oak", registration["token"], registration["secret"])
        with agent_of(url, "oak", registration["secret"]):
            yield url, registration, saved


@pytest.fixture
def shell(server: tuple[str, Any, Path], tmp_path: Path) -> Shell:
    url, answer, saved = server
    return Shell(tmp_path, url, answer["token"], answer["secret"], variables_of(url, saved))


HOSTILE = {
    "empty": b"",
    "bytes": bytes(range(256)) * 100,
    "deep": b"[" * 200_000,
    "nan": b'{"price": NaN}',
    "list": b"[]",
    "number": b"1",
    "bomb": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" + b"d: [*c, *c]\n" * 20,
    "control": b'{"\\u001b[31m": "\\ud800"}',
}
