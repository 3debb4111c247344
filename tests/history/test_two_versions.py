"""Servers of two versions beside each other on one PostgreSQL, as an operator upgrades them one by one."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rainbow.client import Client
from rainbow.store.migrations.upgrade import newest
from tests.conftest import grid
from tests.history.places import ROOT
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_faults import Load, listed
from tests.scenarios.test_two_processes import Processes, register
from tests.support.ports import free_port
from tests.support.postgres import Postgres

TO_COME = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "{revision}", "{before}", None, None
def upgrade() -> None:
    op.add_column("jobs", sa.Column("to_come_{revision}", sa.Integer(), nullable=False, server_default="7"))
"""


class Version:
    """A copy of the package with one migration more, as a version to come has it."""

    def __init__(self, folder: Path, release: str, revision: str, before: str, compatible_from: str) -> None:
        self.folder = folder / release
        shutil.copytree(ROOT / "rainbow", self.folder / "rainbow", ignore=shutil.ignore_patterns("__pycache__"))
        versions = self.folder / "rainbow" / "store" / "migrations" / "versions"
        (versions / f"{revision}_to_come.py").write_text(TO_COME.format(revision=revision, before=before))
        self._replace(
            "store/migrations/upgrade.py", r'COMPATIBLE_FROM = "\d+"', f'COMPATIBLE_FROM = "{compatible_from}"'
        )
        self._replace("__init__.py", r'__version__ = "[^"]+"', f'__version__ = "{release}"')

    def _replace(self, file: str, old: str, new: str) -> None:
        path = self.folder / "rainbow" / file
        text, count = re.subn(old, new, path.read_text())
        assert count == 1, f"{file} has no {old}"
        path.write_text(text)


class Rollout(Processes):
    """Servers of several versions on one database."""

    def serve_of(self, version: Version | None, *kinds: str) -> str:
        """Start a server of a version, None: of this one, and what `kinds` names beside it."""
        more = {"PYTHONPATH": str(version.folder)} if version else {}
        port = free_port()
        self.start("serve", "--port", str(port), "--no-scheduler", **more)
        for kind in kinds:
            self.start(kind, **more)
        url = f"http://127.0.0.1:{port}"
        until(Client(url, tries=1).ready)
        return url


@pytest.fixture
def rollout(tmp_path: Path, postgres_server: Postgres) -> Iterator[Rollout]:
    made = Rollout(tmp_path, postgres_server.new_database())
    yield made
    made.end()


@pytest.mark.soak
def test_servers_of_two_versions_and_an_older_agent_work_beside_each_other(tmp_path: Path, rollout: Rollout) -> None:
    next_one = Version(tmp_path, "0.2.0", "9990", newest(), newest())
    old = rollout.serve_of(None, "scheduler")
    oak = register(old, grid(4, 2))
    rollout.start("agent", "--cluster", "oak", "--url", old, RAINBOW_SECRET=oak["secret"])
    with Load(old, oak["token"], 2) as by_old:
        until(lambda: len(by_old.acknowledged) > 5)
        new = rollout.serve_of(next_one, "scheduler")
        headers = {"Authorization": f"Bearer {oak['token']}"}
        assert httpx.get(f"{new}/v1/version", headers=headers).json()["server"] == "0.2.0"
        rollout.start(
            "agent", "--cluster", "oak", "--url", new, "--state-dir", "second", RAINBOW_SECRET=oak["secret"]
        )
        with Load(new, oak["token"], 2) as by_new:
            seen = len(by_old.acknowledged)
            until(lambda: len(by_new.acknowledged) > 10 and len(by_old.acknowledged) > seen + 10)
            again = rollout.serve_of(None)  # one of the version before may be started again, too
            until(lambda: len(by_new.acknowledged) > 20)
    refused = Counter(answer.status_code for answer in by_old.refused + by_new.refused)
    assert refused.keys() <= {503}
    for url in (old, new, again):
        assert set(by_old.acknowledged + by_new.acknowledged) <= set(listed(url, oak["token"]))
    until(lambda: not list(Client(new, oak["token"]).all_jobs(state="WAITING,RUNNING")))
    states = Counter(job["state"] for job in Client(old, oak["token"]).all_jobs())
    assert states.keys() == {"COMPLETED"}
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert "Traceback" not in logs


def test_a_server_whose_tables_have_become_too_new_answers_503_and_says_which_version_to_start(
    tmp_path: Path, rollout: Rollout
) -> None:
    old = rollout.serve_of(None)
    oak = register(old, grid(4, 2))
    new = rollout.serve_of(Version(tmp_path, "0.9.0", "9991", newest(), "9991"))
    until(lambda: httpx.get(f"{old}/readyz").status_code == 503)
    assert f"its tables are 9991, known here are {newest()}" in httpx.get(f"{old}/readyz").json()["detail"]
    headers = {"Authorization": f"Bearer {oak['token']}"}
    answer = httpx.get(f"{old}/v1/jobs", headers=headers)
    assert (answer.status_code, answer.json()["outcome"]) == (503, "none")
    assert httpx.get(f"{new}/v1/jobs", headers=headers).status_code == 200
