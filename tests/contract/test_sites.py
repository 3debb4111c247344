"""What every site must do, over all: on texts recorded of Slurm 22.05, and as the manual pages of Flux have them."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.agent.executors.flux import Flux
from rainbow.agent.executors.interface import Final, Phase, Site
from rainbow.agent.executors.run import Result, Run
from rainbow.agent.executors.slurm.site import Slurm
from rainbow.jobspec.flux import flux_document
from rainbow.jobspec.sbatch.request import NotCarriedError

SITES: dict[str, Site] = {"slurm": Slurm(), "flux": Flux()}
FOLDER = Path(__file__).parents[1] / "cases" / "sites"
NODE = {"type": "node", "count": 1, "with": [{"type": "core", "count": 4}]}
SLOTS = {"type": "slot", "count": 2, "label": "w", "with": [NODE]}
ASKED = {"name": "mine", "resources": [SLOTS], "system": {"queue": "batch"}, "site": {}, "gang": 1}
RUN = Run(("t", 1), "j", ("sh", "-c", "true"), duration=90.0, processes=2, request=ASKED)
MARK = "rainbow=j/t/1/f00d"


@pytest.fixture(params=sorted(SITES))
def called(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site(called: str) -> Site:
    return SITES[called]


@pytest.fixture
def recorded(called: str) -> dict[str, Any]:
    """Return what this site printed, and what is known of it: the same jobs at every site."""
    return dict(yaml.load((FOLDER / f"{called}.yaml").read_text(), yaml.CSafeLoader))


def test_a_run_is_asked_for_with_its_mark_and_its_id_is_read(site: Site, recorded: dict[str, Any]) -> None:
    question = site.submit(RUN, MARK)
    said = shlex.join(question.command) + question.told
    assert [word for word in [MARK, *recorded["submit"]["words"]] if word not in said] == []
    assert question.read(recorded["submit"]["text"]) == recorded["submit"]["id"]


def test_what_it_cannot_be_told_is_refused_before_anything_starts(site: Site) -> None:
    unmet = {"type": "node", "count": {"min": 2, "max": 8, "steps": True}, "with": [{"type": "quark", "count": 1}]}
    request = {**ASKED, "resources": [unmet], "constraint": {"not": [{"properties": ["slow"]}]}}
    with pytest.raises(NotCarriedError):
        site.submit(replace(RUN, request=request), MARK)


def test_jobs_are_read_by_id_and_odd_lines_blind_nobody(site: Site, recorded: dict[str, Any]) -> None:
    question = site.jobs(())
    rows, odd = question.read(recorded["jobs"]["text"] + "\na line | that nobody knows\n")
    assert {name: str(row.phase) for name, row in rows.items()} == recorded["jobs"]["phases"]
    assert [line for line in odd if "nobody knows" in line]
    assert question.read("") == ({}, [])
    assert recorded["jobs"]["user"] in shlex.join(site.jobs(["ann"]).command)


def test_a_waiting_job_is_explained_with_its_reason_rank_and_planned_start(
    site: Site, recorded: dict[str, Any]
) -> None:
    rows, _ = site.jobs(()).read(recorded["jobs"]["text"])
    row = next(row for row in rows.values() if row.phase is Phase.WAITING)
    queue = site.queue().read(recorded["queue"]["text"])
    why = site.waiting(row, queue, "06:31")
    assert {key: why.facts.get(key) for key in recorded["waiting"]} == recorded["waiting"]
    assert row.id in why.text
    assert len(why.text) <= 300


def test_jobs_are_known_by_their_users_and_marks(site: Site, recorded: dict[str, Any]) -> None:
    """Beside each row stands a word that is new each time, where a comment can look like a row."""
    question = site.jobs(())
    word = next(iter(question.command[-1].split("\x1f")[1:2]), "")
    rows, _ = question.read(recorded["marked"]["text"].replace("WORD", word))
    assert {row.id: row.user for row in rows.values() if row.mark == MARK} == {recorded["marked"]["id"]: "ann"}
    again = site.jobs(()).command[-1]
    assert ("WORD" in recorded["marked"]["text"]) is (again != question.command[-1])


def test_ends_are_told_with_code_signal_or_cause(site: Site, recorded: dict[str, Any]) -> None:
    finals = site.over().read(recorded["over"]["text"])
    answer = {name: site.ended(("t", 1), name, final, ours=False) for name, final in finals.items()}
    assert {name: [str(end.result), end.exit_code] for name, end in answer.items()} == recorded["over"]["ends"]
    for job, text in recorded["final"].items():
        results: dict[str, Final] = {}
        for question in site.final(job):
            results = results or question.read(text)
        assert site.ended(("t", 1), job, results[job], ours=True).result is Result.STOPPED


def test_nodes_and_cores_are_read(site: Site, recorded: dict[str, Any]) -> None:
    assert site.nodes().read(recorded["nodes"]["text"]) == recorded["nodes"]["names"]
    assert list(site.cores().read(recorded["cores"]["text"])) == recorded["cores"]["counts"]
    assert site.users().read("1|ann\n2|bob\n3|ann\n") == {"1": "ann", "2": "bob", "3": "ann"}


def test_a_job_is_canceled_by_its_id(site: Site) -> None:
    assert site.cancel("7")[-1] == "7"
    pending = site.cancel("7", pending=True)
    assert pending == () or pending[-1] == "7"


def test_a_plan_that_is_not_said_is_not_known(site: Site) -> None:
    assert site.planned("nothing is known") is None


def test_flux_is_handed_what_its_jobspec_says() -> None:
    document = json.loads(Flux().submit(RUN, MARK).told)
    assert document == flux_document({**ASKED, "name": f"mine {MARK}"}, RUN.command, 2, 90.0, "", {})
    assert document["resources"] == [SLOTS]
