"""Who takes no tasks, in words: what a job is told that waits for workers."""

from dataclasses import replace

import pytest

from rainbow.scheduling import cluster_index
from rainbow.scheduling.interface import cluster_index_of
from rainbow.scheduling.invariants import every_wait
from rainbow.state_machine import WorkerState as W
from rainbow.text import some
from tests.support.policies.views import job, plan, view

DRAINING, OFFLINE, LOST, NEW = W.DRAINING, W.OFFLINE, W.LOST, W.NEW


def cluster(*states, of=()):
    """Workers in these states, and jobs that wait."""
    made = view(list(of), workers=len(states))
    return replace(made, workers=[replace(w, state=s) for w, s in zip(made.workers, states, strict=True)])


SAID = [
    ((), "the cluster has no workers"),
    ((W.READY,) * 3, ""),
    ((DRAINING,) * 4, "all 4 workers are draining (node0, node1, node2, node3)"),
    ((LOST,), "the only worker is lost (node0)"),
    ((NEW,) * 6, "all 6 workers are without an agent (node0, node1, node2, node3, node4, …)"),
    (
        (OFFLINE, LOST, OFFLINE, LOST),
        "2 of 4 workers are offline (node0, node2), 2 lost (node1, node3)",
    ),
    ((W.READY, W.READY, W.QUARANTINED), "1 of 3 workers is quarantined (node2)"),
    (
        (DRAINING,) * 4 + (OFFLINE,) * 3 + (LOST,),
        "4 of 8 workers are draining (node0, node1, node2, node3), 3 offline (node4, …), 1 lost",
    ),
]


@pytest.mark.parametrize(("states", "said"), SAID)
def test_states_are_counted_and_five_workers_named(states, said):
    assert cluster_index.away_in_words(cluster_index_of(cluster(*states))) == said


def test_jobs_of_a_cluster_without_ready_workers_hear_which_are_away():
    of = cluster(DRAINING, DRAINING, OFFLINE, LOST, of=[job("a", 1)])
    (wait,) = every_wait(of, plan(of))
    assert wait.reason == "no-worker-ready"
    assert (
        wait.text
        == "no worker is available: 2 of 4 workers are draining (node0, node1), 1 offline (node2), 1 lost (node3)"
    )
    assert wait.facts == {"workers": 4, "states": {"DRAINING": 2, "LOST": 1, "OFFLINE": 1}}


@pytest.mark.parametrize(
    ("states", "more"), [((W.READY, W.READY), ""), ((W.READY, LOST), "; 1 of 2 workers is lost (node1)")]
)
def test_job_no_ready_worker_can_host_hears_of_the_others(states, more):
    of = cluster(*states, of=[job("wide", 3)])
    (wait,) = every_wait(of, plan(of))
    ready = states.count(W.READY)
    able = f"{ready} of {some(ready, 'ready worker')} can run a part of this job, too few for all of it"
    assert wait.text == able + more
    facts = {"ready": ready, "hosts": ready, "workers": 2, "states": {"LOST": 1} if LOST in states else {}}
    assert wait.facts == facts


def test_job_that_has_no_part_a_ready_worker_can_run_hears_so():
    of = view([job("large", 1, kind="big")], workers=2, kinds={"node1": "big"})
    of = replace(of, workers=[of.workers[0], replace(of.workers[1], state=DRAINING)])
    (wait,) = every_wait(of, plan(of))
    assert wait.text == "0 of 1 ready worker can run this job; 1 of 2 workers is draining (node1)"


def test_counts_follow_every_change_of_a_state():
    census = cluster_index_of(cluster(LOST, LOST))
    for state, said in ((W.READY, "1 of 2 workers is lost (node1)"), (OFFLINE, None), (LOST, None)):
        census.put_worker(replace(census.workers["node0"], state=state))
        assert said is None or cluster_index.away_in_words(census) == said
    assert cluster_index.facts(census) == {"workers": 2, "states": {"LOST": 2}}
