"""tests/cases/why: whatever a job waits for, the first line of the answer says it."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.cli import session
from rainbow.client import Client
from rainbow.service import Limits
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.support.live import rainbow_at
from tests.support.shell import Shell, variables_of

CASES: list[dict[str, Any]] = yaml.load(
    (Path(__file__).parents[2] / "cases" / "why" / "cases.yaml").read_text(), yaml.CSafeLoader
)

FILES = ("options", "jobspec")
ACCEPTED: dict[str, Any] = {}  # the task accepted last, by cluster


SERVERS: dict[str, dict[str, Any]] = {
    "": {},
    "accounts": {},  # from the first account on, every job of a server needs one
    "hurried": {"limits": Limits(match_seconds=1e-6)},
    "short": {"lease": 0.5, "grace": 0.1},
}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with ExitStack() as open_:
        yield {
            name: open_.enter_context(rainbow_at(tmp_path_factory.mktemp("why"), tick=0.05, **settings))
            for name, settings in SERVERS.items()
        }


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_first_line_is_the_answer(case: dict[str, Any], urls: dict[str, str], tmp_path: Path) -> None:
    name, url = f"c{CASES.index(case)}", urls[case.get("server", "")]
    shell = Shell(tmp_path, url, "", "", variables_of(url, tmp_path / "credentials.json"))
    known = {"c": name, "user": getuser()}
    known |= {key: str(shell.file(f"{key}.json", case[key])) for key in FILES if key in case}
    with Client(url, ADMIN) as admin:
        for account, fields in case.get("accounts", {}).items():
            admin.put_account(account, fields)
    with registered(case["cluster"], name, url, tmp_path) as agent:
        *steps, question = case["steps"]
        for step in steps:
            if isinstance(step, dict):
                [(event, answer)] = step.items()
                report(agent, name, event, **answer)
            else:
                type_in(shell, agent, step, known)
        cluster = re.compile(fill(case.get("first") or case["row"], known))
        said = ""
        for _ in range(60):
            said = shell(*shlex.split(fill(question, known))).output
            lines = said.splitlines()[: 1 if "first" in case else None]
            if any(cluster.fullmatch(line.rstrip()) for line in lines):
                return
            time.sleep(0.05)
    pytest.fail(said)


def fill(text: str, known: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda result: known.get(result[1], result[0]), text)


@contextmanager
def registered(told: dict[str, Any], name: str, url: str, folder: Path) -> Iterator[Client]:
    """Register the case's cluster; yields its agent, which serves the workers unless the cluster is to be idle."""
    subsystems = {}
    if software := told.get("software"):
        nodes = {one: {"metadata": {"type": "package", "name": one, "version": v}} for one, v in software.items()}
        edges = [{"source": "n0", "target": one} for one in software]
        subsystems = {"spack": {"graph": {"nodes": nodes, "edges": edges}}}
    policy = {"name": told.get("policy", "load_based"), "settings": told.get("settings", {})}
    with Client(url, REGISTRATION) as client:
        graph = grid(told["nodes"], 2)
        made = client.register_cluster(name, graph, subsystems=subsystems, state={"price": 3}, policy=policy)
    session.save(folder / "credentials.json", url, name, made["token"], made["secret"])
    with Client(url, made["secret"]) as agent:
        if "limits" in told:
            agent.set_scheduler(name, {"limits": told["limits"]})
        if not told.get("idle"):
            agent.heartbeat(name, "a")
        yield agent


def type_in(shell: Shell, agent: Client, step: str, known: dict[str, str]) -> None:
    """Run a command; a submit adds its job, and one that sleeps is started."""
    words = shlex.split(fill(step, known))
    result = shell(*words)
    assert result.exit_code == 0, result.output
    if words[0] == "submit":
        known[str(1 + sum(key.isdigit() for key in known))] = agent.job(
            re.findall(r"submitted job (\d+) ", result.stdout)[0]
        )["id"]
        if "sleep" in words:
            report(agent, known["c"], "started")


def report(agent: Client, cluster: str, event: str, **answer: Any) -> None:
    """Report an event of the next task offered, which is accepted before; `ended`: of the one accepted last."""
    if event == "pending":
        agent.heartbeat(cluster, "a")
    if event != "ended":
        [offered] = agent.receive(cluster, "a", 1, 10)["tasks"]
        agent.accept(cluster, "a", [{"id": offered["id"], "attempt": offered["attempt"]}])
        ACCEPTED[cluster] = offered
    task = ACCEPTED[cluster]
    agent.events(cluster, "a", [{"task": task["id"], "attempt": task["attempt"], "event": event, **answer}])
