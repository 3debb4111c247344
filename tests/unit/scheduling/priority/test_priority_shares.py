"""The share tree: usage converges to the shares at every size of job, and counts all that ran."""

import heapq
import random
from collections import Counter, deque
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling import Ended, Priority, Start
from rainbow.scheduling.priority.share_tree import Leaf, turns
from tests.support.policies.dispatching import Job, job_view, make_view, run_view

DEEP = 8  # jobs every user has waiting at any time


def tree(**shares):
    return {"name": "root", "children": [{"name": name, "shares": n} for name, n in shares.items()]}


def used_by(shares, sizes, ends=1_000, interval=0.0, cores=8, **more):
    """Let users with shares always have jobs waiting until so many have ended; return the core-seconds of each.

    `sizes(random, user)` gives (cores, seconds, limit). Plans are made at every end, or every `interval` seconds.
    """
    policy, chance = Priority(), random.Random(7)
    tickets = {"share": 1000, "share_tree": tree(**shares), "halftime": 0, **more.pop("tickets", {})}
    given_ = policy.check({"tickets": tickets, **more})
    made, number = {}, 0

    def new(user):
        nonlocal number
        number += 1
        wide, seconds, limit = sizes(chance, user)
        made[f"j{number:05}"] = job = Job(f"j{number:05}", now, wide, seconds, limit, requestor=user)
        return job

    now, memory, runs, over, used = 0.0, {}, [], [], Counter()
    queues = {user: deque(new(user) for _ in range(DEEP)) for user in shares}
    while sum(used[user, "ends"] for user in shares) < ends:
        waiting = sorted((job for queue in queues.values() for job in queue), key=lambda job: (job.submit, job.id))
        seen = [run for _, _, run in runs]
        view = make_view(now, {"n": {"core": cores}}, map(job_view, waiting), seen, given_, memory=memory)
        plan = policy.plan(replace(view, ended=over))
        memory, over = plan.memory, []
        for order in plan.orders:
            if isinstance(order, Start):
                job = made[order.task]
                queues[job.requestor].remove(job)
                queues[job.requestor].append(new(job.requestor))
                run = run_view(job, order.placement, now)
                run = replace(run, until=run.until if job.walltime else 0.0)
                heapq.heappush(runs, (now + job.runtime, job.id, run))
        now = now + interval if interval else runs[0][0]
        while runs and runs[0][0] <= now:
            end, _, run = heapq.heappop(runs)
            over.append(Ended(run, end))
            used[run.requestor, "ends"] += 1
            used[run.requestor] += made[run.job].least * made[run.job].runtime
    for end, name, _ in runs:
        used[made[name].requestor] += made[name].least * (made[name].runtime - (end - now))
    return {user: used[user] for user in shares}


def parts(used):
    return {user: amount / sum(used.values()) for user, amount in used.items()}


def whole(chance, user):
    return 8, 100.0, 100.0


def small(chance, user):
    return 1, 100.0, 100.0


def mixed(chance, user):
    seconds = chance.choice([10.0, 100.0, 400.0])
    return chance.choice([1, 2, 4, 8]), seconds, chance.choice([seconds, 3 * seconds, 0.0])


def unlike(chance, user):
    """One user's jobs are short, narrow and of inflated limits, the others' long and wide."""
    return (2, 50.0, 2_000.0) if user == "ann" else (8, 100.0, 100.0)


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        (whole, {"ann": 75, "bob": 25}),
        (small, {"ann": 75, "bob": 25}),
        (unlike, {"ann": 75, "bob": 25}),
        (mixed, {"ann": 75, "bob": 25}),
        (mixed, {"ann": 1, "bob": 3, "eve": 6}),
    ],
)
def test_usage_converges_to_the_shares_within_5_percent_after_1000_jobs_of_any_sizes(sizes, shares):
    owed = {user: n / sum(shares.values()) for user, n in shares.items()}
    assert parts(used_by(shares, sizes)) == pytest.approx(owed, rel=0.05)


def test_what_starts_and_ends_between_two_plans_is_counted():
    def brief(chance, user):
        return 8, (10.0 if user == "ann" else 40.0), 60.0

    assert parts(used_by({"ann": 1, "bob": 1}, brief, ends=300, interval=60.0)) == pytest.approx(
        {"ann": 0.5, "bob": 0.5}, rel=0.05
    )


def test_compat_keeps_the_square_of_the_shares_where_one_job_fills_the_cluster():
    result = parts(used_by({"ann": 75, "bob": 25}, whole, ends=300, compat="grid_engine"))
    assert result["ann"] == pytest.approx(0.9, abs=0.03)


def test_decayed_usage_is_what_converges():
    result = used_by({"ann": 75, "bob": 25}, mixed, ends=400, tickets={"halftime": 2})
    assert parts(result) == pytest.approx({"ann": 0.75, "bob": 0.25}, rel=0.1)


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1),
    st.dictionaries(st.sampled_from(["/a", "/b", "/c", "/d"]), st.floats(0, 1e6)),
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(1, 100)), max_size=12),
    st.sampled_from([0.0, 5.0]),
)
def test_turns_are_a_plain_search_for_who_has_used_least_for_its_shares(shares, usage, jobs, compensation):
    waiting = [(Leaf("", user), charge) for user, charge in jobs]
    results = turns(tree(**shares), waiting, usage, compensation)
    there = [user for user in shares if any(user == name for name, _ in jobs)]
    used = {user: usage.get(f"/{user}", 0.0) for user in there}
    if compensation:
        total, all_ = sum(used.values()), sum(shares[user] for user in there)
        used = {user: max(amount, total * shares[user] / all_ / compensation) for user, amount in used.items()}
    remaining = {user: [k for k, (name, _) in enumerate(jobs) if name == user] for user in there}
    for place in results:
        user = jobs[place][0]
        halfway = {one: used[one] + min(used[one], jobs[remaining[one][0]][1] / 2) for one in there if remaining[one]}
        assert halfway[user] / shares[user] <= min(halfway[one] / shares[one] for one in halfway) + 1e-9
        assert remaining[user].pop(0) == place
        used[user] += jobs[place][1]
    assert not any(remaining.values())


def test_groups_keep_their_shares_whoever_of_them_has_jobs():
    groups = {
        "name": "root",
        "children": [
            {"name": "A", "shares": 1, "children": [{"name": "a", "shares": 1}, {"name": "b", "shares": 1}]},
            {"name": "c", "shares": 1},
        ],
    }
    waiting = [(Leaf("", user), 1.0) for user in "aaaacccc"]
    order = turns(groups, waiting, {"/b": 10.0, "/a": 0.0, "/c": 10.0}, 0.0)
    assert Counter("aaaacccc"[k] for k in order[:4]) == {"a": 4}
    waiting.insert(0, (Leaf("", "b"), 1.0))
    order = turns(groups, waiting, {"/b": 10.0, "/a": 0.0, "/c": 10.0}, 0.0)
    assert Counter("baaaacccc"[k] for k in order[:8]) == {"a": 4, "c": 4}
