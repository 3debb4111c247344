"""Figures of every cluster's scheduling for a monitor, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.service.steps.stepping import plan_only
from rainbow.store import clusters, tasks

if TYPE_CHECKING:
    from rainbow.service.service import Service

OF_CLASS = {
    "target": "Units a class is entitled to.",
    "running": "Tasks of a class that hold something.",
    "held": "Units the tasks of a class hold.",
    "waiting": "Tasks of a class that wait.",
    "loaned": "Units a class holds beyond its target.",
    "unused": "Units a class is entitled to and does not hold.",
}
OF_CLUSTER = {
    "spread": "Delta entitlement spread in percent points.",
    "units": "Units of all ready workers.",
    "idle": "Units that are free.",
}
OF_HOST = {
    "tasks_waiting": "Tasks that wait.",
    "tasks_booked": "Tasks that hold something.",
    "step_failed": "1 if the last step failed, else 0.",
}
OF_ALL = {f"class_{key}": text for key, text in OF_CLASS.items()} | OF_CLUSTER | OF_HOST
Sample = tuple[dict[str, str], float]


def metrics(service: Service) -> str:
    """Write the figures of every cluster as they are now."""
    found: dict[str, list[Sample]] = {}
    for name in sorted(service.catalogue):
        for metric, sample in _of_cluster(service, name):
            found.setdefault(metric, []).append(sample)
    return "".join(line for metric, text in OF_ALL.items() for line in _written(metric, text, found.get(metric, [])))


def _of_cluster(service: Service, name: str) -> Iterator[tuple[str, Sample]]:
    entry, label = service.catalogue[name], {"cluster": name}
    with service.store.read() as connection:
        waiting, booked = tasks.unended(connection, entry.id)
    yield from (("tasks_waiting", (label, waiting)), ("tasks_booked", (label, booked)))
    yield "step_failed", (label, float(entry.id in service.faults))
    yield from _of_policy(_figures(service, name), label)


def _figures(service: Service, name: str) -> Mapping[str, Any]:
    try:
        with service.store.read() as connection:
            record = clusters.get(connection, service.catalogue[name].id)
        plan = plan_only(service, record) if record else None
    except Exception:  # a policy is anybody's code; that it failed is told by step_failed
        return {}
    return plan[1].figures if plan else {}


def _of_policy(figures: Mapping[str, Any], label: dict[str, str]) -> Iterator[tuple[str, Sample]]:
    for key in OF_CLUSTER:
        if isinstance(figures.get(key), (int, float)):
            yield key, (label, figures[key])
    classes = figures.get("classes", {})
    for one, row in classes.items() if isinstance(classes, Mapping) else ():
        yield from ((f"class_{key}", ({**label, "class": one}, row[key])) for key in OF_CLASS if key in row)


def _written(metric: str, text: str, samples: list[Sample]) -> Iterator[str]:
    if samples:
        yield f"# HELP rainbow_{metric} {text}\n# TYPE rainbow_{metric} gauge\n"
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
        yield f"rainbow_{metric}{{{inside}}} {value}\n"


def _escaped(word: str) -> str:
    """Write a label's value.

    >>> _escaped('a"b')
    'a\\\\"b'
    """
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
