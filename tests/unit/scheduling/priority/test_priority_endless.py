"""Jobs without a time limit under the priority policy: they count as endless, and nobody waits for ever for them."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling import Priority, ReservationView, Reserve, Start, check_plan
from rainbow.text import rfc3339
from tests.support.policies.dispatching import Job, job_view, make_view, run_view
from tests.support.policies.priority_cases import FOUR, NOW, asking, placed, plan, running, view, waits

PASSING = [{}, {"discipline": "tuned"}, {"discipline": "tuned", "max_reservation": 2}, {"discipline": "conservative"}]


def endless(name, worker, cores=2):
    return replace(running(name, worker, cores), until=0.0)


def reserved(made):
    return {order.job: order for order in made.orders if isinstance(order, Reserve)}


@pytest.mark.parametrize("how", PASSING)
def test_wide_job_at_the_head_keeps_space_from_jobs_without_a_limit(how):
    jobs = [asking("wide", 8), asking("forever", 1, 0.0), asking("hour", 1, 3600.0)]
    made = plan(view(jobs, runs=[endless("r", "n0")], **how))
    assert set(placed(made)) == {"hour"}
    stored = reserved(made)["wide"]
    assert (stored.placement, stored.at) == ({name: {"core": 2} for name in FOUR}, float("inf"))
    answer = waits(made)
    assert (answer["wide"].reason, answer["wide"].facts["after"]) == ("reserved", ["r"])
    assert answer["forever"].facts["kept_for"]["job"] == "wide"


def test_tuned_promises_the_head_a_time_though_nobody_may_reserve():
    made = plan(view([asking("wide", 8), asking("long", 1, 500.0)], runs=[running("r", "n0", 2)], discipline="tuned"))
    assert reserved(made)["wide"].at == NOW + 90
    assert placed(made) == {}


def test_compat_reserves_for_nobody_who_may_not():
    given_ = {"discipline": "tuned", "compat": "grid_engine"}
    made = plan(view([asking("wide", 8), asking("long", 1, 500.0)], runs=[running("r", "n0", 2)], **given_))
    assert (reserved(made), set(placed(made))) == ({}, {"long"})


def test_what_is_not_kept_is_for_jobs_without_a_limit_too():
    made = plan(
        view(
            [asking("wide", 4), *(asking(f"f{k}", 1, 0.0) for k in range(4))],
            runs=[endless("r0", "n0"), endless("r1", "n1"), endless("r2", "n2")],
        )
    )
    assert placed(made) == {}  # the two free cores are kept, and two of what ends first
    free = plan(
        view([asking("one", 3, 50.0), asking("f", 1, 0.0)], {"a": {"core": 2}, "b": {"core": 4}}, [endless("r", "a")])
    )
    assert set(placed(free)) == {"one", "f"}


def test_reservation_ahead_is_named_with_its_end_and_what_would_start_now():
    ahead = plan(view([asking("wide", 8), asking("long", 1, 500.0)], runs=[running("r", "n0", 2, walltime=130.0)]))
    wait = waits(ahead)["long"]
    assert wait.text == (
        "0/4 workers: 3 reserved for other jobs, 1 busy until 00:20 UTC; "
        "kept from 00:18 UTC until 00:20 UTC for job wide; \u2264 120 s would start now"
    )
    start, end = rfc3339(NOW + 120), rfc3339(NOW + 220)
    assert wait.facts["kept_for"] == {"job": "wide", "start": start, "end": end}
    assert wait.facts["starts_now_within"] == 120
    assert set(
        placed(
            plan(view([asking("wide", 8), asking("long", 1, 120.0)], runs=[running("r", "n0", 2, walltime=130.0)]))
        )
    ) == {"long"}


def test_advance_reservation_ahead_is_named_too():
    stored = (ReservationView("ar", {name: {"core": 2} for name in FOUR}, NOW + 60, NOW + 160),)
    wait = waits(plan(view([asking("j", 1, 0.0)], reservations=stored)))["j"]
    assert wait.facts["kept_for"] == {"reservation": "ar", "start": rfc3339(NOW + 60), "end": rfc3339(NOW + 160)}
    assert wait.text.startswith(
        "it has no time limit; with -t 60s or less it would start now; "
        "0/4 workers: 4 reserved for other jobs; kept from 00:17 UTC until 00:19 UTC for reservation ar; "
    )


def lived(seed, how, wide, workers, steps=400):
    """Let jobs of all kinds come for ever; return after how many ends a job of `wide` cores starts, None: it has not.

    All that is said of lengths is true or nothing; what has no limit ends some day all the same.
    """
    chance, policy = random.Random(seed), Priority()
    given_ = policy.check(how)
    runs, waiting, made, memory, now = {}, [], {}, {}, 0.0
    for count in range(steps):
        while len(waiting) < 5:
            name = f"j{len(made)}"
            seconds = chance.choice([5.0, 20.0, 100.0])
            job = Job(name, now, chance.choice([1, 1, 1, 2]), seconds, chance.choice([0.0, seconds]))
            if count >= 20 and "wide" not in made:
                job = Job("wide", now, wide, 10.0, chance.choice([0.0, 10.0]))
            made[job.id] = job
            waiting.append(job)
        seen = [run for _, run in runs.values()]
        of = make_view(now, workers, map(job_view, waiting), seen, given_, memory=memory)
        planned = policy.plan(of)
        check_plan(of, planned)
        memory = planned.memory
        for order in planned.orders:
            if isinstance(order, Start):
                job = made[order.task]
                waiting.remove(job)
                run = run_view(job, order.placement, now)
                runs[job.id] = (now + job.runtime, replace(run, until=run.until if job.walltime else 0.0))
                if job.id == "wide":
                    return count
        if runs:
            first = min(runs, key=lambda name: (runs[name][0], name))
            now = runs.pop(first)[0]
    return None


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from(PASSING),
    st.lists(st.integers(1, 4), min_size=2, max_size=5),
    st.data(),
)
def test_no_job_that_fits_waits_for_ever_with_others_without_limits_always_waiting(seed, how, cores, data):
    workers = {f"n{k}": {"core": n} for k, n in enumerate(cores)}
    wide = data.draw(st.integers(max(1, sum(cores) // 2), sum(cores)))
    assert lived(seed, how, wide, workers) is not None
