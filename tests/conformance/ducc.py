"""What the DUCC Resource Manager decides: its counting, bit for bit; its schedules, held to the invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rainbow.errors import PolicyError
from rainbow.scheduling.fair_share.apportionment import Entity, apportion
from rainbow.scheduling.fair_share.caps import job_cap, projected
from rainbow.scheduling.fair_share.eviction import Invested, eviction_order
from rainbow.scheduling.fair_share.model import JobWork
from rainbow.scheduling.fair_share.settings import Growth, check_settings
from rainbow.scheduling.fair_share.share_tables import Tables, remove, share_counts, total_quanta
from tests.conformance import Comparison, rows
from tests.support.policies.ducc_classes import as_yaml
from tests.support.policies.epoch_checks import Play
from tests.support.settings_documents import read_settings

Row = dict[str, Any]
FAMILIES = ("arrivals", "big", "fair", "mixed", "nodes")
UNKNOWN = 2**31 - 1  # what the original says for "no limit known"


def entity(name: str, weight: float, requirements: Sequence[int], longest: int) -> Entity:
    """Make a claimant with tables up to the longest order."""
    table = [0, *requirements[1:], *[0] * (longest + 1 - len(requirements))]
    return Entity(name, weight, table, [0] * (longest + 1))


def _makeable(tables: Tables) -> list[int]:
    """Return the nshares by order that could be made: the table S."""
    return share_counts(tables.free)


def compare(folder: Path) -> Iterator[Comparison]:
    """Yield one comparison a row of every file the folder has, and print what is only counted."""
    goals = Counter[str]()
    for name, check in CHECKS.items():
        for row in rows(folder, f"{name}.jsonl"):
            wrong = list(check(row))
            yield Comparison(f"{name} {row['id']}", not wrong, "; ".join(wrong))
    for family in FAMILIES:
        for row in rows(folder, f"schedule_{family}.jsonl"):
            play = Play(row)
            wrong = list(play.run())
            goals.update(play.goals)
            yield Comparison(f"schedule {row['id']}", not wrong, "; ".join(wrong))
    if goals:
        print(", ".join(f"{goals[goal]} {goal}" for goal in sorted(goals)))


def _differs(what: str, ours: object, recorded: object) -> Iterator[str]:
    if ours != recorded:
        yield f"{what} {ours}, recorded {recorded}"


def _apportion(row: Row) -> Iterator[str]:
    options, table = _apportioned(row, classic=True)
    yield from _differs("given", {name: [sum(g), *g[1:]] for name, g in options.items()}, row["given"])
    yield from _differs("machines left", table, row["vmachines_after"])
    yield from _differs("nshares left", share_counts(table), row["nshares_after"])
    yield from _own_apportion(row)


def _apportioned(row: Row, classic: bool) -> tuple[dict[str, list[int]], list[int]]:
    heaviest_first = sorted(row["entities"], key=lambda e: (-e["weight"], e["name"]))
    entities = [entity(e["name"], e["weight"], e["wanted"], row["max_order"]) for e in heaviest_first]
    table = list(row["vmachines"])
    apportion(entities, table, classic)
    return {e.name: e.given for e in entities}, table


def _own_apportion(row: Row) -> Iterator[str]:
    """Our own rule, without the original's two faults, keeps what it must on the same input."""
    options, table = _apportioned(row, classic=False)
    remaining = share_counts(table)
    if sum(map(total_quanta, options.values())) + total_quanta(table) != total_quanta(row["vmachines"]):
        yield "ours loses or makes quanta"
    for e in row["entities"]:
        for o, requirement in enumerate(e["wanted"]):
            if o and options[e["name"]][o] > requirement:
                yield f"ours gives {e['name']} more of order {o} than it wants"
            if o and options[e["name"]][o] < requirement and remaining[o]:
                yield f"ours leaves order {o} idle though {e['name']} wants it"


def _remove(row: Row) -> Iterator[str]:
    table = list(row["vmachines"])
    remove(table, row["count"], row["order"])
    yield from _differs("machines left", table, row["vmachines_after"])
    yield from _differs("nshares left", share_counts(table), row["nshares_after"])


def _tables(row: Row) -> Iterator[str]:
    if "machine_orders" not in row:
        yield from _differs("nshares", _makeable(Tables(row["n"], row["v"])), row["s"])
        return
    orders = row["machine_orders"]
    free = list(orders)
    tables = Tables.of(zip(orders, free, strict=True), max(orders))
    yield from _differs("tables", [tables.n, tables.v, _makeable(tables)], row["initial_n_v_s"])
    for step in row["ops"]:
        k = step["machine"]
        free[k] = tables.book(step["order"], orders[k], free[k])
        yield from _differs("tables", [tables.n, tables.v, _makeable(tables)], [step["n"], step["v"], step["s"]])
    if out := row.get("count_out"):
        number = tables.count_out(out["order"], out["requested"])
        ours = [number, tables.n, tables.v, _makeable(tables)]
        yield from _differs("counted out", ours, [out["given"], out["n"], out["v"], out["s"]])


def _job_cap(row: Row) -> Iterator[str]:
    growth = Growth(row["init_cap"], row["doubling"], row["prediction"], row["fudge_ms"], row["epoch_ms"])
    load = JobWork(
        row["max_shares"],
        row["remaining"],
        row["threads"],
        row["time_per_item_ms"] or 0.0,
        row["init_wait"],
        tuple(row["init_times_ms"]),
        row["completed"],
    )
    current = row["assigned"] - row["removing"]
    estimate = None if load.initialising else projected(growth, load, current)
    yield from _differs("projected", UNKNOWN if estimate is None else estimate, row["projected"])
    yield from _differs("cap", job_cap(growth, load, current, classic=True)[0], row["cap"])


def _config(row: Row) -> Iterator[str]:
    """Read the text in our words: refused where the original refuses, and the same values where it does not."""
    try:
        classes = read_settings(as_yaml(row["text"]), check_settings)["classes"]
    except PolicyError as fault:
        if row["ok"] and not _default_false(row):
            yield f"ours refuses: {fault}"
        if fault.line is None:
            yield f"ours does not say where: {fault}"
        return
    if not row["ok"]:
        yield f"ours takes it, the original says {row['error']}"
    for name, recorded in row.get("classes", {}).items():
        for key, value in recorded.items():
            if key in VALUES:
                yield from _differs(f"{name}.{key}", VALUES[key](classes[name]), value)


def _default_false(row: Row) -> bool:
    """In the original the mere presence of `default` makes a class the default; ours reads its value."""
    return any(one.get("default") == "false" for one in row["classes"].values())


VALUES: dict[str, Callable[[Row], str]] = {
    "policy": lambda c: str(c["policy"]),
    "priority": lambda c: str(c["priority"]),
    "nodepool": lambda c: str(c["nodepool"]),
    "weight": lambda c: str(c.get("weight", 100)),
    "cap": lambda c: str(c.get("cap", UNKNOWN)),
    "initialization-cap": lambda c: str(c.get("initialization_cap", 2)),
    "expand-by-doubling": lambda c: str(c.get("expand_by_doubling", True)).lower(),
    "use-prediction": lambda c: str(c.get("use_prediction", True)).lower(),
    "prediction-fudge": lambda c: str(round(c.get("prediction_fudge", 60) * 1000)),
    "users": lambda c: " ".join(c["users"]),
    "debug": lambda c: str(c["debug"]),
    "parent": lambda c: str(c["parent"]),
}


def _defect(row: Row) -> Iterator[str]:
    """What went wrong in the original comes out right."""
    play = Play(row)
    yield from play.run()
    jobs = {name: job for name, job in play.figures["jobs"].items() if job["order"]}  # others fit on no machine
    counted = {int(name[1:]): job["counted"] for name, job in jobs.items()}
    held = {int(name[1:]): job["held"] for name, job in jobs.items()}
    yield from _differs("counted", counted, RIGHT[row["id"]])
    yield from _differs("held", held, RIGHT[row["id"]])


RIGHT = {  # by job
    "defect-1": {1: 200},  # no hidden cap: all of 200 quanta
    "defect-2": {1: 16, 2: 16},  # equal weights over nested nodepools
    "defect-3": {1: 3, 2: 3},  # a job too large for everything is put off and stops nobody
    "defect-4": {1: 6},  # what cannot be preempted is not, whatever becomes unknown
}


def _investment(row: Row) -> Iterator[str]:
    shares = [
        Invested(s["id"], s["initialized"], s.get("init_time", 0), s["investment"], s["depth"], s["machine_mem"])
        for s in row["shares"]
    ]
    yield from _differs("order", [s.serial for s in eviction_order(shares, classic=True)], row["eviction_order"])


CHECKS: dict[str, Callable[[Row], Iterator[str]]] = {
    "apportion": _apportion,
    "remove_shares": _remove,
    "tables": _tables,
    "job_cap": _job_cap,
    "investment": _investment,
    "config": _config,
    "defects": _defect,
}
