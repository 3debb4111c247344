"""Accounts: what a submit costs with them, and what a question about the usage of ten million tasks costs."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.timing import heading, row
from rainbow.accounts.tree import Account, Member
from rainbow.service import Service, Settings
from rainbow.service.accounts.account_cache import KnownAccounts
from rainbow.service.clusters.registration import register
from rainbow.service.core.access import Caller
from rainbow.service.placement.batch import submit
from rainbow.service.placement.submission import Submission
from rainbow.store import open_store
from rainbow.store.accounts import charges, registry

WHO = Caller(registers=True, admin=True)
ROUNDS, EACH = 15, 20
TASKS, DAYS, USERS, CLUSTERS = 10_000_000, 90, 100, 3
GRAPH = {
    "graph": {
        "nodes": {"c": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node", "count": 10}}}
        | {"p": {"metadata": {"type": "core", "count": 8}}},
        "edges": [{"source": "c", "target": "n"}, {"source": "n", "target": "p"}],
    }
}


def accounting() -> None:
    """Print microseconds of CPU of a submit without and with accounts, and milliseconds of usage."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = {"none": 0, "accounts": 100, "and a budget": 100}
        services = {name: _service(Path(folder) / f"{k}.db", name) for k, name in enumerate(kinds)}
        costs: dict[str, list[float]] = {name: [] for name in services}
        for _ in range(ROUNDS):  # side by side, so that what else the machine does counts for all
            for name, service in services.items():
                costs[name].append(_submits(service))
        base = median(costs["none"])
        heading("a submit, microseconds", "accounts", "CPU", "ratio (<= 1.1)")
        for name, result in costs.items():
            row(name, median(result), f"{median(result) / base:.3f}")
        _usage(services["none"])


def _service(path: Path, kind: str) -> Service:
    service = Service(open_store(str(path)), Settings())
    register(service, WHO, {"name": "oak", "graph": GRAPH})
    if kind != "none":
        with service.store.write() as connection:
            for k in range(USERS):
                budget = {"amount": 1e9} if kind == "and a budget" else {}
                registry.put(connection, Account(f"a{k}", budget=budget))
                registry.put_member(connection, Member(f"a{k}", f"u{k}", default=True))
        service.state(KnownAccounts).version = -1
    return service


def _submits(service: Service) -> float:
    began = time.thread_time()
    for k in range(EACH):
        slot = {"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": 1 + k % 5}]}
        task = {"command": ["app", str(k)], "slot": "s", "count": {"per_slot": 1}}
        jobspec = {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"duration": 60}}}
        submit(service, WHO, Submission(jobspec=jobspec, requestor=f"u{k}"))
    return (time.thread_time() - began) / EACH * 1e6


def _usage(service: Service) -> None:
    """Store what ten million tasks leave in the sums by day, and ask for all of it."""
    chance = random.Random(1)
    each = TASKS // (DAYS * USERS * CLUSTERS)
    keys = ("day", "account", "user", "cluster", "type")
    rows = [
        {**dict(zip(keys, (day, f"a{user % 10}", f"u{user}", f"c{cluster}", kind), strict=True)), "used": used}
        for day in range(20_000, 20_000 + DAYS)
        for user in range(USERS)
        for cluster in range(CLUSTERS)
        for kind in ("core", "node")
        for used in [chance.random() * each * 600]
    ]
    with service.store.write() as connection:
        charges.add_up(connection, rows)
    heading(f"usage of {TASKS:,} tasks in {DAYS} days, ms", "by", "CPU", "wall (<= 50)")
    for by in (["account"], ["account", "user", "cluster"]):
        times, own = [], []
        for _ in range(9):
            began, before = time.perf_counter(), time.thread_time()
            with service.store.read() as connection:
                charges.totals(connection, by, 20_000, None)
            times.append((time.perf_counter() - began) * 1e3)
            own.append((time.thread_time() - before) * 1e3)
        row(",".join(by), median(own), f"{median(times):.1f}")


if __name__ == "__main__":
    accounting()
