"""EASY backfilling with an order, written by hand on one pool of processors: what the policy's starts are held to."""

from math import log2, log10, sqrt

DAY = 86_400.0


def f(area, slope):
    """An order of Carastan-Santos and de Camargo: something of time and slots, and the logarithm of submission."""
    return lambda job, now, origin: area(job.walltime, job.least) + slope * log10(max(1.0, job.submit - origin))


ORDERS = {
    "fcfs": lambda job, now, origin: job.submit,
    "sjf": lambda job, now, origin: job.walltime,
    "saf": lambda job, now, origin: job.walltime * job.least,
    "f1": f(lambda p, n: log10(max(1.0, p)) * n, 870),
    "f2": f(lambda p, n: sqrt(p) * n, 25_600),
    "f3": f(lambda p, n: p * n, 6_860_000),
    "f4": f(lambda p, n: p * sqrt(n), 530_000),
    "wfp3": lambda job, now, origin: -(((now - job.submit) / job.walltime) ** 3) * job.least,
    "unicep": lambda job, now, origin: -(now - job.submit) / (max(log2(job.least), 1e-10) * job.walltime),
    "saf_aged": lambda job, now, origin: job.walltime * job.least / (1 + (now - job.submit) / 14_400),
}


def starts(jobs, processors, order, after=0.0, first=1):
    """Return when each job starts; the oldest `first` that have waited longer than `after` go before all others."""
    arrivals = sorted(jobs, key=lambda job: job.submit)
    started, running, waiting, origin, k = {}, {}, [], None, 0
    while k < len(arrivals) or running:
        now = min([end for end, _, _ in running.values()] + [job.submit for job in arrivals[k : k + 1]])
        running = {job: run for job, run in running.items() if run[0] > now}
        while k < len(arrivals) and arrivals[k].submit <= now:
            waiting.append(arrivals[k])
            k += 1
        if waiting:
            oldest = min(job.submit for job in waiting)
            origin = oldest if origin is None else min(origin, oldest)
            ranked = sorted(waiting, key=lambda job: (order(job, now, origin), job.submit))
            late = [job for job in waiting if after and now - job.submit > after][:first]
            ranked = late + [job for job in ranked if job not in late]
            for job in begun(ranked, running, processors, now):
                started[job.id] = now
                running[job.id] = (now + job.runtime, now + job.walltime, job.least)
                waiting.remove(job)
        origin = origin if waiting else None
    return started


def begun(ranked, running, processors, now):
    """Yield the jobs that start now: in order, and around the reservation of the first that does not fit."""
    held = [(until, slots) for _, until, slots in running.values()]
    free, shadow, extra = processors - sum(slots for _, slots in held), None, 0
    for job in ranked:
        if shadow is None and job.least > free:
            shadow, extra = reservation(job, held, free)
        elif job.least <= free and (shadow is None or now + job.walltime <= shadow or job.least <= extra):
            extra -= 0 if shadow is None or now + job.walltime <= shadow else job.least
            free -= job.least
            held.append((now + job.walltime, job.least))
            yield job


def reservation(job, held, free):
    """Return when a job fits at the latest, and how much is left beside it then."""
    ends = sorted(held)
    for k, (until, slots) in enumerate(ends):
        free += slots
        if free >= job.least and (k + 1 == len(ends) or ends[k + 1][0] > until):
            return until, free - job.least
    raise ValueError("wider than the pool")
