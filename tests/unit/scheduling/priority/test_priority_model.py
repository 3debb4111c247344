"""The priority policy against a plain model of its disciplines: slots counted, or nodes with an identity."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling import Priority
from tests.support.policies.dispatching import Job, replay

KINDS = {
    "fcfs": (0, {"discipline": "fcfs"}),
    "easy": (1, {"discipline": "easy"}),
    "conservative": (10**9, {"discipline": "conservative"}),
    "depth": (3, {"discipline": "tuned", "reserve": "all", "max_reservation": 3}),
}


@dataclass
class Model:
    """Everything is recomputed in every pass; a booking is (start, end, the nodes or how many)."""

    capacity: int
    nodes: bool
    depth: int
    start: dict = field(default_factory=dict)
    promised: dict = field(default_factory=dict)

    def fit(self, bookings, job, now):
        end = now + job.walltime
        if self.nodes:
            taken = {node for start, until, held in bookings if start < end and until > now for node in held}
            free = [node for node in range(self.capacity) if node not in taken]
            return free[: job.least] if len(free) >= job.least else None
        times = {now, *(start for start, _, _ in bookings if now < start < end)}
        most = max(sum(n for start, until, n in bookings if start <= t < until) for t in times)
        return job.least if self.capacity - most >= job.least else None

    def replay(self, jobs):
        running, times, done = [], {job.submit for job in jobs}, set()
        while times - done:
            now = min(times - done)
            done.add(now)
            running = [entry for entry in running if entry[0] > now]
            bookings = [(now, planned, held) for _, planned, held in running]
            waiting = [job for job in jobs if job.submit <= now and job.id not in self.start]
            waiting.sort(key=lambda job: (-job.priority, job.submit, job.id))
            for job, held in self.run(bookings, waiting, now):
                self.start[job.id] = now
                running.append((now + job.runtime, now + job.walltime, held))
                times.add(now + job.runtime)
        return self

    def run(self, bookings, waiting, now):
        stored = 0
        for job in waiting:
            held = self.fit(bookings, job, now)
            if held is not None:
                bookings.append((now, now + job.walltime, held))
                yield job, held
            elif not self.depth:
                return
            elif stored < self.depth:
                stored += 1
                later = sorted({end for _, end, _ in bookings if end > now})
                at, held = next((t, held) for t in later if (held := self.fit(bookings, job, t)) is not None)
                bookings.append((at, at + job.walltime, held))
                self.promised.setdefault(job.id, at)


rows = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(1, 9),
        st.integers(1, 30),
        st.sampled_from([0, 0, 1, 7, 60]),
        st.integers(-1, 1),
    ),
    min_size=1,
    max_size=15,
)


@settings(max_examples=40, deadline=None)
@given(rows, st.integers(1, 9), st.booleans(), st.sampled_from(sorted(KINDS)))
def test_every_start_and_every_first_promise_is_the_models(rows, capacity, nodes, kind):
    depth, given_ = KINDS[kind]
    jobs = [
        Job(f"{k:02}", at, min(slots, capacity), run, run + slack, priority)
        for k, (at, slots, run, slack, priority) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]
    model = Model(capacity, nodes, depth).replay(jobs)
    workers = {f"n{k}": {"core": 1} for k in range(capacity)} if nodes else {"pool": {"core": capacity}}
    ours = replay(Priority(), workers, jobs, given_)
    assert (ours.start, ours.promised) == (model.start, model.promised)
