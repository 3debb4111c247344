"""An agent whose secret is wrong, or no longer right, ends and says why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from rainbow.agent import Agent, open_executor
from rainbow.api import create_app
from rainbow.client import Client, Problem
from rainbow.store.schema import credentials
from tests.conftest import REGISTRATION
from tests.scenarios.test_end_to_end import Processes
from tests.support.agent_sites import PATH, Site, register, site, until
from tests.support.keepers import keepers, words
from tests.support.live import http, service_at, url_of

__all__ = ["site"]  # fixtures

NOT_TAKEN = (
    "rainbow: the secret for cluster oak was rejected: it is wrong, revoked or rotated; "
    "ask the cluster's owner for the current secret"
)
LACKS = (
    "rainbow: authentication required (see `rainbow help credentials`); the command lacks the secret of cluster oak"
)


@pytest.mark.parametrize("secret", ["rbs_wrong", REGISTRATION])
def test_a_secret_that_is_not_the_clusters_ends_the_agent(site: Site, secret: str) -> None:
    with Client(site.url, secret, tries=1) as client:
        agent = Agent(client, "oak", open_executor("local", PATH), wait=1, say=lambda _: None)
        with pytest.raises(Problem) as caught:
            agent.run()
    assert caught.value.status in (401, 403, 404)


def agent_with(tmp_path: Path, url: str, secret: str) -> Any:
    processes = Processes(tmp_path)
    arguments = ("agent", "--cluster", "oak", "--url", url, "--state-dir", str(tmp_path / "state"))
    return processes.start(*arguments, RAINBOW_SECRET=secret)


@pytest.mark.parametrize("secret", ["rbs_wrong", "rbt_wrong", ""])
def test_an_agent_with_a_wrong_secret_ends_and_says_why(site: Site, tmp_path: Path, secret: str) -> None:
    agent = agent_with(tmp_path, site.url, secret)
    assert agent.wait(20) == 5
    said = (tmp_path / "agent.log").read_text()
    assert "Traceback" not in said
    assert said.splitlines()[-1] == (NOT_TAKEN if secret else LACKS)
    until(lambda: keepers(tmp_path) == [])


def test_an_agent_whose_secret_is_revoked_while_it_works_ends_and_says_why(tmp_path: Path) -> None:
    with service_at(tmp_path, lease=3.0) as service, http(create_app(service)) as port:
        site = register(url_of(port))
        agent = agent_with(tmp_path, site.url, site.secret)
        job = site.submit("sleep", f"65.{os.getpid()}")
        site.until(job, "RUNNING")
        with service.store.write() as connection:
            connection.execute(credentials.update().where(credentials.c.kind == "secret").values(revoked_at=1.0))
        assert agent.wait(40) == 5
        said = (tmp_path / "agent.log").read_text().splitlines()
        assert said[-1] == NOT_TAKEN
        until(lambda: keepers(tmp_path) == [])
        assert [one for one in psutil.process_iter() if f"65.{os.getpid()}" in words(one)] == []
        site.user.close()
