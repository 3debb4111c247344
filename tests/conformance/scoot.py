"""What Scoot's load-based algorithm counts, against `rounding: classic` at the counting function.

A field recorded with one outcome must be ours; one recorded with several must hold ours, unless the list was cut at
eight. Nothing is asserted of scenarios in which the original divides nothing by nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.load_based import classic_counts, settings
from rainbow.scheduling.load_based.class_queues import Queue
from rainbow.scheduling.load_based.rebalance import given_back, units
from rainbow.scheduling.load_based.settings import Classes, Rebalance, check_settings, read_classes
from rainbow.scheduling.snapshot import GangView, JobView, RunView
from tests.conformance import Comparison, rows

OBSERVED = 8  # a list of outcomes this long was cut
LISTED = 25  # longer orders were not recorded
REMEMBERED = 4 * 3600  # seconds; the original does not find tasks that were started before that

Row = Mapping[str, Any]


def compare(folder: Path) -> Iterator[Comparison]:
    """Yield one comparison a scenario, then one a table of the original's own tests."""
    for row in rows(folder, "scenarios.jsonl"):
        wrong = [] if "nan" in row["flags"] else list(_differences(decide(row), row))
        yield Comparison(f"scenario {row['id']}", not wrong, "; ".join(wrong))
    tables = folder / "from_tests.json"
    for table in json.loads(tables.read_text()) if tables.exists() else ():
        if table["suite"] == "load_based" and "classes" in table:
            wrong = list(_differences(decide(_scenario(table)), {**table, "flags": []}))
            yield Comparison(f"table {table['name']}", not wrong, "; ".join(wrong))


def _differences(ours: Row, row: Row) -> Iterator[str]:
    """Name every field in which ours is not the recorded one."""
    for name, recorded in row["expect"].items():
        field, _, several = name.partition("_any")
        if field not in ours or (several == "" and name.endswith("_any") and len(recorded) >= OBSERVED):
            continue
        outcomes = recorded if name.endswith("_any") else [recorded]
        if ours[field] not in [_told(field, outcome) for outcome in outcomes]:
            yield f"{field} {ours[field]}, recorded {recorded}"
    if "nondet" not in row["flags"]:
        for name, count in row.get("want", {}).items():  # where the count is not what was found to start or stop
            if ours["want"].get(name) != count:
                yield f"want {ours['want']}, recorded {row['want']}"
        if "class_waiting" in row and ours["class_waiting"] != row["class_waiting"]:
            yield f"class_waiting {ours['class_waiting']}, recorded {row['class_waiting']}"


def _told(field: str, outcome: Any) -> Any:
    """A count of nothing may be told or not."""
    return _counted(outcome) if field in ("start", "stop", "by_job") else outcome


def _counted(counts: Mapping[str, int] | None) -> dict[str, int]:
    return {name: n for name, n in (counts or {}).items() if n}


def decide(row: Row) -> dict[str, Any]:
    """Answer a scenario with the counting function, the round robin and the choice of victims."""
    classes = _classes(row)
    percents = settings.normalise(row["percents"])
    jobs = _by_class(row["jobs"], classes)
    running = {name: sum(job["run"] for job in result) for name, result in jobs.items()}
    waiting = {name: sum(job["wait"] for job in result) for name, result in jobs.items()}
    spread = classic_counts.spread(row["workers"], percents, running, waiting)
    due, excess = _timer(row, spread)
    if due:
        counts = classic_counts.rebalanced(row["workers"], percents, running, waiting)
    else:
        counts = classic_counts.starts(row["idle"], row["workers"], percents, running, waiting)
    order = {name: _started(jobs[name], counts.get(name, 0)) for name in jobs}
    victims = {name: _victims(row, classes, name, -counts[name]) for name in percents if counts[name] < 0}
    return {
        "pct": percents,
        "target": classic_counts.targets(row["workers"], percents),
        "want": counts,
        "class_waiting": _counted(waiting),
        "start": {name: len(taken) for name, taken in order.items() if taken},
        "by_job": dict(Counter(job for taken in order.values() for job in taken)),
        "order": {name: taken for name, taken in order.items() if taken},
        "stop": {name: len(result) for name, result in victims.items() if result},
        "stop_tasks": {name: result for name, result in victims.items() if result},
        "timer_set": excess is not None,
    }


def _classes(row: Row) -> Classes:
    entries = [{"match": match, "class": name} for match, name in row["map"].items() if _compiles(match)]
    return read_classes(
        {**check_settings({}), "classes": row["percents"], "requestors": entries, "rounding": "classic"}
    )


def _compiles(match: str) -> bool:
    try:
        return bool(re.compile(match))
    except re.error:
        return False


def _by_class(jobs: list[Row], classes: Classes) -> dict[str, list[Row]]:
    """Group jobs by class, those of one requestor together; classes of 0 % are skipped."""
    by_requestor: dict[str, list[Row]] = {}
    for job in jobs:
        by_requestor.setdefault(job["r"], []).append(job)
    results: dict[str, list[Row]] = {}
    for requestor, own in by_requestor.items():
        name = classes.of(requestor)
        if classes.percents[name]:
            results.setdefault(name, []).extend(own)
    return results


def _started(jobs: list[Row], most: int) -> list[str]:
    """Name the job of every start; its jobs have come in this order."""
    census = ClusterIndex()
    for at, job in enumerate(jobs):
        gangs = [GangView(job["id"], k, (f"{job['id']}-{k}",), "node") for k in range(job["wait"])]
        census.put_job(JobView(job["id"], job["r"], float(at), gangs, running=job["run"]))
    queue, taken = Queue(census, {job["r"]: None for job in jobs}, classic=True), []
    while len(taken) < most and (head := queue.head()) is not None:
        taken.append(head[0].id)
        queue.advance()
    return taken


def _timer(row: Row, spread: float) -> tuple[bool, float | None]:
    request = row.get("rebalance")
    if not request:
        return False, None
    over = request["over_minutes"]
    setting = Rebalance(request["threshold"], request["min_minutes"])
    return setting.due(spread, None if over is None else -60.0 * over, 0.0 + 1e-3, clears=False)


def _victims(row: Row, classes: Classes, name: str, most: int) -> list[str]:
    """Choose among the tasks the original finds: it looks classes up by what the map says, back for four hours."""
    runs = [
        RunView(f"{job['id']}:r{k}", f"{job['id']}:r{k}", name, 0, {}, -age)
        for job in row["jobs"]
        if classes.of(job["r"]) == name
        for k, age in enumerate(job.get("ages", [0] * job["run"]))
        if age <= REMEMBERED
    ]
    return [task for unit in given_back(units(runs, len), most) for task in unit.tasks]


def _scenario(table: Row) -> Row:
    """Write a table as a scenario: every class with its jobs, running and waiting spread over them."""
    jobs = [
        {
            "id": f"{name}-{k}",
            "r": name,
            "run": _part(c["running"], c["jobs"], k),
            "wait": _part(c["waiting"], c["jobs"], k),
        }
        for name, c in table["classes"].items()
        for k in range(max(1, c["jobs"]))
    ]
    return {
        "workers": table["workers_total"],
        "idle": table["idle"],
        "percents": {name: c["load_percent"] for name, c in table["classes"].items()},
        "map": {f"^{name}$": name for name in table["classes"]},
        "jobs": [{**job, "ages": [60] * job["run"]} for job in jobs],
        "rebalance": table["rebalance"],
        "flags": [],
    }


def _part(total: int, jobs: int, k: int) -> int:
    jobs = max(1, jobs)
    return total // jobs + (k < total % jobs)
