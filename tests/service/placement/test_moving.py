"""A cluster is lost, drained or deleted: what waits there is placed anew, what it may still run stays."""

from itertools import count, pairwise

import pytest

from rainbow.service import Service
from rainbow.service.live_state.mirror import Mirrors
from rainbow.service.placement import failover
from rainbow.service.placement.failover import is_leaving
from rainbow.service.scheduler.loop import step_safely
from tests.conftest import ADMIN, Api, Cluster, grid, jobspec


@pytest.fixture
def pair(api):
    """Two clusters with their agents there."""
    made = [api.register(name, grid(2, 1)) for name in ("elm", "oak")]
    for cluster in made:
        cluster.say("heartbeat", running=[])
    return {cluster.name: cluster for cluster in made}


def submit(api, pair, **more):
    """Submit with the tokens of both; return the job's id, its cluster and the other one."""
    body = {"jobspec": jobspec(), **more}
    answer = api.good("POST", "/v1/jobs", body, *(cluster.token for cluster in pair.values()))
    other = next(cluster for name, cluster in pair.items() if name != answer["cluster"])
    return answer["id"], pair[answer["cluster"]], other


def show(api, job):
    return api.good("GET", f"/v1/jobs/{job}", None, ADMIN)


def decision(api, job, *tokens):
    return api.good("GET", f"/v1/jobs/{job}/why", None, *(tokens or (ADMIN,)))["decision"]


def lose(clock, *others):
    """Only these clusters' agents are still heard of."""
    for _ in range(3):
        clock.now += 40
        for cluster in others:
            cluster.say("heartbeat", running=[])


def steps(api, *clusters):
    """Two steps each: one notices, the next acts."""
    for _ in range(2):
        for cluster in clusters:
            step_safely(api.service, cluster.name)
    assert api.service.faults == {}


def test_waiting_job_leaves_a_lost_cluster_once(api, pair, clock):
    job, first, second = submit(api, pair)
    lose(clock, second)
    steps(api, first)
    assert show(api, job)["cluster"] == second.name
    (move,) = decision(api, job)["moves"]
    assert (move["from"], move["to"], move["why"]) == (first.name, second.name, "its cluster accepts no tasks")
    assert move["selection"]["cluster"] == second.name
    assert [offer["job"] for offer in second.take()] == [job]


def test_waiting_job_stays_while_an_agent_that_signed_off_may_start_again(api, pair, clock):
    job, first, second = submit(api, pair)
    first.say("heartbeat", running=[], workers=[])
    for passed in (0, 30):
        clock.now += passed
        second.say("heartbeat", running=[])
        steps(api, first)
        assert show(api, job)["cluster"] == first.name
    first.say("heartbeat", running=[])
    first.say("heartbeat", running=[], workers=[])
    clock.now += 61
    second.say("heartbeat", running=[])
    steps(api, first)
    assert show(api, job)["cluster"] == second.name


def test_job_never_comes_back_to_a_cluster_it_has_left(api, pair, clock):
    job, first, second = submit(api, pair)
    lose(clock, second)
    steps(api, first)
    lose(clock, first)
    steps(api, second)
    assert show(api, job)["cluster"] == second.name
    assert len(decision(api, job)["moves"]) == 1


def test_what_an_agent_has_accepted_stays_and_starts_once(api, pair, clock):
    job, first, second = submit(api, pair)
    (offer,) = first.take()
    lose(clock, second)
    steps(api, first)
    assert (show(api, job)["cluster"], show(api, job)["state"]) == (first.name, "WAITING")
    assert second.take() == []
    stale = first.say("heartbeat", running=[{"id": offer["id"], "attempt": offer["attempt"]}])["stale"]
    assert stale == [offer["id"]]


def test_late_agent_cannot_accept_what_has_moved(api, pair, clock):
    job, first, second = submit(api, pair)
    steps(api, first)
    (offer,) = first.say("receive", max=10)["tasks"]
    lose(clock, second)
    steps(api, first)
    assert show(api, job)["cluster"] == second.name
    answer = first.say("accept", tasks=[{"id": offer["id"], "attempt": offer["attempt"]}])
    assert answer["accepted"] == []
    assert [new["job"] for new in second.take()] == [job]


@pytest.mark.parametrize("verb", ["drain", "offline"])
def test_waiting_job_leaves_a_cluster_whose_workers_were_put_away(api, pair, verb):
    job, first, second = submit(api, pair)
    for node in ("n0", "n1"):
        api.good("POST", f"/v1/clusters/{first.name}/workers/{node}:{verb}", None, first.secret)
    steps(api, first)
    assert show(api, job)["cluster"] == second.name


def test_cluster_nobody_has_heard_of_yet_keeps_its_jobs(api):
    oak = api.register("oak", grid(2, 1))
    elm = api.register("elm", grid(2, 1))
    job = api.good("POST", "/v1/jobs", {"jobspec": jobspec()}, oak.token, elm.token)["id"]
    steps(api, oak, elm)
    assert "moves" not in decision(api, job)


def test_deleted_cluster_gives_its_jobs_away_or_stays(api, pair):
    job, first, second = submit(api, pair)
    api.good("DELETE", f"/v1/clusters/{first.name}", None, first.secret)
    assert show(api, job)["cluster"] == second.name
    assert decision(api, job)["moves"][0]["why"] == "cluster deleted"
    api.problem(409, "conflict", "DELETE", f"/v1/clusters/{second.name}", None, second.secret)
    assert [offer["job"] for offer in second.take()] == [job]


@pytest.mark.parametrize("drain", [False, True], ids=["delete", "drain"])
def test_jobs_of_a_deleted_cluster_leave_in_many_short_transactions(api, pair, monkeypatch, drain):
    """One write transaction for all of them kept everybody else waiting."""
    monkeypatch.setattr(failover, "SLICE", 0.0)
    ids = [submit(api, pair)[0] for _ in range(12)]
    at = lambda name: sum(show(api, job)["cluster"] == name for job in ids)  # noqa: E731
    gone, ends = [at("oak")], api.service.store.observe
    monkeypatch.setattr(
        api.service.store,
        "observe",
        lambda kind, took: (ends(kind, took), kind == "commit" and gone.append(at("oak"))),
    )
    api.good("DELETE", f"/v1/clusters/elm{'?drain=true' if drain else ''}", None, pair["elm"].secret)
    assert gone[0] < gone[-1] == 12
    assert max(after - before for before, after in pairwise(gone)) <= failover.AT_LEAST


def test_a_cluster_whose_jobs_have_no_other_place_keeps_all_of_them(api, pair):
    """Those that might go do not: the deletion is refused as a whole."""
    ids = [submit(api, pair)[0] for _ in range(6)]
    first = next(cluster for cluster in pair.values() if cluster.name == show(api, ids[0])["cluster"])
    alone = api.good("POST", "/v1/jobs", {"jobspec": jobspec()}, first.token)["id"]
    before = {job: show(api, job)["cluster"] for job in [*ids, alone]}
    api.problem(409, "conflict", "DELETE", f"/v1/clusters/{first.name}", None, first.secret)
    assert {job: show(api, job)["cluster"] for job in [*ids, alone]} == before


def test_job_moves_only_where_its_submitter_might_have_sent_it(api, pair, clock):
    """Not to a cluster whose token was not brought, nor to one registered since under a name that was allowed."""
    elm, oak = pair["elm"], pair["oak"]
    alone = api.good("POST", "/v1/jobs", {"jobspec": jobspec()}, oak.token)["id"]
    api.good("DELETE", "/v1/clusters/elm", None, elm.secret)
    clock.now += 1
    new = api.register("elm", grid(2, 1))
    new.say("heartbeat", running=[])
    lose(clock, new)
    steps(api, oak)
    assert show(api, alone)["cluster"] == "oak"


def test_limits_of_the_other_cluster_hold(api, pair, clock):
    job, first, second = submit(api, pair)
    api.good("PATCH", f"/v1/clusters/{second.name}/scheduler", {"limits": {"throttle": 0}}, second.secret)
    lose(clock, second)
    steps(api, first)
    assert show(api, job)["cluster"] == first.name
    api.good("PATCH", f"/v1/clusters/{second.name}/scheduler", {"limits": {"throttle": -1}}, second.secret)
    clock.now += 11
    second.say("heartbeat", running=[])
    steps(api, first)
    assert show(api, job)["cluster"] == second.name


def test_move_tells_nobody_of_clusters_that_do_not_exist_for_them(api, pair, clock):
    job, first, second = submit(api, pair)
    lose(clock, second)
    steps(api, first)
    answer = decision(api, job, second.token)
    assert first.name not in str(answer)
    assert answer["moves"][0]["to"] == second.name


def test_many_jobs_leave_a_few_at_a_time_and_the_next_look_counts_from_the_end(api, pair, clock, monkeypatch):
    """One write transaction for 5,000 jobs kept everybody else waiting for 37 s."""
    monkeypatch.setattr(failover, "SLICE", 0.0)
    monkeypatch.setattr(failover, "AT_LEAST", 3)
    ids = [submit(api, pair)[0] for _ in range(40)]
    at = lambda name: {job for job in ids if show(api, job)["cluster"] == name}  # noqa: E731
    steps(api, *pair.values())  # both have been read
    lose(clock, pair["oak"])
    step_safely(api.service, "elm")  # notices
    before, wrote = len(at("elm")), 0
    assert before > 2 * failover.AT_LEAST
    mirror = api.service.state(Mirrors)[api.service.catalogue["oak"].id]
    while at("elm") and wrote < 20:
        waits = len(at("elm"))
        step_safely(api.service, "elm")
        assert 0 < waits - len(at("elm")) <= failover.AT_LEAST, "one short transaction a step"
        step_safely(api.service, "elm")  # at once: the others have their share first
        assert is_leaving(api.service, api.service.catalogue["elm"].id) == bool(at("elm"))
        passed = max(1.0, api.service.state(failover.Looks)[api.service.catalogue["elm"].id].pause)
        clock.now += passed  # the pause is measured: a busy machine makes a longer one
        pair["oak"].say("heartbeat", running=[])
        wrote += 1
    assert wrote >= 3
    step_safely(api.service, "oak")
    assert api.service.state(Mirrors)[api.service.catalogue["oak"].id] is mirror
    assert set(mirror.jobs) == at("oak") == set(ids), "those who came are found among what has changed"
    assert api.service.state(Mirrors)[api.service.catalogue["elm"].id].jobs == {}
    look = api.service.state(failover.Looks)[api.service.catalogue["elm"].id]
    assert look.pause >= failover.PAUSE
    assert look.ended == pytest.approx(clock.now - passed)


@pytest.mark.parametrize("many", [1, 5])
def test_all_clusters_that_are_away_share_one_part_of_the_time(api, clock, monkeypatch, many):
    """A thousand that were lost together took a core for hours, a few jobs of each every ten seconds."""
    monkeypatch.setattr(failover, "perf_counter", count().__next__)  # each look takes some seconds
    lost = [api.register(f"lost{k}", grid(1, 1)) for k in range(many)]
    for cluster in lost:
        api.good("POST", "/v1/jobs", {"jobspec": jobspec()}, cluster.token)
        cluster.say("heartbeat", running=[])
    lose(clock)
    steps(api, *lost)
    looks = api.service.state(failover.Looks)
    assert len(looks) == many
    steps(api, *lost)
    assert {look.ended for look in looks.values()} == {clock.now}, "nobody looks again before its pause is over"
    assert max(look.pause for look in looks.values()) >= 2 * (many / failover.SHARE - 1)
    for cluster in lost:
        cluster.say("heartbeat", running=[])
    steps(api, *lost)
    assert not looks


def test_jobs_that_were_still_to_leave_do_so_after_a_restart(api, pair, clock, monkeypatch):
    monkeypatch.setattr(failover, "SLICE", 0.0)
    monkeypatch.setattr(failover, "AT_LEAST", 3)
    ids = [submit(api, pair)[0] for _ in range(24)]
    lose(clock, pair["oak"])
    for _ in range(2):
        step_safely(api.service, "elm")
    assert any(show(api, job)["cluster"] == "elm" for job in ids)
    again = Api(Service(api.service.store, api.service.settings, clock))
    lose(clock, Cluster(again, "oak", {"token": pair["oak"].token, "secret": pair["oak"].secret}))
    for _ in range(20):
        step_safely(again.service, "elm")
        clock.now += 1.0
    assert all(show(again, job)["cluster"] == "oak" for job in ids)
