"""Pages of jobs and events: what is wanted, in order, by as much work as a page is long."""

from __future__ import annotations

import random
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
import sqlalchemy as sa

from rainbow.state_machine import JobState
from rainbow.store import Store, clusters, events, jobs, pages
from rainbow.store.jobs import PENDING, JobRecord, UnplacedRecord
from rainbow.store.pages import Filter
from tests.conftest import examples
from tests.support.stores import add_cluster, store

__all__ = ["store"]  # fixtures

NAMES = ["oak", "elm", "fir", "yew"]
PEOPLE = ["ann", "ben", "cy\0d"]


def some_jobs(store: Store, count: int, chance: random.Random) -> list[JobRecord]:
    """Store jobs of some clusters, and a few that wait for any of the first two."""
    for name in NAMES:
        add_cluster(store, f"id-{name}", name)
    made = []
    with store.write() as connection:
        reach = jobs.keep_reach(connection, ["id-oak", "id-elm"])
        for k in range(count):
            state, name = chance.choice(list(JobState)), chance.choice(["", *NAMES, *NAMES[:2] * 4])
            if (state is JobState.UNPLACED) != (name == ""):
                continue
            wait = {"reason": chance.choice(["full", "drained"])} if state in PENDING else None
            at = f"id-{name}" if name else ""
            title = chance.choice(["job-1", "job-2", "job-[2]", "j%b-3", "JOB-1", "*", "", "job\n1"])
            ended = None if state in PENDING else float(k) + 10.0
            record = JobRecord(f"{k:024x}", title, chance.choice(PEOPLE), at, name, 1, float(k), state, wait=wait)
            record = replace(record, ended_at=ended, account=chance.choice(["", "bio"]))
            jobs.add(connection, record, "", {})
            if not name:
                jobs.add_unplaced(connection, UnplacedRecord(record.id, reach, 0.0, "id-oak"))
            made.append(record)
    return made


def is_wanted(chosen: Filter, one: JobRecord) -> bool:
    """The specification of a filter."""

    def shown(at: str) -> bool:
        return chosen.clusters is None or (
            at in chosen.clusters and (at not in chosen.own or one.requestor in chosen.own[at])
        )

    states = chosen.states or (PENDING if chosen.reasons else list(JobState))
    return (
        one.state in states
        and any(shown(at) for at in ([one.cluster_id] if one.cluster_id else ["id-oak", "id-elm"]))
        and one.cluster in (chosen.places or [one.cluster])
        and one.requestor in (chosen.requestors or [one.requestor])
        and (not chosen.reasons or (one.wait or {}).get("reason") in chosen.reasons)
        and (chosen.ids is None or one.id in chosen.ids)
        and (chosen.names is None or any(fnmatchcase(one.name, name.replace("[", "[[]")) for name in chosen.names))
        and (chosen.exactly is None or one.name in chosen.exactly)
        and (not chosen.accounts or one.account in chosen.accounts)
        and (chosen.since is None or one.ended_at is None or one.ended_at >= chosen.since)
        and (chosen.until is None or one.submitted_at <= chosen.until)
        and (chosen.before is None or (one.id > chosen.before if chosen.oldest else one.id < chosen.before))
    )


def any_filter(chance: random.Random) -> Filter:
    ids = [f"id-{name}" for name in NAMES]
    seen = chance.choice([None, chance.sample(ids, chance.randrange(5))])
    own = {one: chance.sample(PEOPLE, chance.randrange(3)) for one in seen or () if chance.random() < 0.5}
    return Filter(
        clusters=seen,
        states=chance.choice([(), (), ["FAILED"], ["WAITING", "UNPLACED"], ["COMPLETED", "RUNNING"]]),
        places=chance.choice([None, None, *([name] for name in NAMES), ["oak", "elm"], ["none"]]),
        before=chance.choice([None, f"{chance.randrange(400):024x}"]),
        limit=chance.choice([1, 3, 7, 100]),
        requestors=chance.choice([None, None, *([one] for one in PEOPLE), PEOPLE[:2]]),
        own=own,
        reasons=chance.choice([(), (), (), ["full"], ["full", "other"]]),
        ids=chance.choice([None] * 4 + [[f"{chance.randrange(400):024x}" for _ in range(9)], []]),
        names=chance.choice([None] * 4 + [["job-1*"], ["*"], ["*[2]", "job-?"], ["j%b-*", "job_1"], ["JOB-*"], []]),
        exactly=chance.choice([None] * 4 + [["job-1"], ["*", "job-[2]"]]),
        accounts=chance.choice([(), (), (), ["bio"]]),
        since=chance.choice([None] * 4 + [200.0]),
        until=chance.choice([None] * 4 + [200.0]),
        oldest=chance.random() < 0.5,
    )


@pytest.mark.parametrize("most", [pages.MOST_RANGES, 7, 0])
def test_page_holds_what_its_filter_wants(store: Store, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(22)
    monkeypatch.setattr(pages, "MOST_RANGES", most)
    made = [replace(one, requestor=one.requestor.replace("\0", "\ufffd")) for one in some_jobs(store, 400, chance)]
    with store.write() as connection:
        clusters.remove(connection, "id-yew")  # its jobs are history, and are found by its name
    for _ in range(examples(120)):
        chosen = any_filter(chance)
        clean = replace(
            chosen, requestors=chosen.requestors and [one.replace("\0", "\ufffd") for one in chosen.requestors]
        )
        clean = replace(clean, own={k: [p.replace("\0", "\ufffd") for p in v] for k, v in chosen.own.items()})
        expected = sorted((one.id for one in made if is_wanted(clean, one)), reverse=not chosen.oldest)
        with store.read() as connection:
            assert [one.id for one in pages.listing(connection, chosen)] == expected[: chosen.limit], chosen


def test_events_of_some_clusters_come_in_order(store: Store) -> None:
    with store.write() as connection:
        for k in range(300):
            events.add(connection, float(k), f"c{k % 7 if k % 50 else 9}", "job", job=str(k))
    with store.read() as connection:
        every = events.after(connection, 0, None)
        for seen in (["c1"], ["c9", "c3"], [], [f"c{k}" for k in range(10)]):
            expected = [one for one in every if one.cluster_id in seen and one.number > 40]
            for most in (1, 5, 500):
                assert events.after(connection, 40, seen, most) == expected[:most]


LONG = {
    "rare person": Filter(requestors=["rare"]),
    "nobody": Filter(requestors=["nobody"]),
    "quiet cluster": Filter(places=["elm"]),
    "quiet token": Filter(clusters=["id-elm", "id-fir"]),
    "quiet and busy": Filter(clusters=["id-elm", "id-oak"]),
    "own": Filter(clusters=["id-elm", "id-oak"], own={"id-oak": ["rare"], "id-elm": ["ann"]}),
    "state": Filter(states=["FAILED"]),
    "state there": Filter(states=["FAILED"], places=["oak"]),
    "person there": Filter(requestors=["rare"], clusters=["id-oak"]),
    "last page": Filter(clusters=["id-oak"], before=f"{5:024x}"),
}


def steps_of(store: Store, chosen: Filter) -> int:
    """Count the hundreds of instructions that SQLite takes for a page."""
    counted = []
    with store.read() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(lambda: counted.append(1), 100)
        pages.listing(connection, replace(chosen, limit=10))
        driver.set_progress_handler(None, 0)
    return len(counted)


def test_page_takes_no_more_work_as_the_history_grows(store: Store) -> None:
    """The newest 100 of a token of 100 clusters took 522 ms beside 200,000 jobs."""
    if store.many_processes:
        pytest.skip("counts the instructions of SQLite")
    for name in NAMES:
        add_cluster(store, f"id-{name}", name)
    results = []
    for begin, end in ((0, 300), (300, 6_000)):
        with store.write() as connection:
            for k in range(begin, end):
                at, who = ("elm" if k % 100 == 7 and k < 300 else "oak"), "rare" if k == 44 else "ann"
                state = JobState.FAILED if k == 55 else JobState.COMPLETED
                jobs.add(connection, JobRecord(f"{k:024x}", "", who, f"id-{at}", at, 1, 0.0, state), "", {})
        results.append({name: steps_of(store, chosen) for name, chosen in LONG.items()})
    assert {name: many for name, many in results[1].items() if many > 2 * results[0][name] + 10} == {}


def test_file_gives_space_back_after_forgetting(store: Store) -> None:
    if store.many_processes:
        pytest.skip("PostgreSQL does so by itself")
    with store.write() as connection:
        for k in range(400):
            jobs.add(connection, JobRecord(f"{k:024x}", "", "", "", "", 1, 0.0, ended_at=1.0), "x" * 9_000, {})
    before = _pages(store)
    for _ in range(8):
        with store.write() as connection:
            jobs.forget(connection, 2.0, 50)
        store.shrink()
    assert _pages(store) < before / 2


def _pages(store: Store) -> int:
    with store.read() as connection:
        return int(connection.execute(sa.text("PRAGMA page_count")).scalar_one())
