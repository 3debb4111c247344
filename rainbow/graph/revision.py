"""An outline after changes of its document (graph/delta.py): what does not change is taken over, not read again.

    add           entries behind all others, each below one that comes before it
    remove        entries go with all they contain; the others keep their order and move up
    set, resize   an entry has other fields

Only a plain tree is revised so: each vertex written out, below one other. Where a change is anything else, or where
something of it may be wrong, the answer is None: who reads the whole document says what it means.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.errors import InputError
from rainbow.graph.delta import apply_delta
from rainbow.graph.document import LIMITS, Limits
from rainbow.graph.formats import read_document
from rainbow.graph.validation import attributes, check_vertices, grown

if TYPE_CHECKING:
    from rainbow.graph.outline import Fields, Outline

KINDS = {"add": "add", "remove": "remove", "set": "alter", "resize": "alter"}
ALTERS = {"set": "properties", "resize": "size"}
MOST_RUNS = 8  # runs of changes of one kind; each copies the lists of an outline


class Revision(NamedTuple):
    """An outline, and how it differs from the one before.

    removed    entries of the one before that are gone, in order
    taken      how many entries come from the one before; the new ones follow them
    changed    entries of this one that are new, have other fields, or contain others than before
    edges      how many edges its document has
    """

    outline: Outline
    removed: Sequence[int]
    taken: int
    changed: Collection[int]
    edges: int

    def then(self, later: Revision) -> Revision:
        """Return how a later outline, made from this one, differs from the one before this."""
        older = [_original(self.removed, entry) for entry in later.removed if entry < self.taken]
        gone = set(later.removed)
        changed = {entry - bisect_left(later.removed, entry) for entry in self.changed if entry not in gone}
        return later._replace(
            removed=sorted([*self.removed, *older]),
            taken=self.taken - len(older),
            changed=changed | set(later.changed),
        )


def _original(removed: Sequence[int], entry: int) -> int:
    """Return which entry one was before others were removed."""
    for one in removed:
        if one > entry:
            break
        entry += 1
    return entry


def revised(outline: Outline, changes: Any, vertices: int, edges: int, limits: Limits = LIMITS) -> Revision | None:
    """Return an outline after changes of its document, which has as many vertices and edges before them."""
    if "ids" not in vars(outline) or outline.templates or not _is_list(changes):
        return None
    runs = [(kind, list(run)) for kind, run in groupby(changes, lambda change: KINDS[change["op"]])]
    if not runs or len(runs) > MOST_RUNS:
        return None
    foreign = vertices - len(outline.ids)  # vertices of other subsystems in the same document
    revision = Revision(outline, (), len(outline.ids), (), edges)
    try:
        for kind, run in runs:
            ids = revision.outline.ids
            is_tree = not foreign and revision.edges == len(ids) - 1 and revision.outline.is_listed
            if kind != "add" and not is_tree:
                return None
            step = STEPS[kind](revision.outline, run, revision.edges, limits)
            if step is None:
                return None
            limits.check("vertices", foreign + len(step.outline.ids), "")
            limits.check("edges", step.edges, "")
            revision = revision.then(step)
    except InputError:  # who reads the whole document tells of it
        return None
    return revision


def _is_list(changes: Any) -> bool:
    return isinstance(changes, Sequence) and all(
        isinstance(one, Mapping) and isinstance(one.get("op"), str) and one["op"] in KINDS for one in changes
    )


def _add(outline: Outline, run: Sequence[Mapping[str, Any]], edges: int, limits: Limits) -> Revision | None:
    more = apply_delta({"graph": {"nodes": {}}}, run)
    made = grown(outline, read_document(more, limits), limits)
    if made is None:
        return None
    taken = len(outline.ids)
    return Revision(made, (), taken, range(taken, len(made.ids)), edges + len(more["graph"]["edges"]))


def _remove(outline: Outline, run: Sequence[Mapping[str, Any]], edges: int, _: Limits) -> Revision | None:
    gone: set[int] = set()
    above: set[int] = set()
    for change in run:
        top = _entry(outline, change)
        if not top or top in gone:  # not there, or the root
            return None
        above.add(outline.parents[top])
        below = [top]
        while below:
            gone.add(entry := below.pop())
            below += [child for child, _, _ in outline.below[entry]]
    removed = sorted(gone)
    changed = {entry - bisect_left(removed, entry) for entry in above - gone}
    return Revision(outline.without(removed), removed, len(outline.ids) - len(gone), changed, edges - len(gone))


def _alter(outline: Outline, run: Sequence[Mapping[str, Any]], edges: int, limits: Limits) -> Revision | None:
    other: dict[int, Fields] = {}
    for change in run:
        entry, key = _entry(outline, change), ALTERS[change["op"]]
        if entry is None or key not in change:
            return None
        fields = other.get(entry, outline.fields[entry])
        metadata = {**fields.metadata, key: change[key]}
        alone = {"graph": {"nodes": {outline.ids[entry]: {"metadata": metadata}}}}
        [vertex] = check_vertices(read_document(alone, limits)).values()
        read = attributes(vertex)
        other[entry] = fields._replace(size=read.size, properties=read.properties, metadata=metadata)
    return Revision(outline.with_fields(other), (), len(outline.ids), other, edges)


def _entry(outline: Outline, change: Mapping[str, Any]) -> int | None:
    vertex = change.get("vertex")
    return outline.places.get(vertex) if isinstance(vertex, str) else None


STEPS = {"add": _add, "remove": _remove, "alter": _alter}
