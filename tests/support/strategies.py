"""Random clusters and requests, odd ones too: cores and storage outside nodes, needs at every level, units."""

from __future__ import annotations

import random

from hypothesis import strategies as st

import rainbow
from rainbow.jobspec import Condition, Constraint, Count, Need, Request, Resource

SMALL = {
    "core": ["core", "core:2", "core:3"],
    "gpu": ["gpu"],
    "memory": ["memory:4:GB", "memory:8:GB", "memory:2000:MB", "memory:3"],
    "ssd": ["ssd:2"],
    "storage": ["storage", "storage:5"],
}
leaves = st.sampled_from(["core", "core", "gpu", "memory"]).flatmap(lambda kind: st.sampled_from(SMALL[kind]))
outer = st.sampled_from(["storage", "core", "memory", "ssd"]).flatmap(lambda kind: st.sampled_from(SMALL[kind]))
sockets = st.lists(leaves, max_size=3).map(lambda parts: ("socket", parts))
nodes = st.lists(st.one_of(leaves, leaves, sockets), max_size=3).flatmap(
    lambda parts: st.sampled_from(["node", "node", "node+amd", "node+amd+ib"]).map(lambda kind: (kind, parts))
)
repeated_nodes = st.tuples(nodes, st.integers(1, 3)).map(lambda drawn: [drawn[0]] * drawn[1])
racks = st.lists(
    st.one_of(repeated_nodes, repeated_nodes, outer.map(lambda leaf: [leaf])), min_size=1, max_size=3
).map(lambda groups: ("rack", [part for group in groups for part in group]))
repeated_racks = st.tuples(racks, st.integers(1, 2)).map(lambda drawn: [drawn[0]] * drawn[1])
shapes = st.lists(
    st.one_of(repeated_nodes, repeated_nodes, repeated_racks, outer.map(lambda leaf: [leaf])), min_size=1, max_size=3
).map(lambda groups: [part for group in groups for part in group])

versions = st.sampled_from(["1.0", "1.2.9", "2", "rolling"])
rows = st.tuples(
    st.sampled_from(["sw", "io"]), st.sampled_from(["shm", "lib"]), st.sampled_from(["zlib", "curl", ""]), versions
)
hung = st.lists(st.tuples(st.integers(0, 40), rows), max_size=4)

conditions = st.one_of(
    st.sampled_from(["zlib", "curl"]).map(lambda name: Condition("match", {"field": "name", "value": name})),
    st.sampled_from(["shm", "lib"]).map(lambda kind: Condition("match", {"field": "type", "value": kind})),
    st.sampled_from(["1.0", "1.2", "2"]).map(lambda low: Condition("range", {"field": "version", "min": low})),
    st.sampled_from(["zlib", "shm"]).map(lambda key: Condition("flat", {"field": "name", "value": key})),
)
needs = st.builds(
    Need, st.sampled_from(["sw", "sw", "io", "power"]), st.lists(conditions, min_size=1, max_size=2).map(tuple)
)
some_needs = st.one_of(st.just(()), st.just(()), st.just(()), st.lists(needs, min_size=1, max_size=2).map(tuple))

named = st.sampled_from(
    [
        Constraint("properties", ("amd",)),
        Constraint("properties", ("^ib",)),
        Constraint("hostlist", ("node[0-1]",)),
        Constraint("not", (), (Constraint("hostlist", ("node0",)),)),
        Constraint("ranks", ("0-2",)),
        Constraint("or", (), (Constraint("properties", ("ib",)), Constraint("hostlist", ("node1",)))),
    ]
)
constraints = st.one_of(st.none(), st.none(), st.none(), named)


TYPES = ("core", "gpu", "memory", "ssd", "storage", "socket", "node", "rack")


@st.composite
def resources(draw, depth=3, above=(), types=TYPES):
    """Draw a request tree of `types`; no type in itself, no slot in a slot."""
    kinds = [kind for kind in (*types, "slot") if kind not in above]
    kind = draw(st.sampled_from(kinds or ["core"]))
    count = draw(st.sampled_from([1, 1, 2, 3]))
    children = ()
    if kind in ("socket", "node", "rack", "slot") and depth:
        inner = (*(k for k in above if k != "slot"), kind)
        children = tuple(draw(st.lists(resources(depth=depth - 1, above=inner, types=types), max_size=2)))
    unit = draw(st.sampled_from(["", "", "GB", "MB"])) if kind == "memory" else ""
    label = "work" if kind == "slot" else ""
    exclusive = kind != "slot" and draw(st.sampled_from([False, False, False, False, True]))
    return Resource(kind, Count(count, count), unit, exclusive, label, draw(some_needs), children)


@st.composite
def requests(draw, types=TYPES):
    """Draw a request of one or two trees, a few of them with a constraint."""
    forest = draw(st.lists(resources(types=types), min_size=1, max_size=2))
    return Request((tuple(forest),), (), constraint=draw(constraints))


@st.composite
def cases(draw):
    """Draw a shape, what hangs on it, and a request that mostly names types the shape has."""
    shape = draw(shapes)
    results = sorted(set(_types(shape)))
    types = TYPES if draw(st.integers(0, 9)) == 0 else tuple(results)
    return shape, draw(hung), draw(requests(types=types))


def _types(parts):
    for part in parts:
        kind, below = part if isinstance(part, tuple) else (part, [])
        yield kind.split("+")[0].split(":")[0]
        yield from _types(below)


def grown(shape, fields_of):
    """Return the vertices and edges of a shape below one cluster; a vertex has the fields of its kind and number."""
    vertices, edges = {}, []

    def grow(parts, parent, path):
        for number, part in enumerate(parts):
            kind, below = part if isinstance(part, tuple) else (part, [])
            fields = fields_of(kind, number)
            vertex = f"{path}/{fields['name']}"
            vertices[vertex] = {"metadata": fields}
            if parent:
                edges.append({"source": parent, "target": vertex, "relation": "contains"})
            grow(below, vertex, vertex)

    grow([("cluster", shape)], None, "")
    return vertices, edges


def document(shape, seed=0):
    """Write a shape as JGF, its vertices and edges in an order drawn from `seed`; ranks by order of nodes."""
    ranks = iter(range(10_000))

    def fields_of(kind, number):
        kind, *properties = kind.split("+")
        kind, size, unit = [*kind.split(":"), "", ""][:3]
        fields = {"type": kind, "name": f"{kind}{number}", "size": int(size or 1), "unit": unit}
        rank = {"rank": next(ranks)} if kind == "node" else {}
        return {**fields, **rank, "properties": properties}

    vertices, edges = grown(shape, fields_of)
    rng = random.Random(seed)
    keys = list(vertices)
    if seed:
        rng.shuffle(keys)
        rng.shuffle(edges)
    return {"graph": {"nodes": {key: vertices[key] for key in keys}, "edges": edges}}


def cluster(shape, hangings=(), seed=0, name="c", more=None):
    """Read a shape and hang rows of subsystems on its vertices, counted in the order they are drawn.

    `more`: (vertex, type) adds a leaf below a vertex, in front of all others.
    """
    plain, read = document(shape), document(shape, seed)
    if more:
        fields = {"type": more[1], "name": f"0{more[1]}"}
        read["graph"]["nodes"]["more"] = {"metadata": {**fields, "paths": {"containment": f"{more[0]}/0{more[1]}"}}}
        read["graph"]["edges"].append({"source": more[0], "target": "more", "relation": "contains"})
    built = rainbow.read_cluster(read, name=name)
    at = list(plain["graph"]["nodes"])
    for subsystem in sorted({row[0] for _, row in hangings}):
        vertices, edges = {}, []
        for number, (place, (called, kind, label, version)) in enumerate(hangings):
            if called == subsystem:
                fields = {"type": kind, "version": version, "id": number}
                vertices[f"v{number}"] = {"metadata": {**fields, **({"name": label} if label else {})}}
                edges.append({"source": at[place % len(at)], "target": f"v{number}"})
        built = built.with_subsystem(subsystem, {"graph": {"nodes": vertices, "edges": edges}})
    return built
