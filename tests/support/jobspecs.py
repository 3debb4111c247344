"""Strategies of jobspecs: good ones of every dialect, and ways to spoil them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.support.asking import SHARED

ROOT = Path(__file__).parents[2]


def real_texts() -> list[str]:
    """The jobspecs of this repository, and upstream's where they are at hand."""
    own = [path for path in sorted((ROOT / "jobspecs").glob("*.yaml")) if path.name != "expected.yaml"]
    upstream = [
        path
        for path in sorted((SHARED / "inputs").rglob("*.yaml"))
        if not any(word in str(path) for word in ("config", "spec_26", "lammps"))
    ]
    return [path.read_text(encoding="utf-8") for path in own + upstream]


TEXTS = real_texts()
DOCUMENTS = [yaml.load(text, yaml.CSafeLoader) for text in TEXTS]

RFC14 = "version resources tasks attributes type count unit exclusive label id with command slot per_slot total"
COUNTS = "per_resource distribution min max operator operand system user parameter duration cwd environment job"
NEEDS = "constraints dependencies properties hostlist ranks and or not scheme value scope field match range name all"
NEXT = "task group groups replicas requires depends_on schedule storage priority scripts spack os << = ~ a/b"
KEYS = st.sampled_from(f"{RFC14} {COUNTS} {NEEDS} {NEXT}".split())
WORDS = "slot node core default 4 0 4+ 2-8:2:* 1,3-5 [1-2] + * ^ afterok string in user 1.10 n[0-3] ^gpu a|b"
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, 2, -1, 2**53, 2**53 + 1, 2**64, 10**400, 10**4200, 1.0, 1e308, 5e-324]),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from([*WORDS.split(), "", "\0", "\ud800", "é", "0-999999999999", "n[0-99999999]", "'", "${x}"]),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, st.text(max_size=4)), inner, max_size=4)
    ),
    max_leaves=20,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A real jobspec with up to three places changed: junk there, nothing there, or what holds it there."""
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(document)))
        if not path:
            continue
        within = document
        for key in path[:-1]:
            within = within[key]
        change = draw(st.sampled_from(["junk", "gone", "other", "key"]))
        if change == "gone":
            del within[path[-1]]
        elif change == "key" and isinstance(within, dict):
            within[draw(KEYS)] = draw(JUNK)
        else:
            within[path[-1]] = draw(JUNK) if change == "junk" else copy.deepcopy(within)
    return document


MARKS = [
    "&a ",
    "*a",
    "!!int ",
    "!!binary ",
    "<<: *a",
    "? ",
    "- ",
    ": ",
    "\t",
    "\0",
    "---\n",
    "{",
    "}",
    "[",
    "]",
    "'",
    '"',
]
PIECES = st.one_of(
    st.sampled_from(
        [*MARKS, "|\n", "#", "%YAML 1.2\n", "1:30", ".inf", "0x", "1_0", "\ufeff", "\ud800", "\r", "\u2028"]
    ),
    st.text(max_size=6),
)


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A real text with pieces put in, cut out and doubled."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        piece = draw(st.one_of(PIECES, st.just(text[start:end] * 2), st.just("")))
        text = text[:start] + piece + text[end:]
    return text


# ── RFC 25 ──

NAMES = st.text("abcxyz-_09 é", min_size=1, max_size=6)
SMALL = st.integers(1, 9)


def _vertex(kind: str, count: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "count": count, **more}


@st.composite
def rfc25(draw: st.DrawFn) -> dict[str, Any]:
    """A jobspec of version 1 as RFC 25 has it."""
    inside = [_vertex("core", draw(SMALL))] + [_vertex("gpu", draw(SMALL)) for _ in range(draw(st.integers(0, 1)))]
    label = draw(NAMES)
    slot = _vertex("slot", draw(SMALL), label=label, **{"with": inside})
    if draw(st.booleans()):
        slot["exclusive"] = draw(st.booleans())
    top = draw(st.sampled_from([slot, _vertex("node", draw(SMALL), **{"with": [slot]})]))
    system = {"duration": draw(st.floats(0, 1e9)), "cwd": draw(NAMES), "environment": {"A": draw(NAMES)}}
    count = draw(st.sampled_from([{"per_slot": 1}, {"total": 3}]))
    command = draw(st.one_of(st.lists(NAMES, min_size=1, max_size=3), st.just("hostname -s")))
    task = {"command": command, "slot": label, "count": count}
    attributes = draw(st.sampled_from([None, {}, {"system": system}, {"system": system, "user": {"x": [1]}}]))
    return {"version": 1, "resources": [top], "tasks": [task], "attributes": attributes}
