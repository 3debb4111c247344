"""Random scenarios in the form of the recorded ones: nodepools, machines, classes, jobs and events."""

from __future__ import annotations

import random
from typing import Any

FAIR_PRIORITIES, FIXED_PRIORITIES, RESERVE_PRIORITIES = (10, 10, 10, 12), (5, 6), (1, 2)


def scenario(seed: int) -> dict[str, Any]:
    """Make the scenario of a seed."""
    rng = random.Random(seed)
    quantum = rng.choice([1, 1, 4, 10, 15])
    pools = _pools(rng)
    machines = [_machine(rng, k, quantum, pools) for k in range(rng.choice([2, 4, 8, 14, 30]))]
    classes = _classes(rng, pools)
    jobs = [_job(rng, k + 1, quantum, classes, machines) for k in range(rng.choice([2, 4, 8, 14, 30]))]
    return {
        "id": f"random-{seed}",
        "quantum_gb": quantum,
        "frag_threshold": rng.choice([1, 2, 4, 8]),
        "global_allotment_gb": rng.choice([None, None, 4 * quantum, 9 * quantum]),
        "exit_delay": rng.choice([0, 1, 2, 3]),
        "init_delay": rng.choice([0, 1, 2]),
        "pools": pools,
        "machines": machines,
        "classes": classes,
        "user_allotment_gb": {"u0": 2 * quantum} if rng.random() < 0.2 else {},
        "jobs": jobs,
        "events": _events(rng, machines),
    }


def with_minima(row: dict[str, Any], seed: int) -> dict[str, Any]:
    """Give every other job a number of shares below which it cannot work."""
    rng = random.Random(-seed)
    least = [rng.choice([0, 1, 2, 3, 5]) for _ in row["jobs"]]
    jobs = [
        {**job, "min_shares": min(most, job["max_shares"])} if job["type"] == "Job" else job
        for job, most in zip(row["jobs"], least, strict=True)
    ]
    return {**row, "jobs": jobs}


def _pools(rng: random.Random) -> list[dict[str, Any]]:
    pools: list[dict[str, Any]] = [{"name": "NP0", "parent": None, "search_order": 100}]
    for k in range(1, rng.choice([1, 1, 2, 3, 4])):
        parent = rng.choice([None, *(p["name"] for p in pools), *(p["name"] for p in pools)])
        pools.append({"name": f"NP{k}", "parent": parent, "search_order": rng.choice([50, 100, 200])})
    return pools


def _machine(rng: random.Random, k: int, quantum: int, pools: list[dict[str, Any]]) -> dict[str, Any]:
    order = rng.choice([1, 1, 2, 2, 3, 4, 5, 6, 8])
    memory = order * quantum + rng.randrange(quantum)
    return {"name": f"n{k}", "mem_gb": memory, "order": order, "pool": rng.choice(pools)["name"]}


def _classes(rng: random.Random, pools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    classes: list[dict[str, Any]] = [
        {
            "name": f"fair{k}",
            "policy": "FAIR_SHARE",
            "priority": rng.choice(FAIR_PRIORITIES),
            "weight": rng.choice([1, 50, 100, 100, 200]),
            "nodepool": rng.choice(pools)["name"],
            "initialization-cap": rng.choice([0, 1, 2, 4]),
            "expand-by-doubling": rng.random() < 0.7,
            "use-prediction": rng.random() < 0.5,
            "prediction-fudge": rng.choice([0, 60_000]),
        }
        for k in range(rng.choice([1, 1, 2, 3, 4]))
    ]
    for policy, priorities in (("FIXED_SHARE", FIXED_PRIORITIES), ("RESERVE", RESERVE_PRIORITIES)):
        for k in range(rng.choice([0, 1, 2])):
            pool = rng.choice(pools)["name"]
            name = f"{policy[:5].lower()}{k}"
            classes.append({"name": name, "policy": policy, "priority": priorities[k], "nodepool": pool})
    return classes


def _job(rng: random.Random, k: int, quantum: int, classes: list[Any], machines: list[Any]) -> dict[str, Any]:
    cls = rng.choice([*(c for c in classes if c["policy"] == "FAIR_SHARE"), *classes])
    kind = {"FAIR_SHARE": ["Job"], "FIXED_SHARE": ["Job", "Service"], "RESERVE": ["Job", "Reservation"]}
    job = {
        "id": k,
        "user": f"u{rng.randrange(5)}",
        "class": cls["name"],
        "type": rng.choice(kind[cls["policy"]]),
        "mem_gb": rng.randint(1, rng.choice([1, 2, 4, 7]) * quantum),
        "threads": rng.choice([1, 1, 2, 4]),
        "max_shares": rng.choice([1, 2, 5, 20, 1_000_000]),
        "items": rng.choice([1, 4, 20, 100, 1000, 10_000]),
        "item_ms": rng.choice([1000, 60_000, 600_000]),
        "submit": 1_000_000 + 10 * k,
        "arrive": 0 if rng.random() < 0.5 else rng.randrange(15),
    }
    if rng.random() < 0.2:
        job["complete"] = job["arrive"] + rng.randint(2, 20)
    if rng.random() < 0.1:
        job["machines"] = rng.sample([m["name"] for m in machines], k=rng.randint(1, len(machines)))
    if job["type"] == "Service":
        job["service_id"] = rng.randint(1, 2)
    return job


def _events(rng: random.Random, machines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    events = []
    for machine in rng.sample(machines, k=min(len(machines), rng.choice([0, 0, 1, 2]))):
        epoch = rng.randint(1, 12)
        away, back = rng.choice([("vary_off", "vary_on"), ("node_death", "node_return")])
        events.append({"epoch": epoch, "node": machine["name"], "op": away})
        if rng.random() < 0.6:
            events.append({"epoch": epoch + rng.randint(1, 10), "node": machine["name"], "op": back})
    return events
