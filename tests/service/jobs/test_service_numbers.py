"""Jobs have short numbers that are never given twice, and are named by them wherever an id is."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from rainbow.service import Settings
from rainbow.service.core.settings import Numbers
from rainbow.service.jobs import numbers
from rainbow.service.scheduler.step import step
from rainbow.store import open_store
from rainbow.store.backup import backup, restore
from rainbow.store.names import numbers as series
from rainbow.store.names.numbers import OF_SITES, RESTORED
from rainbow.store.schema import jobs as table
from tests.support.agent_by_hand import agent, show
from tests.support.asking import api, cluster

__all__ = ["agent", "api", "cluster"]  # fixtures

ONE = """
version: 9999
resources: [{type: slot, count: 1, label: s, with: [{type: core, count: 1}]}]
tasks: [{command: [hostname], slot: s, count: {per_slot: 1}}]
"""


def document(**system):
    return {
        "version": 9999,
        "resources": [{"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["hostname"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": system},
    }


def submit(api, cluster, **system):
    answer = api("POST", "/v1/jobs", cluster["token"], json=document(**system))
    assert answer.status_code == 201, answer.json
    return answer.json


def test_numbers_begin_at_1_and_an_array_has_one_for_each_element(api, cluster):
    assert submit(api, cluster)["number"] == 1
    array = submit(api, cluster, array="1,3,7-8")
    assert array["number"] == 2
    assert submit(api, cluster)["number"] == 6
    shown = show(api, cluster, array["id"])
    assert [(task["number"], task["element"]) for task in shown["tasks"]] == [
        (3, "2_1"),
        (4, "2_3"),
        (5, "2_7"),
        (2, "2_8"),  # the last element has the array's own number, as Slurm gives it
    ]


@pytest.mark.parametrize("name", ["3", "2_3", "2"])
def test_a_job_is_named_by_number(api, cluster, name):
    submit(api, cluster)
    array = submit(api, cluster, array="1,3")
    assert array["number"] == 2
    names = {"3": ["2_1"], "2_3": ["2_3"], "2": ["2_1", "2_3"]}
    shown = show(api, cluster, name)
    assert shown["id"] == array["id"]
    assert shown["number"] == 2
    assert [task["element"] for task in shown["tasks"]] == names[name]
    assert api("GET", f"/v1/jobs/{name}/why", cluster["token"]).json["id"] == array["id"]


def test_listed_jobs_have_their_numbers(api, cluster):
    submit(api, cluster)
    submit(api, cluster, array="0-2")
    listed = api("GET", "/v1/jobs", cluster["token"]).json["jobs"]
    assert [(job["number"], job.get("elements")) for job in listed] == [(2, 3), (1, None)]


@pytest.mark.parametrize("name", ["4", "2_2", "2_9", "9999999999", "1_1"])
def test_a_number_of_no_job_is_not_found(api, cluster, name):
    submit(api, cluster)
    submit(api, cluster, array="1,3")
    assert api("GET", f"/v1/jobs/{name}", cluster["token"]).status_code == 404


def test_what_a_number_names_can_be_changed_and_an_element_is_no_whole_job(api, cluster):
    submit(api, cluster)
    submit(api, cluster, array="1,3")
    assert api("POST", "/v1/jobs/1:suspend", cluster["token"]).json["suspended_at"]
    assert api("DELETE", "/v1/jobs/1", cluster["token"]).json["state"] == "CANCELED"


def test_dependencies_name_jobs_by_number(api, service, cluster, agent):
    first = submit(api, cluster)
    second = submit(api, cluster, dependencies=[{"scheme": "afterok", "value": str(first["number"])}])
    agent.say("heartbeat")
    step(service, "one")
    why = api("GET", f"/v1/jobs/{second['number']}/why", cluster["token"]).json
    assert why["wait"]["facts"]["jobs"] == [first["id"]]
    agent.end(*agent.take())
    step(service, "one")
    assert show(api, cluster, second["id"])["tasks"][0]["state"] == "ASSIGNED"
    refused = api(
        "POST", "/v1/jobs", cluster["token"], json=document(dependencies=[{"scheme": "afterok", "value": "77"}])
    )
    assert (refused.status_code, refused.json["pointer"]) == (422, "/attributes/system/dependencies/0/value")


def test_two_processes_never_give_a_number_twice(service, tmp_path):
    """Each has its own block, whoever asks at the same time; what is left when one is killed is never given."""
    from rainbow.service import Service

    other = Service(open_store(str(service.store.engine.url)), Settings(), clock=service.clock)
    with ThreadPoolExecutor(8) as pool:
        requests = [(one, many) for many in (1, 1, 700, 3, 2_500) * 20 for one in (service, other)]
        firsts = list(pool.map(lambda each: numbers.take(*each), requests))
    spans = sorted((first, first + many) for first, (_, many) in zip(firsts, requests, strict=True))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_a_restored_store_leaves_out_what_was_given_after_its_backup(api, service, cluster, tmp_path):
    submit(api, cluster)
    backup(service.store, tmp_path / "backup.db")
    restore(tmp_path / "backup.db", str(tmp_path / "again.db"))
    with open_store(str(tmp_path / "again.db")).read() as connection:
        assert series.first_number(connection, 1) == numbers.BLOCK + 1 + RESTORED


def test_numbers_go_on_above_those_of_sites_when_one_is_connected(api, service, cluster, agent, clock):
    assert submit(api, cluster)["number"] == 1
    with service.store.write() as connection:
        series.leave_to_sites(connection)
    clock.now += numbers.LOOK + 1
    assert submit(api, cluster)["number"] == OF_SITES
    assert submit(api, cluster)["number"] == OF_SITES + 1


def test_a_range_of_its_own(service):
    service.settings = Settings(numbers=Numbers(first=5_000, last=5_002))
    assert [numbers.take(service, 1) for _ in range(3)] == [5_000, 5_001, 5_002]
    with pytest.raises(Exception, match="the numbers of jobs end at 5002"):
        numbers.take(service, 1)


def test_forgotten_numbers_are_not_given_again(api, service, cluster):
    job = submit(api, cluster)
    with service.store.write() as connection:
        connection.execute(sa.delete(table).where(table.c.id == job["id"]))
    assert submit(api, cluster)["number"] == 2
