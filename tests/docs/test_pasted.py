"""Every page pasted block by block into a shell in an empty folder prints what it shows; `make docs` runs these."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rainbow.cli import session
from rainbow.client import Client
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.support.live import agent_of, rainbow_at
from tests.support.pages import DOCS, FAILED, ROOT, blocks, commands, paste, steady
from tests.support.ports import free_ports
from tests.support.postgres import postgres
from tests.unit.graph.test_sources_topology import nodes

PATIENCE = 300.0  # seconds
SOURCES = ROOT / "tests" / "cases" / "sources"
FLUX = """{"version": 1, "resources": [{"type": "slot", "label": "task", "count": 4, "with": [{"type": "core",
"count": 1}]}], "tasks": [{"command": ["hostname"], "slot": "task", "count": {"per_slot": 1}}], "attributes": {}}"""
PROGRAMS = {  # what other systems' programs print where a page calls them
    "scontrol": {"show nodes --json": "slurm-scontrol-23.11.json", "": "slurm-scontrol-22.05.txt"},
    "flux": {"": "flux-r.json"},
    "kubectl": {"": "kubernetes-nodes.json"},
    "lstopo-no-graphics": {"": "hwloc-2.9.xml"},
}


@dataclass(frozen=True)
class Page:
    """What a page takes for granted, and what is another in each run."""

    nodes: int = 0  # of a cluster at a running server; 0: the page starts its own
    cluster: str = "oak"
    graph: str = ""  # the file on the page that is the cluster's graph; else it has so many nodes
    agent: bool = True  # runs the cluster's tasks
    token: str = ""  # in RAINBOW_TOKEN; else the credentials file of the cluster
    programs: Mapping[str, str] = field(default_factory=dict)  # what programs of other systems print
    instead: Mapping[str, str] = field(default_factory=dict)  # typed here instead of what is written
    until: Mapping[str, str] = field(default_factory=dict)  # true before a command: a reader's hand is slower
    changing: Sequence[tuple[str, str]] = ()
    columns: int = 110


MACHINE = [
    (r"\b\d+( +nodes 1, cores 1 )", r"N\1"),
    (r"\S+ core \d+$", "MACHINE"),
    (r"the cluster has \d+", "the cluster has N"),
    (r"^ +id +\S+$", "id ID"),
    (r"^ +in +/.*$", "in FOLDER"),
    (r"user +\S+", "user NAME"),
    (r"ended \d\d:\d\d:\d\d", "ended TIME"),
]
AMOUNTS = [(r"\b20\d\d-\d\d\b", "MONTH"), (r"\b[01]\.\d{2,}\b|\b0\.\d%|\b100\.0%", "N")]
ALL_BUT_ONE = "rainbow jobs | grep -q '3/4, 1 failed' && rainbow jobs | grep -q 'waits for job'"
PAGES = {
    "README.md": Page(
        instead=dict.fromkeys(["python3 -m venv", ". rain", "pip", "rainbow demo"], ": "), changing=MACHINE
    ),
    "day.md": Page(
        until={"rainbow job show 2": "rainbow jobs --noheader | grep -q RUNNING"},
        changing=[
            *MACHINE,
            (r"RUNNING on desk, \S+ [^,]+,", "RUNNING on desk, HELD,"),
            (r":\d{4,5},", ":PORT,"),
            (r"1 node, \d+ cores", "1 node, N cores"),
        ],
    ),
    "first-job.md": Page(changing=MACHINE),
    "first-department.md": Page(instead={"pip install -q": "true"}),
    "accounts.md": Page(2, token=ADMIN, changing=AMOUNTS),
    "certificates.md": Page(
        1,
        "heron",
        "heron.json",
        until={"rainbow job why": "rainbow jobs | grep -q RUNNING"},
        changing=[(r"[\d.]+ ms", "N ms")],
    ),
    "choose-by-time.md": Page(2, until={"rainbow job eta 2": "rainbow job eta 2 | grep -q ahead"}),
    "coming-from-others.md": Page(programs={"flux": FLUX}),
    "coming-from-slurm.md": Page(2),
    "configuration.md": Page(),
    "day-of-a-slurm-user.md": Page(
        2,
        until={"rainbow jobs\n": ALL_BUT_ONE, "rainbow history\n": '[ -z "$(rainbow jobs --noheader)" ]'},
        columns=200,
    ),
    "fair-share.md": Page(2),
    "graph-format.md": Page(2),
    "importing.md": Page(2, "ash"),
    "joining.md": Page(programs={"scontrol": nodes(8)}),
    "load-based.md": Page(2),
    "page.md": Page(2),
    "priority.md": Page(2),
    "reference-agent.md": Page(2, agent=False),
    "reference-cli.md": Page(2),
}
ELSEWHERE = {  # page: the test that types it
    "plugins.md": "docs_plugins",
    "selection.md": "selection_docs",
    "simulating.md": "docs_simulating",
    "slurm.md": "docs_slurm",
    "why.md": "docs",
}
NOT_TYPED = {  # page: why no test types it
    "benchmarks.md": "make bench takes minutes",
    "fluxion.md": "needs flux-sched",
    "reference-http.md": "its one command needs a token of the reader",
    "reliability.md": "make jepsen takes minutes",
    "run-models.md": "needs a history of a month",
    "scale.md": "needs two machines of PostgreSQL",
    "workflow-tools.md": "make tools types it",
}


def text_of(name: str) -> str:
    return (ROOT / name if name == "README.md" else DOCS / name).read_text()


def test_every_page_with_commands_is_pasted_somewhere() -> None:
    names = ["README.md", *(path.name for path in DOCS.glob("*.md"))]
    assert {name for name in names if blocks(text_of(name))} == {*PAGES, *ELSEWHERE, *NOT_TYPED}
    for page, test in ELSEWHERE.items():
        [path] = (ROOT / "tests").rglob(f"test_{test}.py")
        assert page in path.read_text(), page


def test_no_block_that_is_pasted_has_a_prompt() -> None:
    for path in [ROOT / "README.md", *DOCS.glob("*.md")]:
        assert "```console" not in path.read_text(), path
        assert not [
            line for block in blocks(path.read_text()) for line in block.typed.splitlines() if line[:2] == "$ "
        ]


def test_commands_are_read_with_the_lines_they_continue_in() -> None:
    page = "```sh\ncat > a.yaml <<'EOF'\nx: 1\nEOF\nrainbow a \\\n    b\n```\n\n```text\nshown\n```\n"
    page += "words\n```sh\nc\n```\n"
    assert commands(page) == [("cat > a.yaml <<'EOF'\nx: 1\nEOF", ""), ("rainbow a \\\n    b", "shown\n"), ("c", "")]


def graph_on(text: str, file: str) -> Any:
    """Return the graph that a page writes to a file."""
    [written] = re.findall(rf"^cat > {file} <<'EOF'\n(.*?)^EOF$", text, re.S | re.M)
    return json.loads(written)


@contextmanager
def around(folder: Path, page: Page, text: str) -> Iterator[dict[str, str]]:
    """Start what the page takes for granted; yield the variables that its reader has set."""
    with ExitStack() as stack:
        options = {"COLUMNS": str(page.columns)}
        if page.nodes:
            url = stack.enter_context(rainbow_at(folder))
            with Client(url, REGISTRATION) as client:
                graph = graph_on(text, page.graph) if page.graph else grid(page.nodes, 4)
                made = client.register_cluster(page.cluster, graph, state={"price": 3})
            if page.agent:
                stack.enter_context(agent_of(url, page.cluster, made["secret"]))
            else:
                stack.enter_context(Client(url, made["secret"])).heartbeat(page.cluster, "a")
            session.save(folder / "credentials.json", url, page.cluster, made["token"], made["secret"])
            options |= {"RAINBOW_URL": url, "RAINBOW_REGISTRATION_SECRET": REGISTRATION}
            options |= {"RAINBOW_TOKEN": page.token} if page.token else {}
            options |= {"RAINBOW_CREDENTIALS": str(folder / "credentials.json")}
        yield options


def programs(folder: Path, page: Page) -> None:
    """Put programs of other systems into the path, which print what was recorded."""
    (folder / "bin").mkdir()
    for name, answers in PROGRAMS.items():
        cases = "".join(f'  "{words}"*) cat {SOURCES / file};;\n' for words, file in answers.items())
        if name in page.programs:
            (folder / f"{name}.txt").write_text(page.programs[name])
            cases = f"  *) cat {folder / name}.txt;;\n"
        (folder / "bin" / name).write_text(f'#!/bin/sh\ncase "$*" in\n{cases}esac\n')
        (folder / "bin" / name).chmod(0o755)


@pytest.mark.docs
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("name", PAGES)
def test_pasted_page_prints_what_it_shows(tmp_path: Path, name: str) -> None:
    page, shown = PAGES[name], blocks(text_of(name))
    with ExitStack() as stack:
        options, instead = stack.enter_context(around(tmp_path, page, text_of(name))), dict(page.instead)
        if "postgresql" in text_of(name) and not page.nodes:
            database = stack.enter_context(postgres()).new_database()
            ports = dict(zip(("8443", "8444"), map(str, free_ports(2)), strict=True))
            instead |= {"postgresql+psycopg://rainbow@localhost/rainbow": database, **ports}
        programs(tmp_path, page)
        printed = paste(tmp_path, [typed(block.typed, instead, page.until) for block in shown], PATIENCE, options)
    assert len(printed) == len(shown), printed[-1:]
    for block, text in zip(shown, printed, strict=True):
        if block.printed:
            text = re.sub(rf"^{FAILED}: .*\n", "", text, flags=re.M)
            assert steady(text, page.changing) == steady(block.printed, page.changing), block.typed
        else:
            assert FAILED not in text, (block.typed, text)


def typed(text: str, instead: Mapping[str, str], until: Mapping[str, str]) -> str:
    """Return a block as it is typed here, and what is waited for before its commands."""
    for written, ours in instead.items():
        text = text.replace(written, ours)
    for command, condition in until.items():
        text = text.replace(f"{command}", f"until {condition}; do sleep 0.2; done; {command}", 1)
    return text
