"""Every command that a page shows runs: here those of pages that have no test of their own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rainbow.cli import main, session
from rainbow.client import Client
from tests.conftest import ADMIN, REGISTRATION
from tests.support.agent_sites import until
from tests.support.live import rainbow_at
from tests.support.shell import ROOT, Shell, variables_of
from tests.support.typed_pages import BLOCK, COMMAND, DOCS

SOURCES = ROOT / "tests" / "cases" / "sources"
ELSEWHERE = {  # page: the test that types it
    "accounts.md": "accounts_page",
    "certificates.md": "docs_certificates",
    "choose-by-time.md": "choose_by_time_page",
    "joining.md": "docs_joining",
    "day-of-a-slurm-user.md": "slurm_day",
    "plugins.md": "docs_plugins",
    "selection.md": "selection_docs",
    "simulating.md": "docs_simulating",
    "slurm.md": "docs_slurm",
    "why.md": "docs",
    "first-job.md": "docs_typed",
    "first-department.md": "docs_typed",
}
LONG = {"benchmarks.md"}  # `make bench` takes minutes
HERE = [
    *("coming-from-others.md", "coming-from-slurm.md", "configuration.md", "fair-share.md", "graph-format.md"),
    *("importing.md", "load-based.md", "priority.md", "reference-agent.md", "reference-cli.md"),
]
RECORDED = {  # what other programs print
    "scontrol show nodes --json": "slurm-scontrol-23.11.json",
    "scontrol show node": "slurm-scontrol-22.05.txt",
    "flux resource R": "flux-r.json",
    "kubectl get nodes -o json": "kubernetes-nodes.json",
    "lstopo-no-graphics --of xml": "hwloc-2.9.xml",
}
PARSED = {("serve",), ("config", "reload")}  # a server beside this one, and what only a server with a file does
RESERVED = "{resources: {work: {type: core, count: 4}}, tasks: [{command: [x], resources: work}]}"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with rainbow_at(tmp_path) as url:
        with Client(url, REGISTRATION) as client:
            made = client.register_cluster("willow", str(ROOT / "graphs" / "willow" / "cluster.json"))
        with Client(url, made["secret"]) as agent:
            agent.heartbeat("willow", "a")
        session.save(tmp_path / "credentials.json", url, "willow", made["token"], made["secret"])
        yield Shell(tmp_path, url, made["token"], made["secret"], variables_of(url, tmp_path / "credentials.json"))


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def furnish(shell: Shell) -> Mapping[str, str]:
    """Write the files that the pages name; return what the pages call otherwise than this server."""
    for name, text in {
        "job.sh": "#!/bin/sh\n#SBATCH -n 2\nhostname\n",
        "job.yaml": RESERVED,
        "fair-share.yaml": blocks("fair-share.md", "yaml")[0],
        "work.yaml": blocks("fair-share.md", "yaml")[1],
        "shares.yaml": blocks("load-based.md", "yaml")[0],
        "site.yaml": blocks("priority.md", "yaml")[0],
        "finch.json": blocks("graph-format.md", "json")[0],
        "rainbow-registration.secret": REGISTRATION,
        "out.txt": "done\n",
    }.items():
        shell.file(name, text)
    return {
        "--cluster oak": "--cluster willow",
        "set oak": "set willow",
        "show oak": "show willow",
        "job.json": "job.yaml",
    }


def test_every_page_with_commands_is_typed_somewhere() -> None:
    assert {path.name for path in DOCS.glob("*.md") if "```console" in path.read_text()} == {*HERE, *ELSEWHERE, *LONG}
    for page, test in ELSEWHERE.items():
        [path] = (ROOT / "tests").rglob(f"test_{test}.py")
        assert page in path.read_text(), page


@pytest.mark.parametrize("page", HERE)
def test_commands_of_the_page_run(shell: Shell, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)
    instead = dict(furnish(shell))
    if page.startswith("reference-"):
        shell("scheduler", "set", "willow", "--policy", "delegate" if page == "reference-agent.md" else "load_based")
        job = shell.json("submit", "--", "true")["id"]
        until(
            lambda: page != "reference-agent.md" or shell.json("job", "show", job)["tasks"][0]["state"] == "ASSIGNED"
        )
        instead |= {" ID ": f" {job} ", " 18ea ": f" {job} "}
    for command, _ in [one for block in BLOCK.findall((DOCS / page).read_text()) for one in COMMAND.findall(block)]:
        for written, ours in instead.items():
            command = command.replace(written, ours)
        run(shell, command)


def run(shell: Shell, command: str) -> None:
    """Run a line: `rainbow ...`, what another program prints into it or a file, and a file it writes."""
    left, _, right = command.rpartition(" | ")
    line, _, into = (right if left else command).partition(" > ")
    words, into = shlex.split(line, comments=True), into.partition("#")[0].strip()
    stdin = (SOURCES / RECORDED[left]).read_text() if left else None
    if words[0] != "rainbow":
        Path(into).write_text((SOURCES / RECORDED[" ".join(words)]).read_text())
        return
    if (tuple(words[1:2]) in PARSED) or (tuple(words[1:3]) in PARSED):
        found, depth = main, 1
        while words[depth : depth + 1] and hasattr(found, "commands") and words[depth] in found.commands:
            found, depth = found.commands[words[depth]], depth + 1
        found.make_context(words[depth - 1], words[depth:], resilient_parsing=False).close()
        return
    said = shell(*words[1:], stdin=stdin, RAINBOW_REGISTRATION_SECRET=REGISTRATION, RAINBOW_ADMIN_TOKEN=ADMIN)
    assert said.exit_code == 0, (command, said.output)
    if into:
        Path(into).write_text(said.stdout)
