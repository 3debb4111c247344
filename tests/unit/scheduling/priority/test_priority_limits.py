"""Limits, reservations and reasons of the priority policy, one situation each."""

from dataclasses import replace

from rainbow.matching import Take
from rainbow.scheduling import GangView, JobView, Priority, ReservationView, Reserve, Start
from rainbow.scheduling.feasibility import can_ever, can_now
from rainbow.text import rfc3339
from tests.support.policies.dispatching import Job, job_view
from tests.support.policies.priority_cases import NOW, asking, placed, plan, running, view, waits


def test_user_limit_counts_jobs_and_lets_others_pass():
    made = plan(
        view(
            [asking("a"), asking("b"), asking("c", requestor="other")], runs=[running("r", "n0")], max_jobs_per_user=2
        )
    )
    assert set(placed(made)) == {"a", "c"}
    assert waits(made)["b"].reason == "running-limit"


def test_tasks_at_once_bounds_one_jobs_tasks():
    gangs = tuple(replace(job_view(asking("j")).gangs[0], number=k, tasks=(f"j-{k}",)) for k in range(5))
    of = view([])
    several = JobView("j", "user", 0.0, gangs, 0, 0, {"tasks_at_once": 2})
    assert len(placed(plan(replace(of, jobs=[several])))) == 2


def test_quota_binds_by_name_in_braces_and_together_without():
    each = [{"name": "q", "limits": [{"users": "{*}", "to": {"slots": 1}}]}]
    jobs = [asking("a1", requestor="ann"), asking("a2", requestor="ann"), asking("b1", requestor="bob")]
    made = plan(view(jobs, quotas=each))
    assert set(placed(made)) == {"a1", "b1"}
    facts = waits(made)["a2"].facts
    assert (facts["reasons"], facts["limits"], facts["start"]) == (
        {"quota exceeded": 4},
        ["quota q/0/ann slots"],
        rfc3339(NOW + 100),
    )
    together = [{"name": "q", "limits": [{"users": "ann,bob", "to": {"slots": 2}}]}]
    assert set(placed(plan(view(jobs, quotas=together)))) == {"a1", "a2"}
    first = [{"name": "q", "limits": [{"users": "ann", "to": {"slots": 5}}, {"to": {"slots": 0}}]}]
    assert set(placed(plan(view(jobs, quotas=first)))) == {"a1", "a2"}
    by_host = [{"name": "q", "limits": [{"hosts": "{*}", "to": {"slots": "$num_proc*0.5"}}]}]
    assert placed(plan(view([asking("a", 3)], quotas=by_host))) == {"a": {"n0": 1, "n1": 1, "n2": 1}}


def test_licences_are_counted_for_the_cluster():
    of = view([])
    lone = job_view(asking("j")).gangs[0].slots[0]
    jobs = []
    for k in range(3):
        gang = GangView(f"j{k}", 0, (f"j{k}",), f"j{k}", 50.0, (replace(lone, outside={"licence": 2}),))
        jobs.append(JobView(f"j{k}", "user", 0.0, (gang,)))
    made = plan(replace(of, jobs=jobs, consumables={"licence": 5}))
    assert [o.task for o in made.orders if isinstance(o, Start)] == ["j0", "j1"]
    assert [(o.job, o.at, o.placement[""]) for o in made.orders if isinstance(o, Reserve)] == [
        ("j2", NOW + 50, {"licence": 2})
    ]


def test_default_requests_are_taken_of_workers_and_of_the_cluster():
    workers = {"n0": {"core": 4, "memory": 8}, "n1": {"core": 4, "memory": 2}}
    defaults = {"memory": {"default": 3}, "licence": {"default": 1, "per": "job"}}
    jobs = [asking("a"), asking("b"), asking("c"), replace(asking("d"), amounts={"core": 1, "memory": 1})]
    of = replace(view(jobs, workers, consumables=defaults), consumables={"licence": 3})
    starts = {o.task: o.placement for o in plan(of).orders if isinstance(o, Start)}
    assert starts == {
        "a": {"n0": {"core": 1, "memory": 3}, "": {"licence": 1}},
        "b": {"n0": {"core": 1, "memory": 3}, "": {"licence": 1}},
        "d": {"n0": {"core": 1, "memory": 1}, "": {"licence": 1}},
    }


def test_reservation_goes_on_when_the_cluster_is_full_and_stops_in_the_original():
    runs = [running(f"r{k}", f"n{k}", 2) for k in range(4)]
    jobs = [asking(f"j{k}", 8, reserve=True) for k in range(3)]
    ours = plan(view(jobs, runs=runs, discipline="tuned", max_reservation=10))
    assert [o.at for o in ours.orders] == [NOW + 90, NOW + 190, NOW + 290]
    theirs = plan(view(jobs, runs=runs, discipline="tuned", max_reservation=10, compat="grid_engine"))
    assert [o.at for o in theirs.orders] == [NOW + 90]


def test_advance_reservation_holds_its_jobs_and_ends_them_in_time():
    stored = ReservationView("ar", {"n0": {"core": 2}}, NOW - 5, NOW + 50)
    jobs = [
        asking("in", 2, 50.0, reservation="ar"),
        asking("long", 1, 60.0, reservation="ar"),
        asking("free", 8, 10.0),
        asking("no", reservation="x"),
    ]
    made = plan(view(jobs, reservations=(stored,)))
    assert placed(made) == {"in": {"n0": 2}}
    assert waits(made)["long"].reason == "never"
    assert waits(made)["no"].reason == "attributes"
    assert waits(made)["free"].facts["start"] == rfc3339(NOW + 50)


def test_advance_reservation_gives_no_more_than_is_really_free():
    stored = ReservationView("ar", {"n0": {"core": 2}}, NOW - 5, NOW + 50)
    jobs = [asking("a", 1, 40.0, reservation="ar"), asking("b", 1, 40.0, reservation="ar")]
    made = plan(view(jobs, runs=[running("r", "n0", walltime=500.0)], reservations=(stored,)))
    assert placed(made) == {"a": {"n0": 1}}


def test_gang_only_the_matcher_can_place_takes_whole_workers_and_is_promised_them():
    def place(demand, free):
        return Take(tuple(("s", {name: {"core": 1}}) for name in free[:3]), {}) if len(free) >= 3 else None

    gang = GangView("m", 0, ("m",), "m/0", 30.0)
    of = replace(view([], runs=[running("r", "n0"), running("s", "n1", walltime=50.0)]), place=place)
    made = plan(replace(of, jobs=[JobView("m", "user", 0.0, (gang,))]))
    assert [(o.at, sorted(o.placement)) for o in made.orders] == [(NOW + 40, ["n1", "n2", "n3"])]
    made = plan(replace(of, runs=[], jobs=[JobView("m", "user", 0.0, (gang,))], workers=view([]).workers))
    assert [o.task for o in made.orders] == ["m"]


KEPT = "(kept unless a worker fails or a higher priority comes)"


def test_reasons_are_counted_as_people_know_them():
    workers = {"a": {"core": 1}, "b": {"core": 4}, "c": {"core": 4}}
    runs = [running("r", "b", 4, walltime=70.0), running("s", "c", 3, walltime=130.0)]
    job_ = Job("j", 0.0, 1, 5, 60.0, amounts={"core": 4})
    made = plan(view([job_], workers, runs))
    wait = waits(made)["j"]
    assert wait.text == "0/3 workers: 2 busy until 00:17 UTC, 1 too small; promised start 00:17 UTC " + KEPT
    assert wait.facts["start"] == wait.facts["busy_until"] == rfc3339(NOW + 60)


def test_can_ever_and_can_now_are_two_answers():
    runs = [running("r", "n0", 2), running("s", "n1", 2), running("t", "n2", 2), running("u", "n3", 2)]
    of = view([asking("a", 2), asking("b", 9), asking("c", queue="zzz")], runs=runs)
    assert (can_ever(Priority(), of, "a").can, can_now(Priority(), of, "a").can) == (True, False)
    assert can_now(Priority(), of, "a").text.startswith("0/4 workers: 4 busy")
    assert not can_ever(Priority(), of, "b").can
    assert can_ever(Priority(), of, "b").text.startswith("4/4 workers: 4 room for one slot")
    assert can_now(Priority(), replace(of, runs=(), workers=view([]).workers), "a").can
