"""Jobspecs for Flux: what they say is read again by our own reader of RFC 25; what Flux has not is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.errors import JobspecError
from rainbow.graph import read_cluster
from rainbow.jobspec import parse_jobspec
from rainbow.jobspec.flux import flux_jobspec
from rainbow.matching import match
from tests.conftest import grid

CORES = {"work": {"type": "core", "replicas": 3, "count": 2}}
# recorded by hand from RFC 14, 25, 26 and 31: {what is asked for: what Flux is told}
TEXTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"resources": CORES},
        {"resources": [{"type": "slot", "count": 3, "label": "work", "with": [{"type": "core", "count": 2}]}]},
    ),
    (
        {"resources": {"work": {"type": "node", "replicas": 2, "with": [{"type": "core", "count": 4}]}}},
        {
            "resources": [
                {
                    "type": "slot",
                    "count": 2,
                    "label": "work",
                    "with": [{"type": "node", "count": 1, "with": [{"type": "core", "count": 4}]}],
                }
            ]
        },
    ),
    (
        {
            "name": "a",
            "resources": CORES,
            "attributes": {
                "system": {
                    "duration": 90,
                    "cwd": "/w",
                    "environment": {"A": "1"},
                    "queue": "batch",
                    "constraints": {"properties": ["ib"]},
                    "output": "%x-%j.out",
                    "error": "err",
                    "dependencies": [{"scheme": "afterok", "value": "f12"}],
                }
            },
        },
        {
            "attributes": {
                "system": {
                    "duration": 90.0,
                    "cwd": "/w",
                    "environment": {"A": "1"},
                    "constraints": {"properties": ["ib"]},
                    "queue": "batch",
                    "dependencies": [{"scheme": "afterok", "value": "f12"}],
                    "job": {"name": "a"},
                    "shell": {
                        "options": {
                            "output": {
                                "stdout": {"type": "file", "path": "{{name}}-{{id}}.out"},
                                "stderr": {"type": "file", "path": "err"},
                            }
                        }
                    },
                }
            }
        },
    ),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"resources": {"work": {"type": "slot", "with": [{"type": "memory", "count": 1, "unit": "GiB"}]}}}, "memory"),
    ({"resources": {"work": {"type": "node", "count": "2-4", "with": [{"type": "core"}]}}}, "not a range"),
    ({"resources": CORES, "tasks": [{"command": ["x"], "resources": "work", "replicas": 2}]}, "no arrays"),
    ({"resources": CORES, "tasks": [{"command": [c], "resources": "work"} for c in "xy"]}, "one command"),
]


def whole(document: dict[str, Any]) -> dict[str, Any]:
    return {"tasks": [{"command": ["x", "y z"], "resources": "work"}], **document}


@pytest.mark.parametrize(("asked", "said"), TEXTS, ids=["cores", "nodes", "attributes"])
def test_jobspec_is_said_as_the_rfcs_write_it(asked: dict[str, Any], said: dict[str, Any]) -> None:
    request = parse_jobspec(whole(asked))
    results = flux_jobspec(request)
    assert {key: results[key] for key in said} == said
    assert results["tasks"] == [{"command": ["x", "y z"], "slot": "work", "count": {"per_slot": 1}}]
    again, cluster = parse_jobspec(results), read_cluster(grid(4, 8))
    assert len({match(one, [cluster])[0].fits for one in (again, request)}) == 1
    assert (again.duration, again.cwd, again.name, again.constraint) == (
        request.duration,
        request.cwd,
        request.name,
        request.constraint,
    )


@pytest.mark.parametrize(("asked", "told"), REFUSED, ids=["memory", "range", "array", "tasks"])
def test_what_flux_has_not_is_refused_in_words(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(JobspecError, match=told):
        flux_jobspec(parse_jobspec(whole(asked)))
