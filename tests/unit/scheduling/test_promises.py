"""Promised starts: kept by every later plan, or broken with a reason."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf

import pytest

from rainbow.forecast import Length, VirtualCluster
from rainbow.scheduling import GangView, JobView, Priority, SlotsView, Stop, check_plan
from rainbow.scheduling.priority.config.settings import check_settings, in_base_units
from rainbow.scheduling.priority.dispatch import Dispatch
from rainbow.scheduling.priority.promises import GRACE, basis
from rainbow.scheduling.snapshot import Promise
from rainbow.state_machine import WorkerState
from tests.support.policies.dispatching import Job, job_view, make_view


class Actual:
    """How long jobs really run."""

    def __init__(self, seconds):
        self.seconds = seconds

    def of(self, job, gang):
        return Length.exactly(self.seconds[job.id], "name")

    def left(self, run, now):
        return inf


@dataclass
class ClusterForecast:
    """What became of every promise of a campaign."""

    made: int = 0
    kept: int = 0
    late: list = field(default_factory=list)  # neither kept nor broken
    broken: Counter = field(default_factory=Counter)


def drawn(chance, number, workers, levels):
    """Draw jobs with limits up to five times their run time, so many that they wait."""
    now = 0.0
    for k in range(number):
        now += chance.expovariate(1 / 40)
        runtime = chance.choice([20.0, 60.0, 200.0, 900.0]) * chance.uniform(0.5, 1.5)
        width = chance.choice([1, 1, 2, 4, workers // 2, workers])
        limit = runtime * chance.uniform(1, 5)
        yield Job(f"j{k}", now, width, runtime, limit, chance.choice(levels), 0, "u", {}, {"core": 2}, True)


class Campaign:
    """One cluster under the policy in virtual time, with losses of workers."""

    def __init__(self, seed, settings, *, losses=False, levels=(0,), number=120, workers=8):
        self.chance, self.told, self.open = random.Random(seed), ClusterForecast(), {}
        self.jobs = list(drawn(self.chance, number, workers, levels))
        names = {f"n{k}": {"core": 2} for k in range(workers)}
        view = make_view(0.0, names, (), (), settings)
        self.policy = Priority()
        lengths = Actual({job.id: job.runtime for job in self.jobs})
        self.cluster = VirtualCluster(replace(view, census=None), self.policy, lengths)
        self.losses = [self.chance.uniform(0, self.jobs[-1].submit) for _ in range(4 * losses)]

    def run(self):
        remaining = [(job.submit, "job", job) for job in self.jobs]
        remaining += [(at, "lost", at) for at in self.losses] + [(at + 400.0, "back", at) for at in self.losses]
        remaining.sort(key=lambda one: one[0])
        while True:
            following = self.cluster.next_time()
            if remaining and remaining[0][0] <= (inf if following is None else following):
                at, what, which = remaining.pop(0)
                self.cluster.advance(at)
                self.happens(what, which)
            elif following is None:
                break
            else:
                self.cluster.advance(following)
            self.step()
        assert not self.cluster.waiting
        return self.told

    def happens(self, what, which):
        census = self.cluster.census
        if what == "job":
            self.cluster.submit(job_view(which))
            return
        name = sorted(census.workers)[int(which) % len(census.workers)]
        state = WorkerState.LOST if what == "lost" else WorkerState.READY
        census.put_worker(replace(census.workers[name], state=state))
        if what == "lost":
            for run in [run for run in census.runs.values() if name in run.placement]:
                self.cluster.carry_out(replace(self.nothing(), orders=(Stop(run.task, "lost"),)))
            self.cluster.advance(self.cluster.now)

    def nothing(self):
        from rainbow.scheduling import Plan

        return Plan(memory=self.cluster.memory, promises=self.cluster.promises)

    def step(self):
        view = self.cluster.view()
        plan = self.policy.plan(view)
        check_plan(view, plan)
        self.cluster.carry_out(plan)
        for one in plan.broken:
            assert self.open.pop(one.job).start == one.old
            assert one.text
            self.told.broken[one.why] += 1
        promised = {one.job: one for one in plan.promises}
        for job, one in promised.items():
            self.told.made += job not in self.open
            assert self.open.setdefault(job, one).start == one.start
        for job in [job for job in self.open if job not in promised]:
            promise = self.open.pop(job)
            begun = self.cluster.spans[job].start if job in self.cluster.spans else inf
            if begun <= promise.start + GRACE:
                self.told.kept += 1
            else:
                self.told.late.append((job, promise.start, begun))


def total(answer):
    forecast = ClusterForecast()
    for one in answer:
        forecast.made += one.made
        forecast.kept += one.kept
        forecast.late += one.late
        forecast.broken += one.broken
    return forecast


CASES = {
    "easy": {"discipline": "easy"},
    "conservative": {"discipline": "conservative"},
    "tuned": {"discipline": "tuned", "max_reservation": 3, "reserve": "all"},
}


def campaign(discipline, runs, **options):
    return total(Campaign(seed, CASES[discipline], **options).run() for seed in range(runs))


@pytest.mark.parametrize("discipline", CASES)
def test_promises_are_kept_under_inflated_limits(discipline):
    answer = campaign(discipline, 1, number=60)
    assert answer.made == answer.kept > 5


@pytest.mark.parametrize("discipline", CASES)
def test_a_promise_that_a_lost_worker_or_a_priority_takes_is_broken_and_says_so(discipline):
    answer = campaign(discipline, 1, losses=True, levels=(0, 0, 0, 0, 5), number=60)
    assert not answer.late
    assert answer.made == answer.kept + answer.broken.total()
    assert answer.broken.keys() <= {"worker-lost", "priority"}


def kept_by_hand(at, start):
    """Plan for a gang of a small and a large slot whose kept space no search finds: the small one goes where the
    large one must lie."""
    slots = tuple(SlotsView(label, {"core": cores}, 1, 1) for label, cores in (("small", 1), ("large", 2)))
    waiting = JobView("j", "u", 0.0, (GangView("j", 0, ("j",), "j", 50.0, slots),))
    settings = CASES["conservative"]
    view = make_view(0.0, {"n0": {"core": 2}, "n1": {"core": 1}}, [waiting], (), settings)
    filled = in_base_units(check_settings(settings), view.units)
    booking = {"n0": {"core": 2}, "n1": {"core": 1}}
    promise = Promise("j", 0, start, -50.0, at, at + 50.0, booking, basis(filled))
    view = replace(view, promises=(promise,))
    plan = Priority().plan(view)
    check_plan(view, plan)
    return plan


def test_kept_space_whose_time_has_come_is_no_start_of_a_gang_that_cannot_start_but_stays_kept_until_promised():
    plan = kept_by_hand(at=0.0, start=30.0)
    assert [(order.job, order.at, order.until) for order in plan.orders] == [("j", 30.0, 80.0)]
    assert [(one.start, one.at) for one in plan.promises] == [(30.0, 30.0)]
    assert not plan.broken


def test_a_promise_whose_time_has_come_is_broken_if_the_gang_cannot_start():
    plan = kept_by_hand(at=0.0, start=0.0)
    assert not plan.orders
    assert not plan.promises
    assert [(one.job, one.why) for one in plan.broken] == [("j", "space-lost")]


def test_reasons_say_when_workers_are_free_around_promised_space(monkeypatch):
    run, request = Dispatch.run, Counter()

    def run_and_ask(self, ordered):
        self.view = replace(self.view, quiet=False)
        outcomes, gain = run(self, ordered), self.lines.timeline.gain
        assert self.explainer.more == {line: gain(*line, self.view.now) for line in self.explainer.more}
        request[self.entered is not None] += len(self.explainer.more)
        return outcomes

    monkeypatch.setattr(Dispatch, "run", run_and_ask)
    campaign("conservative", 1, number=40)
    assert request[True]


RUNS = {"easy": 10, "conservative": 5, "tuned": 8}


@pytest.mark.soak
def test_a_thousand_promises_are_kept_under_inflated_limits():
    answer = total(campaign(discipline, runs) for discipline, runs in RUNS.items())
    assert answer.made == answer.kept >= 1_000


@pytest.mark.soak
def test_a_thousand_promises_are_kept_or_broken_with_a_reason_under_losses_and_priorities():
    answer = total(campaign(*one, losses=True, levels=(0, 0, 0, 5)) for one in RUNS.items())
    assert not answer.late
    assert answer.made == answer.kept + answer.broken.total() >= 1_000
    assert answer.broken.keys() <= {"worker-lost", "priority"}
