"""Random small clusters and wide requests, each made from one number."""

from __future__ import annotations

import random

import rainbow
from rainbow.jobspec import Condition, Constraint, Count, Need, Request, Resource
from rainbow.matching import Requires, backends

# the backends that need nothing installed beside Rainbow: they answer every case alike
OWN_BACKENDS = [name for name in backends.names() if not isinstance(backends.get(name), Requires)]
LEAVES = [
    "core",
    "core",
    "core:2",
    "core:3",
    "gpu",
    "gpu:2",
    "memory:4:GB",
    "memory:13:GB",
    "memory:750:MB",
    "memory:2:GiB",
]
LEAVES += ["memory:3", "ssd:2"]
OUTER = ["storage", "storage:5", "storage:2", "core", "core:2", "memory:13:GB", "licence:3"]
MOST_LEAVES = 12
ROWS = [
    ("sw", "lib", "gcc", "12.1"),
    ("sw", "lib", "gcc", "13.2"),
    ("sw", "shm", "zlib", "1.0"),
    ("io", "shm", "", "2"),
]
CONDITIONS = [
    Condition("match", {"field": "name", "value": "gcc"}),
    Condition("match", {"field": "type", "value": "shm"}),
    Condition("range", {"field": "version", "min": "2"}),
    Condition("range", {"field": "version", "min": "1", "max": "12.1"}),
    Condition("flat", {"field": "name", "value": "zlib"}),
]
CONSTRAINTS = [
    Constraint("properties", ("amd",)),
    Constraint("properties", ("^ib",)),
    Constraint("hostlist", ("node[0-1]",)),
    Constraint("hostlist", ("node[1-9]",)),
    Constraint("not", (), (Constraint("hostlist", ("node0",)),)),
    Constraint("ranks", ("0-1",)),
    Constraint("or", (), (Constraint("properties", ("ib",)), Constraint("hostlist", ("node1",)))),
]
WORKERS = ["node"] * 8 + ["socket", "rack", "blade"]  # no vertex is a blade: the root is the one worker then


def case(number):
    """Return the cluster and the request of one number."""
    rng = random.Random(number)
    shape = _shape(rng)
    return _cluster(rng, shape), _request(rng, sorted(set(_kinds(shape))))


# ── clusters ──


def _shape(rng):
    while True:
        parts = [part for _ in range(rng.randint(1, 3)) for part in _group(rng)]
        if 1 <= sum(1 for kind, below in _walk(parts) if not below) <= MOST_LEAVES:
            return parts


def _group(rng):
    roll = rng.random()
    if roll < 0.2:
        return [(rng.choice(OUTER), [])]
    if roll < 0.4:
        inner = [part for _ in range(rng.randint(1, 2)) for part in _nodes(rng)]
        return [("rack", inner + [(leaf, []) for leaf in rng.sample(OUTER, rng.choice([0, 0, 1]))])]
    return _nodes(rng)


def _nodes(rng):
    kind = rng.choice(["node"] * 6 + ["node+amd", "node+amd+ib", "node:2"])
    parts = [_socket(rng) if rng.random() < 0.25 else (rng.choice(LEAVES), []) for _ in range(rng.randint(0, 3))]
    return [(kind, parts)] * rng.choice([1, 1, 2, 3])


def _socket(rng):
    return ("socket", [(rng.choice(LEAVES), []) for _ in range(rng.randint(1, 2))])


def _walk(parts):
    for kind, below in parts:
        yield kind, below
        yield from _walk(below)


def _kinds(parts):
    return (kind.split("+")[0].split(":")[0] for kind, _ in _walk(parts))


def _cluster(rng, shape):
    vertices, edges, ranks = {"c": {"metadata": {"type": "cluster", "name": "c"}}}, [], iter(range(1000))

    def grow(parts, above):
        for number, (kind, below) in enumerate(parts):
            kind, *properties = kind.split("+")
            kind, size, unit = [*kind.split(":"), "", ""][:3]
            vertex = f"{above}/{kind}{number}"
            fields = {"type": kind, "name": f"{kind}{number}", "size": int(size or 1), "unit": unit}
            fields |= {"properties": properties} | ({"rank": next(ranks)} if kind == "node" else {})
            vertices[vertex] = {"metadata": fields}
            edges.append({"source": above, "target": vertex, "relation": "contains"})
            grow(below, vertex)

    grow(shape, "c")
    cluster = rainbow.read_cluster(
        {"graph": {"nodes": vertices, "edges": edges}}, name="c", worker_type=rng.choice(WORKERS)
    )
    hung = [(rng.choice(list(vertices)), rng.choice(ROWS)) for _ in range(rng.choice([0, 0, 1, 2, 3, 4]))]
    for subsystem in sorted({row[0] for _, row in hung}):
        nodes, ties = {}, []
        for number, (at, (called, kind, name, version)) in enumerate(hung):
            if called == subsystem:
                fields = {"type": kind, "version": version, "id": number, **({"name": name} if name else {})}
                nodes[f"v{number}"] = {"metadata": fields}
                ties.append({"source": at, "target": f"v{number}"})
        cluster = cluster.with_subsystem(subsystem, {"graph": {"nodes": nodes, "edges": ties}})
    return cluster


# ── requests ──


def _request(rng, kinds):
    if rng.random() < 0.05:
        kinds = [*kinds, "gpu", "storage", "cluster"]
    labels = iter("abcdefgh")
    trees = tuple(_resource(rng, kinds, (), 3, labels) for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3])))
    constraint = rng.choice(CONSTRAINTS) if rng.random() < 0.15 else None
    return Request((trees,), (), constraint=constraint)


def _resource(rng, kinds, above, depth, labels):
    allowed = [kind for kind in kinds if kind not in above]
    is_slot = depth and above.count("slot") < 2 and rng.random() < 0.35
    kind = "slot" if is_slot else rng.choice(allowed or ["core"])
    children = ()
    if kind == "slot" or (kind in ("socket", "node", "rack") and depth and rng.random() < 0.7):
        inner = [k for k in kinds if _inside(k, kind)] if kind != "slot" else kinds
        many = rng.choice([1, 1, 1, 2, 2, 0] if kind == "slot" else [1, 1, 2])
        children = tuple(
            _resource(rng, inner or kinds, (*above, kind), max(depth - 1, 0), labels) for _ in range(many)
        )
    least = rng.choice([1, 1, 1, 1, 2, 2, 3])
    unit = ""
    if kind == "memory":
        unit = rng.choice(["", "MB", "GB", "MiB"])
        least = rng.choice([500, 750, 1000, 4000, 4500]) if unit in ("MB", "MiB") else rng.choice([1, 2, 4])
    most = rng.choice([least, least, least, least + 2, None])
    exclusive = kind != "slot" and rng.random() < 0.2
    needs = tuple(_need(rng) for _ in range(rng.choice([0] * 8 + [1, 1, 2])))
    label = next(labels, "z") if kind == "slot" else ""
    return Resource(kind, Count(least, most), unit, exclusive, label, needs, children)


def _inside(kind, above):
    order = ("rack", "node", "socket")
    return kind not in order or order.index(kind) > order.index(above)


def _need(rng):
    subsystem = rng.choice(["sw"] * 8 + ["io", "io", "power"])
    return Need(subsystem, tuple(rng.sample(CONDITIONS, rng.choice([1, 1, 1, 1, 2]))))
