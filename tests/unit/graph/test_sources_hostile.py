"""Importing texts meant to hurt, and large ones: read as a cluster, or refused with a place."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.errors import InputError, LimitError
from rainbow.graph import Limits, read_cluster
from rainbow.graph.sources import graph_sources
from tests.conftest import examples
from tests.support.source_cases import CASES, read
from tests.unit.graph.test_graph_hostile import JUNK, places, put

SMALL = Limits(vertices=2000, edges=4000, depth=50)

GOOD = [
    (case.values[0]["source"], (CASES / case.values[0]["file"]).read_text())
    for case in read("good.yaml")
    if "file" in case.values[0]
]
PIECES = [
    "NodeName=",
    "\n",
    " ",
    ",",
    ":",
    "=",
    "(",
    ")",
    "[",
    "]",
    "0-3",
    "99999999999999999999",
    "é",
    "\x00",
    "\ud800",
]


def import_or_refuse(source: str, text: str) -> None:
    refused: InputError | None = None
    document: dict[str, Any] = {}
    try:
        document = graph_sources.get(source)(text, SMALL)
    except InputError as fault:
        refused = fault
    if refused is None:
        assert read_cluster(document, limits=SMALL).totals.get("node", 0) >= 1 or "scheduling" in text
    else:
        assert refused.pointer is not None or refused.line is not None


def with_junk(data: st.DataObject) -> None:
    source, text = data.draw(st.sampled_from([one for one in GOOD if one[1].startswith("{")]))
    document = json.loads(text)
    path = data.draw(st.sampled_from(places(document)))
    try:
        changed = json.dumps(put(document, path, data.draw(JUNK)))
    except ValueError:  # an integer Python itself does not print
        return
    import_or_refuse(source, changed)


def spliced(data: st.DataObject) -> None:
    source, text = data.draw(st.sampled_from(GOOD))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(rng.randint(1, 6)):
        start, piece = rng.randrange(len(text)), rng.choice([*PIECES, text[rng.randrange(len(text)) :][:40]])
        text = text[:start] + piece + text[start + rng.randint(0, 12) :]
    import_or_refuse(source, text)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_import_of_good_json_with_junk_in_one_place_is_read_or_refused(data: st.DataObject) -> None:
    with_junk(data)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_import_of_good_text_cut_and_spliced_is_read_or_refused(data: st.DataObject) -> None:
    spliced(data)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(["slurm", "flux-r", "kubernetes", "hwloc", "local"]), st.one_of(st.text(), JUNK))
def test_import_of_any_text_is_read_or_refused(source: str, junk: Any) -> None:
    import_or_refuse(source, junk if isinstance(junk, str) else repr(junk))


@pytest.mark.soak
@settings(max_examples=20_000, deadline=None)
@given(st.data())
def test_import_of_many_good_texts_made_bad_is_read_or_refused(data: st.DataObject) -> None:
    with_junk(data)
    spliced(data)


def test_import_of_a_large_cluster_is_within_the_limits() -> None:
    text = "".join(
        f"NodeName=n{i:05d} CPUTot=64 Sockets=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000 State=IDLE\n"
        for i in range(10_000)
    )
    assert read_cluster(graph_sources.get("slurm")(text)).totals["core"] == 640_000
    with pytest.raises(LimitError, match="limit vertices") as caught:
        graph_sources.get("slurm")(text, Limits(vertices=600_000))
    assert caught.value.facts["allowed"] == 600_000
