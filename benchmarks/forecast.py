"""Forecasts: what one of a long queue costs, how near it is to the whole run, and ETAs of many clusters.

The rival is the same forecast by one pass alone, as estimators of other schedulers do, and the whole run ahead.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.priority import view as view_of
from benchmarks.priority import workers
from benchmarks.timing import as_served, heading, once, row
from rainbow.forecast import Bounds, Forecast, Length, eta, forecast, room_of, stacked
from rainbow.forecast.forecast import score
from rainbow.forecast.one_pass import Space, one_pass
from rainbow.forecast.outlook import ClusterForecast
from rainbow.forecast.room import Use
from rainbow.graph import read_cluster
from rainbow.scheduling import Delegate, GangView, JobView, LoadBased, Policy, Priority, RunView, SlotsView, View
from rainbow.service.core.service import Outlook
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from rainbow.simulation import Arrival
from rainbow.simulation.world import Compiled, Requests
from tests.conftest import ADMIN, Api, Clock, grid, jobspec, open_service_at

CORES, WORKERS, CANDIDATES = 8, 100, 1_000
VARIABLES = ("queue.waiting_tasks", "eta.finish")
PAIRS, WARMING, PROBES = 150, 10, 100
WATCHED = 12.0  # seconds
QUEUES = (300, 1_000)
WHOLE = Bounds(plans=100_000, horizon=1e9)


class Lengths:
    """Every task runs a part of its limit, known by its name."""

    def of(self, job: JobView, gang: GangView) -> Length:
        """Predict a gang that waits."""
        seconds = gang.expected * (0.2 + 0.8 * random.Random(job.id).random())
        return Length.exactly(seconds, "name")

    def left(self, run: RunView, now: float) -> float:
        """Predict how long a task runs on."""
        return max(0.0, run.until - now) / 2


def queue(waiting: int, **settings: object) -> View:
    """Return a full cluster and a queue in which no two jobs are alike."""
    rng = random.Random(1)
    jobs = []
    for k in range(waiting):
        slots, limit = rng.choice([1, 2, 4, 8, 16, 32, 64]), float(rng.randint(60, 20_000))
        gang = GangView(f"j{k}", 0, (f"j{k}-0",), f"{k}", limit, (SlotsView("s", {"core": 1}, slots, slots),))
        jobs.append(JobView(f"j{k}", f"user{k % 7}", float(k) - waiting, (gang,)))
    runs = []
    for k in range(WORKERS):
        started, until = -1.0, float(rng.randint(60, 20_000))
        runs.append(RunView(f"r{k}", f"r{k}", "user", 0, {f"n{k:05}": {"core": CORES}}, started, until=until))
    return view_of(workers(WORKERS, CORES, 0), jobs, runs, **settings)


def matched(waiting: int, *, differ: bool, **settings: object) -> View:
    """Return a full cluster and a queue with the matcher's own answers; sizes of seven, or all different."""
    rng, cluster = random.Random(1), read_cluster(grid(WORKERS, CORES), name="full")
    compiled, requests, jobs = Compiled(cluster), Requests([cluster]), []
    for k in range(waiting):
        slots = rng.randint(1, WORKERS * CORES * 3 // 4) if differ else rng.choice([1, 2, 4, 8, 16, 32, 64])
        limit = float(rng.randint(60, 20_000))
        arrival = Arrival(f"j{k}", float(k) - waiting, slots, limit, limit, f"user{k % 7}")
        jobs.append(compiled.job(arrival, requests.of(arrival)))
    empty = compiled.view(0.0, settings)
    runs = [
        RunView(f"r{k}", f"r{k}", "user", 0, {worker.id: worker.capacity}, -1.0, until=float(rng.randint(60, 20_000)))
        for k, worker in enumerate(empty.workers)
    ]
    busy = [replace(worker, free=dict.fromkeys(worker.free, 0), tasks=1) for worker in empty.workers]
    return replace(empty, workers=busy, jobs=jobs, runs=runs)


def near(result: Forecast, whole: Forecast, first: int) -> float:
    """Return the part of the first jobs to start whose wait is within a factor of 2 of the whole run's."""
    ordered = sorted((one.start, job) for job, one in whole.jobs.items() if one.start > 0)[:first]
    waits = [(result.jobs[job].start, start) for start, job in ordered]
    return sum(0.5 <= (mine + 60) / (theirs + 60) <= 2 for mine, theirs in waits) / len(waits)


def forecasting() -> None:
    """Print the cost of a forecast, and how many of the first 100 and of all are near the whole run."""
    heading(
        "forecasts of 100 workers, ms; target 1,000, of the first 100 0.9",
        "policy",
        "waiting",
        "bounded",
        "one pass",
        "whole",
        "first 100",
        "all",
    )
    policies: tuple[tuple[str, Policy, Callable[[int], View]], ...] = (
        ("easy", Priority(), partial(queue, discipline="easy")),
        ("load_based", LoadBased(), partial(matched, differ=False, unit="core")),
        ("all differ", LoadBased(), partial(matched, differ=True, unit="core")),
        ("delegate", Delegate(), partial(queue, max_handed_over=100)),
    )
    for name, policy, drawn in policies:
        for waiting in QUEUES:
            of, made, spent = drawn(waiting), dict[str, Forecast](), list[float]()
            for which, bounds in (("bounded", Bounds()), ("one pass", Bounds(plans=1)), ("whole", WHOLE)):
                begin = time.thread_time()
                made[which] = forecast(of, policy, Lengths(), (), bounds)
                spent.append((time.thread_time() - begin) * 1e3)
            parts = [near(made["bounded"], made["whole"], first) for first in (100, waiting)]
            row(name, waiting, *spent, *parts)


def probing() -> None:
    """Print how often a room of 64 steps says a start within a factor of 2 of the one in the whole diagram."""
    heading(
        "starts by a room of 64 steps; target 0.9 within a factor of 2", "waiting", "probes", "within 2", "too early"
    )
    rng, now = random.Random(3), 0.0
    for waiting in (100, *QUEUES):
        of = queue(waiting, discipline="easy")
        uses = [Use(run.placement, run.started, run.until / 2) for run in of.runs]
        order = [(job, job.gangs[0]) for job in of.jobs]
        uses += one_pass(of, Lengths().of, order, uses).booked
        rooms, scores = stacked([room_of(of.workers, {}, uses, now)]), list[float]()
        for _ in range(PROBES):
            slots, seconds = rng.randint(1, 64), rng.uniform(60, 20_000)
            answer = float(eta(rooms, slots, {"core": 1}, np.array([seconds]), now)[0][0])
            gang = GangView("probe", 0, ("probe",), "probe", seconds, (SlotsView("s", {"core": 1}, slots, slots),))
            probe = JobView("probe", "probe", now, (gang,))
            scores.append(score(Space(of, uses).book(probe, gang, seconds), answer))
        within = sum(abs(one) <= log(2) for one in scores) / PROBES
        row(waiting, PROBES, f"{within:.2f}", f"{sum(one > log(2) for one in scores) / PROBES:.2f}")


def arriving() -> None:
    """Print what it costs to ask when a job would start on many clusters, and to book it on one."""
    heading("ETAs by rooms of 64 steps, ms", "clusters", "eta p50", "booking")
    rng = random.Random(2)
    for count in (1_000, 10_000):
        there = workers(4, 64, 64)
        rooms = []
        for _ in range(20):
            starts = [rng.uniform(0, 9_000) for _ in range(90)]
            uses = [Use({f"n{k % 4:05}": {"core": 2}}, s, s + rng.uniform(60, 9_000)) for k, s in enumerate(starts)]
            rooms.append(room_of(there, {}, uses, 0.0))
        table = stacked([rooms[k % 20] for k in range(count)])
        seconds = np.full(count, 600.0)
        request = median(once(partial(eta, table, 40, {"core": 1}, seconds, 1.0)) for _ in range(20))
        booked = median(once(partial(rooms[0].book, {"core": 40}, 0, 100.0, 700.0)) for _ in range(20))
        row(count, request / 1e3, booked / 1e3)


def submitting() -> None:
    """Print what a submit costs whose options read `eta.finish`, beside one that reads another variable of each.

    They are measured in turn: what the machine does meanwhile is in both, and their difference is of neighbours.
    """
    heading("submits over 1,000 candidates, ms", "reads", "p50", "p99")
    with tempfile.TemporaryDirectory() as folder:
        service = open_service_at(Path(folder), Clock())
        api = Api(service)
        for k in range(CANDIDATES):
            api.register(f"c{k}", grid(1, 8))
        room = room_of(workers(4, 64, 64), {}, (), service.clock())
        for entry in service.catalogue.values():
            service.state(Outlook).put(entry.id, ClusterForecast(service.clock(), room))
        sends = [partial(api.good, "POST", "/v1/jobs", _job(variable), ADMIN) for variable in VARIABLES]
        with as_served():
            spent = [[once(send) / 1e3 for send in sends] for _ in range(PAIRS)][WARMING:]
        service.close()
    columns = list(zip(*spent, strict=True))
    for variable, of in zip(VARIABLES, columns, strict=True):
        row(variable, median(of), _most(of))
    more = median(late - early for early, late in spent)
    row("eta more by", more, _most(columns[1]) - _most(columns[0]), "target 3, 5")


def spreading() -> None:
    """Print where equal jobs of one batch go that read `eta.finish` of equal idle clusters."""
    heading("100 equal jobs of one batch; target 25, one more or less", *("most", "fewest"))
    with tempfile.TemporaryDirectory() as folder:
        service = open_service_at(Path(folder), Clock())
        api = Api(service)
        for k in range(4):
            api.register(f"c{k}", grid(1, 8)).say("heartbeat")
        Forecaster(service).turn()
        answers = api.good("POST", "/v1/jobs:batch", {"jobs": [_job("eta.finish", 8)] * 100}, ADMIN)["answers"]
        service.close()
    counts = Counter(answer["cluster"] for answer in answers).values()
    row(max(counts), min(counts))


def sharing() -> None:
    """Print what of a core the forecasting thread takes while things happen on three clusters with long queues.

    The rival is a thread that may take all of it: what a step beside it costs tells them apart.
    """
    heading(
        "forecasts beside steps; target: no more than the share", "share", "of a core", "forecasts", "step p50 ms"
    )
    for share in (0.0, 0.1, 1.0):
        with tempfile.TemporaryDirectory() as folder:
            service = open_service_at(Path(folder), Clock(), forecast_share=share)
            taken, made, step_ms = _watched(Api(service))
            row(share, f"{taken:.3f}", made, step_ms)
            service.close()


def _watched(api: Api) -> tuple[float, int, float]:
    """Let things happen for some seconds; return what the thread took of a core, its forecasts, and a step's cost."""
    clusters = [api.register(f"c{k}", grid(20, 4)) for k in range(3)]
    for cluster in clusters:
        cluster.say("heartbeat")
        api.good("PUT", f"/v1/clusters/{cluster.name}/scheduler", {"policy": "priority"}, cluster.secret)
        body = {"jobspec": jobspec(2, duration=3_600)}
        api.good("POST", "/v1/jobs:batch", {"jobs": [body] * 100}, cluster.token)
    forecaster = Forecaster(api.service)
    forecaster.start()
    clock = time.pthread_getcpuclockid(forecaster._thread.ident or 0)
    before, began, made, steps = time.clock_gettime(clock), time.monotonic(), set[float](), list[float]()
    while time.monotonic() < began + WATCHED:
        for cluster in clusters:
            api.service.tell(api.service.catalogue[cluster.name].id)
            steps.append(once(partial(step, api.service, cluster.name)) / 1e3)
            made |= {answer.cost for answer in api.service.state(Outlook).every().values() if answer.forecast}
        time.sleep(0.25)
    taken = (time.clock_gettime(clock) - before) / (time.monotonic() - began)
    forecaster.stop()
    return taken, len(made), median(steps)


def _job(variable: str, cores: int = 1) -> dict[str, object]:
    """Return a submit that goes where a variable is least."""
    steps = [{"sort_ascending": variable}, {"select": "first"}]
    selector = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": steps}]}}
    spec = jobspec(duration=600)
    spec["resources"] = [{"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": cores}]}]
    return {"jobspec": spec, "selector": selector}


def _most(times: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return sorted(times)[int(len(times) * 0.99)]


def main() -> None:
    """Run all."""
    forecasting()
    probing()
    arriving()
    submitting()
    spreading()
    sharing()


if __name__ == "__main__":
    main()
