"""What the DUCC Resource Manager decides: its counting, bit for bit; its schedules, held to the invariants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rainbow.scheduling.fair_share.apportion import apportion, entity
from rainbow.scheduling.fair_share.caps import Growth, Load, job_cap, projected
from rainbow.scheduling.fair_share.investment import Invested, eviction_order
from rainbow.scheduling.fair_share.quanta import share_counts, total_quanta
from rainbow.scheduling.fair_share.splitting import remove
from rainbow.scheduling.fair_share.tables import Tables
from tests.conformance import Comparison, rows

Row = dict[str, Any]
UNKNOWN = 2**31 - 1  # what the original says for "no limit known"


def compare(folder: Path) -> Iterator[Comparison]:
    """Yield one comparison a row of every file the folder has."""
    for name, check in CHECKS.items():
        for row in rows(folder, f"{name}.jsonl"):
            wrong = list(check(row))
            yield Comparison(f"{name} {row['id']}", not wrong, "; ".join(wrong))


def _differs(what: str, ours: object, recorded: object) -> Iterator[str]:
    if ours != recorded:
        yield f"{what} {ours}, recorded {recorded}"


def _apportion(row: Row) -> Iterator[str]:
    given, table = _apportioned(row, classic=True)
    yield from _differs("given", {name: [sum(g), *g[1:]] for name, g in given.items()}, row["given"])
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
    given, table = _apportioned(row, classic=False)
    left = share_counts(table)
    if sum(map(total_quanta, given.values())) + total_quanta(table) != total_quanta(row["vmachines"]):
        yield "ours loses or makes quanta"
    for e in row["entities"]:
        for o, wanted in enumerate(e["wanted"]):
            if o and given[e["name"]][o] > wanted:
                yield f"ours gives {e['name']} more of order {o} than it wants"
            if o and given[e["name"]][o] < wanted and left[o]:
                yield f"ours leaves order {o} idle though {e['name']} wants it"


def _remove(row: Row) -> Iterator[str]:
    table = list(row["vmachines"])
    remove(table, row["count"], row["order"])
    yield from _differs("machines left", table, row["vmachines_after"])
    yield from _differs("nshares left", share_counts(table), row["nshares_after"])


def _tables(row: Row) -> Iterator[str]:
    if "machine_orders" not in row:
        yield from _differs("nshares", Tables(row["n"], row["v"]).s, row["s"])
        return
    orders = row["machine_orders"]
    free = list(orders)
    tables = Tables.of(zip(orders, free, strict=True), max(orders))
    yield from _differs("tables", [tables.n, tables.v, tables.s], row["initial_n_v_s"])
    for step in row["ops"]:
        k = step["machine"]
        free[k] = tables.book(step["order"], orders[k], free[k])
        yield from _differs("tables", [tables.n, tables.v, tables.s], [step["n"], step["v"], step["s"]])
    if out := row.get("count_out"):
        given = tables.count_out(out["order"], out["requested"])
        ours = [given, tables.n, tables.v, tables.s]
        yield from _differs("counted out", ours, [out["given"], out["n"], out["v"], out["s"]])


def _job_cap(row: Row) -> Iterator[str]:
    growth = Growth(row["init_cap"], row["doubling"], row["prediction"], row["fudge_ms"], row["epoch_ms"])
    load = Load(
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
}
