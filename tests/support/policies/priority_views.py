"""Any cluster under the priority policy, with something running and jobs that wait; and what a plan says of them."""

from dataclasses import replace

from hypothesis import strategies as st

from rainbow.scheduling import Priority, Reserve, Start
from tests.support.policies.dispatching import Job, job_view, make_view, run_view

NOW = 100.0
PES = {"fill": {}, "round": {"rule": "round_robin"}, "one": {"rule": "pe_slots", "slots": 5}, "pairs": {"rule": 2}}
QUOTAS = [{"name": "users", "limits": [{"users": "{*}", "to": {"slots": 4}}]}]
DISCIPLINES = [
    {"discipline": "fcfs"},
    {"discipline": "easy"},
    {"discipline": "conservative"},
    {"discipline": "tuned"},
    {"discipline": "tuned", "max_reservation": 2},
    {"discipline": "tuned", "max_reservation": 3, "search": "backwards"},
]


@st.composite
def jobs(draw, number=8, pes=True):
    made = []
    for k in range(draw(st.integers(1, number))):
        pe = draw(st.sampled_from(["", *PES])) if pes else ""
        least = draw(st.integers(1, 4))
        attributes = {"reserve": draw(st.booleans()), **({"pe": pe} if pe else {})}
        made.append(
            Job(
                f"j{k}",
                NOW - draw(st.integers(0, 3)),
                least,
                5,
                float(draw(st.integers(1, 12))),
                draw(st.integers(-2, 2)),
                least + draw(st.integers(0, 3)) * bool(pe),
                draw(st.sampled_from("ab")),
                attributes,
                draw(st.sampled_from([{"core": 1}, {"core": 1}, {"core": 2}, {"core": 1, "gpu": 1}])),
            )
        )
    return made


@st.composite
def views(draw, number=8, extra=None):
    """A cluster with something running, started by the policy itself a little earlier."""
    workers = {f"n{k}": {"core": draw(st.integers(1, 4)), "gpu": k % 2} for k in range(draw(st.integers(1, 4)))}
    given_ = {**draw(st.sampled_from(DISCIPLINES)), "parallel_environments": PES, **(extra or {})}
    early = [replace(job, id=f"r{job.id}", submit=NOW - 5) for job in draw(jobs(5))]
    before = make_view(NOW - draw(st.integers(1, 4)), workers, map(job_view, early), (), given_)
    plan = Priority().plan(before)
    by_id = {job.id: job for job in early}
    runs = [run_view(by_id[o.task], o.placement, before.now) for o in plan.orders if isinstance(o, Start)]
    waiting = sorted(draw(jobs(number)), key=lambda job: job.submit)
    return make_view(NOW, workers, map(job_view, waiting), runs, given_, memory=plan.memory)


def starts(plan):
    return [order.task for order in plan.orders if isinstance(order, Start)]


def promised(plan):
    return {order.job: order.at for order in plan.orders if isinstance(order, Reserve)}


def durations(view):
    return {gang.job: gang.expected for job in view.jobs for gang in job.gangs}


def bookings(view, plan):
    """Return (placement, start, end) of everything that runs, starts or is promised."""
    for run in view.runs:
        yield run.placement, run.started, run.until if run.until > view.now else view.now + 15
    length = durations(view)
    for order in plan.orders:
        if isinstance(order, Start):
            yield order.placement, view.now, view.now + length[order.task]
        elif isinstance(order, Reserve):
            yield order.placement, order.at, order.until
