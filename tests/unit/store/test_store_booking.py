"""What a cluster's last report does not say is booked, whatever happened in which order."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.state_machine import JobState
from rainbow.store import cluster_states, clusters, jobs, open_store
from tests.conftest import examples
from tests.support.stores import add_cluster, job

EVENTS = st.lists(st.tuples(st.sampled_from(["submit", "accept", "end", "report"]), st.integers(0, 7)), max_size=40)


@given(EVENTS)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_booked_after_any_history_equals_counting_by_hand(tmp_path_factory: Any, events: list[Any]) -> None:
    """Two sums over clocks say the same as going through the history event by event."""
    store = open_store(str(tmp_path_factory.mktemp("booking") / "x.db"))
    add_cluster(store)
    known: dict[int, dict[str, Any]] = {}
    with store.write() as connection:
        cluster_states.put(connection, "c1", {"nodes_free": 0}, 0.0)
        for what, k in events:
            _happen(connection, known, what, k)
        expected = sum(_booking(seen) for seen in known.values())
        assert cluster_states.booked(connection, ["c1"]) == {"c1": expected}
    store.close()


def _happen(connection: sa.Connection, known: dict[int, dict[str, Any]], what: str, k: int) -> None:
    seen = known.get(k)
    if what == "submit" and seen is None:
        known[k] = {"nodes": k + 1, "accepted": False, "ended": False, "reported": None}
        jobs.add(connection, job(f"j{k}", k + 1), "", {})
    elif what == "accept" and seen and not (seen["accepted"] or seen["ended"]):
        seen["accepted"] = True
        jobs.change(connection, f"j{k}", accepted_clock=clusters.tick(connection, "c1"))
    elif what == "end" and seen and not seen["ended"]:
        seen["ended"] = True
        clock = clusters.tick(connection, "c1")
        jobs.change(connection, f"j{k}", state=JobState.COMPLETED, ended_clock=clock)
    elif what == "report":
        cluster_states.put(connection, "c1", {"nodes_free": 0}, 0.0)
        for each in known.values():
            each["reported"] = (each["accepted"], each["ended"])


def _booking(seen: dict[str, Any]) -> int:
    """What the cluster's last report does not say of one job: its nodes taken since, or given back since."""
    was_accepted, had_ended = seen["reported"] or (False, False)
    if seen["ended"]:
        return seen["nodes"] if was_accepted and not had_ended else 0
    return 0 if was_accepted else -seen["nodes"]
