"""The checker over handed cases, over what the search writes, and over what was falsified."""

import ast
import json
import random
from pathlib import Path

import pytest

import rainbow
import rainbow.certificate
from rainbow.certificate.document import Certificate, Row, read_certificate, read_held, written
from rainbow.errors import InputError
from rainbow.matching import faults_of, take_beside
from rainbow.matching.workers.occupancy import Occupancy
from tests.support.oracle_cases import case
from tests.support.trees import groups, some, tree

CASES = Path("../shared/inputs/certificate/cases.jsonl")
BACKENDS = ("networkx", "index")
FOLDER = Path(rainbow.certificate.__file__).parent


def faults(request, cluster, held, certificate):
    return faults_of(request, cluster, certificate, held)


def handed():
    return [json.loads(line) for line in CASES.read_text().splitlines()]


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_handed_cases_are_answered_right_with_certificates_that_hold():
    for one in handed():
        cluster, request = rainbow.read_cluster(one["graph"], name="c"), rainbow.parse_jobspec(one["jobspec"])
        held = read_held(one["held"], cluster)
        take = take_beside(request, cluster, held)
        assert (take is not None) == one["matched"], one["name"]
        if take is not None:
            assert faults(request, cluster, held, take.certificate()) == [], one["name"]
            labels = [label for label, _ in take.placed]
            assert {label: labels.count(label) for label in one["slots"]} == one["slots"], one["name"]


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_handed_certificates_are_accepted_and_falsified_ones_refused():
    refused = 0
    for one in handed():
        if one["matched"]:
            cluster, request = rainbow.read_cluster(one["graph"], name="c"), rainbow.parse_jobspec(one["jobspec"])
            assert faults(request, cluster, one["held"], read_certificate(one["certificate"])) == [], one["name"]
            for false in one["false"]:
                said = read_certificate({**one["certificate"], "rows": false["rows"]})
                assert faults(request, cluster, false["held"], said), (one["name"], false["kind"])
                refused += 1
    assert refused == 340


def holds(number):
    """Check what both backends and successive takes say of a generated case; how many certificates."""
    cluster, request = case(number)
    checked = 0
    for backend in BACKENDS:
        verdict = rainbow.match(request, [cluster], backend)[0]
        if verdict.matched:
            assert faults(request, cluster, {}, verdict.take.certificate()) == [], (number, backend)
            checked += 1
    occupancy, held = Occupancy(cluster), {}
    for _ in range(4):
        if (holding := occupancy.take(request)) is None:
            break
        assert faults(request, cluster, held, holding.take.certificate()) == [], number
        checked += 1
        for row in holding.take.rows:
            alone = row.how == "all" or (row.how == "on" and _is_exclusive(request, holding.take.variant, row))
            if alone:
                held[row.vertex] = None
            elif row.how == "of":
                held[row.vertex] = (held.get(row.vertex) or 0) + row.amount
    return checked


def _is_exclusive(request, variant, row):
    return [part for tree in request.variants[variant] for part in tree.walk()][row.request].exclusive


SOCKETS_ARE_WORKERS = 22_400  # two of them, each the place of a slot that takes it whole


def test_what_the_search_takes_is_certified():
    assert sum(map(holds, range(600))) > 600
    assert holds(SOCKETS_ARE_WORKERS)


@pytest.mark.soak
@pytest.mark.parametrize("thousand", range(20))
def test_what_the_search_takes_is_certified_at_length(thousand):
    for number in range(10_000 + thousand * 1000, 11_000 + thousand * 1000):
        holds(number)


def falsified(rows, rng, vertices):
    """Return rows with one change that makes them another claim."""
    rows, n = list(rows), rng.randrange(len(rows))
    row = rows[n]
    kind = rng.choice(["drop", "repeat", "amount", "vertex"])
    if kind == "drop":
        if any(other.up >= n for other in rows):
            return None
        del rows[n]
    elif kind == "repeat":
        rows.append(row)
    elif kind == "amount":
        rows[n] = row._replace(amount=row.amount + rng.choice([-1, 1]))
    else:
        rows[n] = row._replace(vertex=rng.choice([v for v in vertices if v != row.vertex]))
    return tuple(rows)


def test_dropped_repeated_and_changed_amounts_are_refused():
    rng, refused = random.Random(1), 0
    for number in range(900):
        cluster, request = case(number)
        take = rainbow.match(request, [cluster])[0].take
        if not take or not take.rows:
            continue
        for _ in range(6):
            rows = falsified(take.rows, rng, list(cluster.graph))
            said = rows and faults(request, cluster, {}, Certificate(take.variant, rows))
            if rows and len(rows) == len(take.rows) and not said:
                changed = [(a, b) for a, b in zip(rows, take.rows, strict=True) if a != b]
                assert all(a.amount == b.amount for a, b in changed), (number, changed)  # another vertex may do
            elif rows:
                assert said, (number, rows)
                refused += 1
    assert refused > 500


def test_a_fault_names_the_rows():
    cluster = tree("n0 node", "n0/s0 socket", "n0/s0/c0 core*4")
    request = groups(a={"type": "socket", "exclusive": True, "with": [some("core")]}, b=some("core"))
    rows = [(0, -1, "at", "n0", 0), (1, 0, "on", "s0", 0), (2, 1, "of", "c0", 1)]
    rows += [(3, -1, "at", "n0", 0), (4, 3, "of", "c0", 1)]
    said = faults(request, cluster, {}, Certificate(0, tuple(Row(*row) for row in rows)))
    assert said == ["row 4: c0 lies in s0, which row 1 has alone"]


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"rows": [[0, 7, "at", "n0", 0]]}, "/rows/0/1"),
        ({"rows": [[0, -1, "in", "n0", 0]]}, "/rows/0/2"),
        ({"rows": [[0, -1, "of", "n0", 0]]}, "/rows/0/4"),
        ({"rows": [[True, -1, "of", "n0", 1]]}, "/rows/0/0"),
        ({"rows": [[0, -1, "of", 3, 1]]}, "/rows/0/3"),
        ({"rows": [[0, -1, "of", "n0", float("nan")]]}, "/rows/0/4"),
        ({"rows": [[0, -1]]}, "/rows/0"),
        ({"rows": {}}, "/rows"),
        ({"rows": [], "extra": 1}, "/extra"),
        ({"version": 2, "rows": []}, "/version"),
        ([], ""),
    ],
)
def test_what_is_no_certificate_is_refused_with_a_pointer(document, pointer):
    with pytest.raises(InputError) as fault:
        read_certificate(document)
    assert fault.value.pointer == pointer


def test_certificates_are_read_as_they_are_written():
    certificate = Certificate(1, (Row(0, -1, "at", None, 0), Row(1, 0, "of", "\ud800", 10**30)), 7)
    assert read_certificate(json.loads(json.dumps(written(certificate)))) == certificate


def test_held_names_vertices_of_the_graph():
    with pytest.raises(InputError, match=r"no such vertex; core0\?") as fault:
        read_held({"corE": 1}, tree("n0 node", "n0/core0 core"))
    assert fault.value.pointer == "/held/corE"


def test_the_checker_is_one_short_file_that_imports_nothing_of_matching():
    lines = (FOLDER / "checker.py").read_text().splitlines()
    assert len(lines) <= 350
    seen, remaining = set(), ["rainbow.certificate.checker"]
    while remaining:
        module = remaining.pop()
        if module in seen or not module.startswith("rainbow."):
            continue
        seen.add(module)
        assert not module.startswith("rainbow.matching"), module
        remaining.extend(imported(module))


def imported(module):
    """Yield what a module of ours imports, for types too."""
    base = FOLDER.parent.parent.joinpath(*module.split("."))
    path = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
