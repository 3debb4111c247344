"""The checker and the oracle are put to the test: faults that there were are put back, one at a time.

`python -m tests.unit.certificate.attack` prints for each which random play found it, at which number, after how many
seconds. It ends 0 if all are found, and 2 where a fault cannot be put back any more.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

from rainbow.matching import Occupancy, faults_of, match
from tests.history.attack import Break, run_broken
from tests.support.oracle_cases import case
from tests.support.trees import groups, slot, slots, some, tree
from tests.unit.certificate.test_checker import holds
from tests.unit.certificate.test_refutation import judged
from tests.unit.matching.test_oracle import check
from tests.unit.matching.test_oracle import judged as every_way
from tests.unit.matching.test_search_content import groups_that_meet, takes

SECONDS = 60.0  # of random plays, at most
FAULTS = (
    Break("slots of one label melt", "rainbow/matching/rows.py", "range(tier.copies if", "range(1 if"),
    Break(
        "slots are lost where types are mixed",
        "rainbow/matching/workers/allocation.py",
        "r.children or r.exclusive or not mixed",
        "True",
    ),
    Break(
        "amounts are rounded for each vertex",
        "rainbow/matching/model/base_units.py",
        "    if factor == 1:",
        "    if True:",
    ),
    Break(
        "wrong no where workers lie in workers",
        "rainbow/matching/trail.py",
        "            if i >= end:",
        "            if True:",
    ),
    Break(
        "a vertex of an inner worker that fails the constraint",
        "rainbow/matching/trail.py",
        "if i in self.whole or i in self.barred:",
        "if i in self.whole:",
    ),
    Break(
        "an exclusive root is shared",
        "rainbow/matching/depth_first.py",
        "(self.taken.take_whole(i) and (i or not rest))",
        "self.taken.take_whole(i)",
    ),
    Break(
        "one vertex too many is held",
        "rainbow/matching/rows.py",
        "    if len(positions) == 1:",
        "    if True:",
    ),
    Break(
        "verdict and booking differ where groups meet",
        "rainbow/matching/workers/occupancy.py",
        "(plain and leaves) or any(takes_whole(tree, compound) for tree in trees):",
        "(plain and leaves):",
    ),
    Break("a held vertex grows", "rainbow/matching/workers/held_paths.py", "if 0 < left < there:", "if False:"),
    Break(
        "own: a leaf that others use up is stood on",
        "rainbow/matching/trail.py",
        "if amount >= self.layout.amount(i):",
        "if False:",
    ),
    Break(
        "own: the last piece of a start is not booked",
        "rainbow/matching/workers/occupancy.py",
        "self.held[key] = pieces\n        for _, worker, part in pieces:",
        "self.held[key] = pieces\n        for _, worker, part in pieces[:-1]:",
    ),
    Break(
        "own: needs are not asked",
        "rainbow/matching/upper_bound.py",
        "if not needs or not self.ask_needs:",
        "if True:",
    ),
    Break(
        "own: a property that must be absent is wanted",
        "rainbow/matching/model/conditions.py",
        'in has) != p.startswith("^")',
        "in has)",
    ),
)


def grown(number: int) -> None:
    """Let leaves become larger and smaller: free is capacity less placements, never negative."""
    chance = random.Random(number)
    before, after = ([chance.choice((16, 32, 64, 128)) for _ in range(2)] for _ in range(2))
    old, new = (
        tree("n0 node", *(f"n0/m{k} memory*{size}" for k, size in enumerate(sizes))) for sizes in (before, after)
    )
    occupancy, booked = Occupancy(old), Occupancy(new)
    holding = occupancy.take(groups(a=some("memory", chance.randint(1, sum(before)))))
    assert holding is not None
    placement = dict(holding.take.by_worker)
    booked.book("job", occupancy.words(holding.pieces), placement)
    taken = sum(amounts.get("memory", 0) for amounts in placement.values())
    assert booked.free("n0").get("memory", 0) == max(0, sum(after) - taken), (before, after, taken)


def mixed(number: int) -> None:
    """Ask for slots of nodes of which some contain something and some do not."""
    chance = random.Random(number)
    nodes = [f"n{n} node" for n in range(chance.randint(2, 6))]
    cores = [f"n{n}/c{n} core*4" for n in range(len(nodes)) if chance.random() < 0.3]
    cluster, request = tree(*nodes, *cores), slots(slot(chance.randint(1, 6), some("node", chance.randint(1, 3))))
    take = takes(cluster, request)
    fits = request.resources[0].count.min * request.resources[0].children[0].count.min <= len(nodes)
    assert (take is not None) == fits
    assert take is None or faults_of(request, cluster, take.certificate()) == []


def nested(number: int) -> None:
    """Ask for what lies in workers with a property, which lie in others with and without it."""
    chance, lines, above = random.Random(number), list[str](), [""]
    for n in range(chance.randint(2, 5)):
        at = chance.choice(above)
        lines.append(f"{at}n{n} node{chance.choice(['', '+amd', '+amd'])}")
        above.append(f"{at}n{n}/")
        inside = chance.choice([["s{0} socket", "s{0}/c{0} core"], ["c{0} core"], []])
        lines.extend(f"{at}n{n}/{one.format(n)}" for one in inside)
    kind, many = chance.choice(["core", "socket"]), chance.randint(1, 2)
    cluster, request = tree(*lines), groups(["amd"], a=some(kind, many))
    takes(cluster, request)
    assert match(request, [cluster])[0].matched == every_way(cluster, request)


def compared(number: int) -> Any:
    """Compare what the verdict and the first start take."""
    return takes(*case(number)), takes(*groups_that_meet(number))


PLAYS: dict[str, Callable[[int], Any]] = {
    "certificates": holds,
    "nodes of two kinds": mixed,
    "workers in workers": nested,
    "refutations": judged,
    "verdict and booking": compared,
    "graph changes": grown,
    "every way": check,
}


def play() -> int:
    """Play until one play finds a fault; return 1 and say which, 0 if the time is over."""
    began, number = time.process_time(), 0
    while time.process_time() - began < SECONDS:
        for name, one in PLAYS.items():
            try:
                one(number)
            except Exception as fault:
                print(f"{name}, number {number}, {time.process_time() - began:.1f} s: {str(fault).splitlines()[:1]}")
                return 1
        number += 1
    print(f"not found in {number} numbers")
    return 0


def main() -> int:
    """Put each fault back in turn."""
    missed, odd = 0, 0
    for one in FAULTS:
        done = run_broken(one, "tests.unit.certificate.attack", "play")
        print(f"{one.name}: {(done.stdout + done.stderr).strip()[-400:]}", flush=True)
        missed, odd = missed + (done.returncode != 1), odd + (done.returncode == 2)
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} found")
    return 2 if odd else int(missed > 0)


if __name__ == "__main__":
    sys.exit(play() if sys.argv[1:] else main())
