"""An example of every body, for the API's document: each is one that the server takes."""

from __future__ import annotations

from typing import Any

GRAPH = {
    "graph": {
        "nodes": {
            "c0": {"metadata": {"type": "cluster", "name": "oak"}},
            "n0": {"metadata": {"type": "node", "name": "n0"}},
            "p0": {"metadata": {"type": "core", "name": "core0"}},
        },
        "edges": [
            {"source": "c0", "target": "n0", "relation": "contains"},
            {"source": "n0", "target": "p0", "relation": "contains"},
        ],
    }
}
SUBSYSTEM = {
    "graph": {
        "nodes": {"shm0": {"metadata": {"type": "shm", "name": "shm0"}}},
        "edges": [{"source": "n0", "target": "shm0", "relation": "contains"}],
    }
}
JOBSPEC = {
    "version": 1,
    "resources": {"work": {"type": "core", "replicas": 1}},
    "tasks": [{"command": ["true"], "resources": "work"}],
}
EXAMPLES: dict[str, Any] = {
    "clusters.register": {"name": "oak", "graph": GRAPH, "state": {"nodes_free": 1}},
    "clusters.put_graph": GRAPH,
    "clusters.patch_graph": {"changes": [{"op": "set", "vertex": "n0", "properties": {"rack": "r1"}}]},
    "clusters.put_subsystem": SUBSYSTEM,
    "clusters.put_state": {"nodes_free": 1, "cost": 0.5, "arch": "x86_64"},
    "clusters.put_scheduler": {"policy": "load_based", "settings": {"classes": {"land": 60, "sea": 40}}},
    "jobs.submit": {"jobspec": JOBSPEC, "name": "hello", "requestor": "ann"},
    "jobs.match": {"jobspec": JOBSPEC},
    "batch.submit": {"jobs": [{"jobspec": JOBSPEC}, {"jobspec": JOBSPEC, "name": "second"}]},
    "agents.receive": {"agent": "a", "max": 4, "wait": 0},
    "agents.accept": {"agent": "a", "tasks": []},
    "agents.events": {"agent": "a", "events": []},
    "agents.heartbeat": {"agent": "a", "workers": ["n0"], "running": []},
    "reservations.create": {"jobspec": JOBSPEC, "duration": 3600, "requestor": "ann", "name": "the demonstration"},
    "tokens.mint": {"clusters": ["oak"], "requestors": ["ann"], "name": "for ann"},
}
