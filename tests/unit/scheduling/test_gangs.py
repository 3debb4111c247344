"""Which tasks start together, what each of them holds, and how many processes that makes."""

import rainbow
from rainbow.jobspec import TaskSpec
from rainbow.matching import backends
from rainbow.scheduling import gangs, only, placements, processes, slots_of
from rainbow.testing.backends import cluster

RFC = """
version: 1
resources:
- type: node
  count: 2
  with:
  - {type: slot, count: 1, label: a, with: [{type: core, count: 1}]}
  - {type: slot, count: 1, label: b, with: [{type: core, count: 2}]}
tasks:
- {command: [one], slot: a, count: {per_slot: 1}}
- {command: [two], slot: b, count: {per_slot: 1}}
- {command: [three], slot: b, count: {total: 5}}
attributes: {}
"""
NEXT = """
resources: {a: {type: core, replicas: 1}, b: {type: core, replicas: 2, count: 2}}
tasks:
- {name: one, command: [one], resources: a}
- {name: two, command: [two], resources: b, replicas: 2}
- {name: three, command: [three], resources: a, group: g}
- {name: four, command: [four], resources: b, group: g}
"""


def test_entries_of_rfc_14_are_one_gang():
    (gang,) = gangs(rainbow.parse_jobspec(RFC))
    assert [task.labels for task in gang.tasks] == [("a",), ("b",), ("b",)]


def test_next_generation_entries_are_gangs_of_their_own_unless_grouped():
    results = gangs(rainbow.parse_jobspec(NEXT))
    assert [[task.name for task in gang.tasks] for gang in results] == [
        ["one"],
        ["two-0"],
        ["two-1"],
        ["three", "four"],
    ]
    assert [task.index for gang in results for task in gang.tasks] == [0, 1, 2, 3, 4]
    assert [[tree.label for tree in gang.request.resources] for gang in results] == [["a"], ["b"], ["b"], ["a", "b"]]


def test_tasks_that_share_a_slot_share_its_space():
    (gang,) = gangs(rainbow.parse_jobspec(RFC))
    built = cluster("cluster(node*2(core*4))")
    take = backends.get("index").take(gang.request, built, list(built.workers))
    assert placements(gang, take) == (
        {"node0": {"core": 1}, "node1": {"core": 1}},
        {"node0": {"core": 2}, "node1": {"core": 2}},
        {"node0": {}, "node1": {}},
    )
    assert (slots_of(("a",), take), slots_of((), take)) == (2, 4)


def test_what_is_left_of_a_gang_asks_for_its_own_slots_only():
    gang = gangs(rainbow.parse_jobspec(NEXT))[3]
    remaining = only(gang, [4])
    assert [task.name for task in remaining.tasks] == ["four"]
    assert [tree.label for tree in remaining.request.resources] == ["b"]


def test_processes_are_counted_as_the_jobspec_says():
    placement = {"node0": {"core": 4}, "node1": {"core": 2}}
    assert processes(TaskSpec("t", (), per_slot=3), 2, placement, "node") == 6
    assert processes(TaskSpec("t", (), total=5), 2, placement, "node") == 5
    assert processes(TaskSpec("t", (), per_resource=("node", 2)), 2, placement, "node") == 4
    assert processes(TaskSpec("t", (), per_resource=("core", 1)), 2, placement, "node") == 6
