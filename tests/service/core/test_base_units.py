"""Amounts with units are counted in base units from the match to the record."""

import json

import pytest
import sqlalchemy as sa
from alembic import command

import rainbow
from rainbow.agent.executors.psij import resources_of
from rainbow.agent.messages import run_of
from rainbow.cli import session
from rainbow.client import Client
from rainbow.matching import Measure, measures, stated_units, worker_capacity
from rainbow.matching.workers.occupancy import Occupancy
from rainbow.scheduling.fair_share.settings import check_settings, compile_settings
from rainbow.scheduling.priority.config import settings as units
from rainbow.service import Service, Settings
from rainbow.service.scheduler.step import step
from rainbow.store import open_store
from rainbow.store.engine import open_engine
from rainbow.store.migrations.upgrade import configuration
from tests.conftest import ADMIN, REGISTRATION, Api
from tests.support.live import rainbow_at
from tests.support.shell import Shell, variables_of

HALF = 500_000_000


def graph(unit="GB", size=13, nodes=1):
    """Nodes of 64 cores and one vertex of memory."""
    named = {"c": {"metadata": {"type": "cluster"}}}
    edges = []
    for n in range(nodes):
        parts = {f"n{n}": ("node", 1, ""), f"n{n}m": ("memory", size, unit)}
        parts |= {f"n{n}c{k}": ("core", 1, "") for k in range(64)}
        for vertex, (kind, many, measured) in parts.items():
            named[vertex] = {"metadata": {"type": kind, "size": many, "unit": measured, "name": vertex}}
            edges.append({"source": "c" if kind == "node" else f"n{n}", "target": vertex})
    return {"graph": {"nodes": named, "edges": edges}}


def spec(count=500, unit="MB", **more):
    memory = {"type": "memory", "count": count, **({"unit": unit} if unit else {})}
    slot = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}, memory]}
    tasks = [{"command": ["true"], "slot": "a", "count": {"per_slot": 1}}]
    return {"version": 1, "resources": [slot], "tasks": tasks, "attributes": {"system": {"duration": 60, **more}}}


@pytest.mark.parametrize("backend", ["index", "networkx"])
def test_13_gb_hold_500_mb_26_times_and_never_27(backend):
    cluster, job = rainbow.read_cluster(graph(), name="c"), rainbow.parse_jobspec(spec())
    [verdict] = rainbow.match(job, [cluster], backend=backend)
    assert (verdict.fits, verdict.exact, verdict.totals["memory"], verdict.units) == (26, True, HALF, {"memory": "B"})
    assert verdict.take.vertices["n0m"] == HALF
    occupancy = Occupancy(cluster)
    assert [occupancy.take(job) is not None for _ in range(27)] == [True] * 26 + [False]


def test_a_clusters_measures_name_the_base_unit_and_the_graphs_own():
    cluster = rainbow.read_cluster(graph("MiB", 100), name="c")
    assert measures(cluster) == {"memory": Measure("B", 2**20)}
    assert stated_units(cluster) == {"memory": "B"}
    assert worker_capacity(cluster)["n0"]["memory"] == 100 * 2**20
    strict = rainbow.read_cluster(graph("MiB", 100), name="c", levels="strict")
    assert measures(strict) == {}
    assert worker_capacity(strict)["n0"]["memory"] == 100


@pytest.fixture
def api(tmp_path):
    service = Service(open_store(str(tmp_path / "rainbow.db")), Settings(secret=REGISTRATION, admin=ADMIN))
    yield Api(service)
    service.close()


@pytest.mark.parametrize(
    ("policy", "settings"),
    [("load_based", {"classes": {"default": 100}, "unit": "core"}), ("priority", {}), ("fair_share", {})],
)
def test_a_policy_books_500_mb_26_times(api, policy, settings):
    oak = api.register("oak", graph(), policy={"name": policy, "settings": settings})
    oak.say("heartbeat", running=[])
    ids = [api.good("POST", "/v1/jobs", {"jobspec": spec(), "requestor": "ann"}, ADMIN)["id"] for _ in range(30)]
    for _ in range(8):
        step(api.service, "oak")
    shown = [api.good("GET", f"/v1/jobs/{job}", None, ADMIN) for job in ids]
    placed = [task["placement"] for job in shown for task in job["tasks"] if task["placement"]]
    most = 13 if policy == "fair_share" else 26  # shares are of whole quanta, here of 1 GB
    assert len(placed) == most
    assert all(held == {"n0": {"core": 1, "memory": HALF}} for held in placed)
    assert shown[0]["units"] == {"memory": "B"}


def test_settings_count_as_the_graph_does():
    answer = {
        "quantum": {"type": "memory", "amount": 2},
        "reserve_overage": 1,
        "users": {"ann": {"max_allotment": 8}},
    }
    settings = compile_settings(check_settings(answer)).counted_in(10**9)
    assert (settings.quantum, settings.reserve_overage, settings.allotment_of("ann")) == (2 * 10**9, 10**9, 8 * 10**9)
    options = rainbow.scheduling.Priority().check(
        {
            "consumables": {"memory": {"default": 2}},
            "queues": {"all": {"resources": {"memory": 4}}},
            "urgency": {"memory": 5.0},
            "quotas": [{"name": "q", "limits": [{"to": {"memory": 3, "core": 3}}]}],
        }
    )
    settings = units.in_base_units(options, {"memory": 1000})
    assert settings["consumables"]["memory"]["default"] == 2000
    assert settings["queues"]["all"]["resources"] == {"memory": 4000}
    assert settings["urgency"] == {"memory": 0.005}
    assert settings["quotas"][0]["limits"][0]["to"] == {"memory": 3000, "core": 3}


def test_an_agent_asks_for_the_bytes_that_were_offered():
    offer = {
        "id": "t",
        "attempt": 1,
        "job": "j",
        "command": ["true"],
        "placement": {"n0": {"core": 1, "memory": HALF}},
    }
    assert resources_of(run_of({**offer, "units": {"memory": "B"}})).memory == HALF
    assert resources_of(run_of({**offer, "placement": {"n0": {"memory": 3}}})).memory == 3 * 2**20


def test_placements_of_an_older_store_are_converted(tmp_path):
    engine = open_engine(str(tmp_path / "old.db"))
    with engine.begin() as connection:
        command.upgrade(configuration(connection), "0009")
        old = {"id": "c1", "name": "oak", "levels": "any", "document": json.dumps(graph(size=64))}
        connection.execute(
            sa.text(
                "INSERT INTO clusters (id, name, levels, document, worker_type, revision, clock, policy, settings,"
                " memory, created_at)"
                " VALUES (:id, :name, :levels, :document, 'node', 1, 0, 'load_based', '{}', '{}', 1.0)"
            ),
            old,
        )
        connection.execute(
            sa.text(
                'INSERT INTO reservations (id, cluster_id, requestor, start, "end", placement, created_at, name)'
                " VALUES ('r1', 'c1', 'ann', 1.0, 2.0, :placement, 1.0, '')"
            ),
            {"placement": json.dumps({"n0": {"core": 4, "memory": 16}})},
        )
    engine.dispose()
    store = open_store(str(tmp_path / "old.db"))
    with store.read() as connection:
        [placement] = connection.scalars(sa.text("SELECT placement FROM reservations"))
    store.close()
    assert json.loads(placement) == {"n0": {"core": 4, "memory": 16 * 10**9}}


SIZES = {"elm": ("GB", 64), "fir": ("MB", 64_000), "oak": ("kB", 64_000_000)}  # one amount in three units
CHEAP = {"priorities": [{"priority": 1, "steps": [{"calc": "cost=matched.memory / 1e9"}, {"filter": "cost <= 8"}]}]}


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Three clusters of equal memory, each in its own unit."""
    folder = tmp_path_factory.mktemp("units")
    saved = folder / "credentials.json"
    with rainbow_at(folder) as url:
        for name, (unit, size) in SIZES.items():
            with Client(url, REGISTRATION) as client:
                made = client.register_cluster(name, graph(unit, size))
            assert (made["totals"]["memory"], made["units"]) == (64 * 10**9, {"memory": "B"})
            session.save(saved, url, name, made["token"], made["secret"])
        yield Shell(folder, url, "", "", variables_of(url, saved))


def rows(text):
    """The rows of a table that are about a cluster."""
    return [line.split(None, 1) for line in text.splitlines() if line.split(None, 1)[0] in SIZES]


def test_tables_show_one_amount_alike_in_whatever_unit_a_graph_has_it(shell):
    file = shell.file("job.json", spec(8, "GB"))
    listed, matched = rows(shell("cluster", "list").stdout), rows(shell("match", file).stdout)
    assert [name for name, _ in listed] == [name for name, _ in matched] == list(SIZES)
    assert {row for _, row in matched} == {"yes      fits 8 times, using nodes 1, cores 1, memory 8 GB each time"}
    assert len({row for _, row in listed}) == 1
    assert "memory 64 GB" in listed[0][1]
    assert "memory 64 GB" in shell("cluster", "show", "oak").stdout


def test_priorities_compute_with_bytes_in_whatever_unit_a_graph_has_them(shell):
    selector = ("--selector", "constraint", "--selector-options", shell.file("priorities.json", CHEAP))
    for count, unit in ((8, "GB"), (8_000, "MB")):
        job = shell.json("submit", shell.file("job.json", spec(count, unit)), *selector)
        chosen = job["decision"]["selection"]
        assert chosen["values"] == {name: {"cost": 8} for name in SIZES}
        assert chosen["drops"] == {}
        why = rows(shell("job", "why", job["id"]).stdout)
        assert ["memory 8 GB" in row for _, row in why] == [True] * 3
