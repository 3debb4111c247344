"""Any mix of features, on any cluster, makes a plan that may be carried out, run after run."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.matching import Take
from rainbow.scheduling import (
    GangView,
    JobView,
    Priority,
    ReservationView,
    RunView,
    SlotsView,
    Start,
    View,
    WorkerView,
    check_plan,
)
from rainbow.scheduling.feasibility import can_ever, can_now
from rainbow.state_machine import WorkerState
from tests.conftest import examples
from tests.support.policies.dispatching import divide

NOW = 345_600.0 + 8 * 3600  # a Monday, eight in the morning
names = st.sampled_from(["n0", "n1", "n2", "n*", "*"])
few = st.integers(0, 4)

queues = st.dictionaries(
    st.sampled_from(["q", "r"]),
    st.fixed_dictionaries(
        {},
        optional={
            "workers": st.lists(names, min_size=1, max_size=2),
            "slots": few,
            "seq_no": few,
            "resources": st.dictionaries(st.sampled_from(["core", "tape"]), few, max_size=1),
            "calendar": st.sampled_from(
                [{}, {"week": "Mon-Fri=8:1-9=off"}, {"week": "Mon=suspended"}, {"year": "on"}]
            ),
            "load_thresholds": st.dictionaries(st.sampled_from(["load", "core"]), few, max_size=2),
            "suspend_thresholds": st.just({"load": 2}),
            "users": st.just(["ann"]),
            "pe_list": st.just(["fill"]),
        },
    ),
    max_size=2,
)
rules = st.fixed_dictionaries(
    {
        "to": st.dictionaries(
            st.sampled_from(["slots", "core"]), st.sampled_from([0, 1, 3, "$num_proc*2", "load+1"]), max_size=2
        )
    },
    optional={
        "users": st.sampled_from(["*", "{*}", "ann", "!ann"]),
        "hosts": st.sampled_from(["{*}", "n0", "*,!n1"]),
        "queues": st.sampled_from(["q", "{*}"]),
        "pes": st.sampled_from(["*", "!*"]),
        "projects": st.sampled_from(["*", "!*", "p"]),
    },
)
mixes = st.fixed_dictionaries(
    {
        "parallel_environments": st.just(
            {"fill": {"slots": 6}, "round": {"rule": "round_robin"}, "one": {"rule": "pe_slots"}, "two": {"rule": 2}}
        )
    },
    optional={
        "discipline": st.sampled_from(["fcfs", "easy", "conservative", "tuned"]),
        "compat": st.just("grid_engine"),
        "queues": queues,
        "quotas": st.lists(
            st.fixed_dictionaries({"name": st.just("s"), "limits": st.lists(rules, max_size=2)}), max_size=2
        ),
        "load_formula": st.just("load"),
        "load_adjustments": st.just({"load": 0.5}),
        "queue_sort_method": st.just("seqno"),
        "consumables": st.sampled_from(
            [{"gpu": {"per": "job"}}, {"licence": {"per": "job"}}, {"gpu": {"per": "worker"}}]
        ),
        "max_jobs_per_user": few,
        "tickets": st.just(
            {
                "share": 10,
                "functional": 10,
                "share_tree": {"name": "r", "children": [{"name": "default"}]},
                "override": {"users": {"ann": 3}},
            }
        ),
        "weights": st.just({"ticket": 1, "waiting_time": 0.2}),
        "default_duration": st.just(60),
    },
)
slots = st.builds(
    lambda label, core, gpu, least, more, apart, licence: SlotsView(
        label, {"core": core, "gpu": gpu}, least, least + more, (), apart, {"licence": licence} if licence else {}
    ),
    st.sampled_from("st"),
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(1, 3),
    st.integers(0, 3),
    st.booleans(),
    few,
)
asked = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["q", "r", "q@n1"]),
        "master_queue": st.sampled_from(["q", "r@n0"]),
        "pe": st.sampled_from(["fill", "round", "one", "two", "*"]),
        "project": st.just("p"),
        "reserve": st.booleans(),
        "reservation": st.just("ar"),
        "soft": st.just({"queue": "r", "resources": {"gpu": 1}}),
        "tasks_at_once": few,
        "deadline": st.just(NOW + 50),
    },
)


@st.composite
def jobs(draw):
    made = []
    for k in range(draw(st.integers(1, 6))):
        gangs = tuple(
            GangView(
                f"j{k}",
                n,
                (f"j{k}-{n}",),
                f"j{k}/{n}",
                draw(st.sampled_from([0.0, 5.0, 90.0])),
                tuple(draw(st.lists(slots, max_size=2))),
            )
            for n in range(draw(st.integers(1, 3)))
        )
        made.append(JobView(f"j{k}", draw(st.sampled_from(["ann", "bob"])), NOW - 9 + k, gangs, 0, 0, draw(asked)))
    return made


def place(demand, free):
    """The matcher of gangs without amounts: two whole workers."""
    return Take(tuple(("s", {name: {"core": 1}}) for name in free[:2]), {}) if len(free) > 1 else None


@st.composite
def clusters(draw):
    workers, runs = [], []
    for k in range(draw(st.integers(1, 4))):
        core, busy = draw(st.integers(1, 4)), draw(st.integers(0, 2))
        busy = min(busy, core)
        capacity = {"core": core, "gpu": k % 2, "node": 1}
        state = draw(st.sampled_from([WorkerState.READY, WorkerState.READY, WorkerState.DRAINING]))
        load = draw(st.sampled_from([{}, {"load": 1.0}, {"load": 3.0}]))
        workers.append(
            WorkerView(
                f"n{k}",
                f"k{core}{k % 2}",
                capacity,
                {**capacity, "core": core - busy},
                state,
                0.0,
                busy,
                "",
                {},
                load,
            )
        )
        if busy:
            until = draw(st.sampled_from([0.0, NOW - 1, NOW + 5, NOW + 5000]))
            begun = draw(st.sampled_from([NOW - 100, NOW, NOW + 1]))
            runs.append(
                RunView(
                    f"r{k}", f"r{k}", "ann", 0, {f"n{k}": {"core": busy}}, begun, False, until, draw(st.booleans())
                )
            )
    return workers, runs


@settings(max_examples=examples(250))
@given(mixes, jobs(), clusters(), st.booleans())
def test_every_plan_of_any_mix_may_be_carried_out(mix, waiting, cluster, reserved):
    workers, runs = cluster
    given_ = {
        key: value for key, value in mix.items() if key != "max_reservation" or mix.get("discipline") == "tuned"
    }
    known = set(given_.get("queues", {}))
    stored = (ReservationView("ar", {"n0": {"core": 1}}, NOW - 5, NOW + 60),) if reserved else ()
    kinds = frozenset(worker.kind for worker in workers)
    view = View(
        NOW,
        Priority().check(given_),
        workers,
        waiting,
        runs,
        place,
        lambda _: kinds,
        divide,
        {},
        {"licence": 3},
        stored,
    )
    plan = Priority().plan(view)
    check_plan(view, plan)
    assert plan == Priority().plan(view)
    assert known >= {
        queue
        for entry in plan.memory.get("priority", {}).get("running", {}).values()
        for _, queue, _ in entry["spots"]
        if queue
    }
    can_ever(Priority(), view, waiting[0].id)
    can_now(Priority(), view, waiting[-1].id)
    check_again(view, plan)


def check_again(view, plan):
    """Carry the plan out and plan again a little later."""
    placed = {order.task: order.placement for order in plan.orders if isinstance(order, Start)}
    runs, remaining, free, beside = (
        list(view.runs),
        [],
        {w.id: dict(w.free) for w in view.workers},
        dict(view.consumables),
    )
    for job in view.jobs:
        for gang in job.gangs:
            for task in gang.tasks:
                if task in placed:
                    until = NOW + gang.expected if gang.expected else 0.0
                    runs.append(
                        RunView(
                            task,
                            job.id,
                            job.requestor,
                            gang.number,
                            placed[task],
                            NOW,
                            False,
                            until,
                            False,
                            0,
                            job.attributes,
                        )
                    )
        waiting = tuple(gang for gang in job.gangs if not set(gang.tasks) & set(placed))
        remaining.extend([replace(job, gangs=waiting)] if waiting else [])
    for placement in placed.values():
        for worker, amounts in placement.items():
            for kind, amount in amounts.items():
                (free[worker] if worker else beside)[kind] -= amount
    workers = [replace(worker, free=free[worker.id]) for worker in view.workers]
    later = replace(
        view, now=NOW + 3, workers=workers, runs=runs, jobs=remaining, memory=plan.memory, consumables=beside
    )
    check_plan(later, Priority().plan(later))
