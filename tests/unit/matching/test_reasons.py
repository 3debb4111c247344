"""Reasons that do not mislead (issue 16, 6): each names what is short, in both backends alike."""

import pytest

import rainbow
from rainbow.errors import JobspecError
from rainbow.matching import backends
from rainbow.testing.backends import cluster
from tests.support.oracle_cases import OWN_BACKENDS

HUNG = [{"at": "node0", "subsystem": "spack", "type": "package", "name": name} for name in ("cmake", "gcc", "zlib")]


def reason(made, **document):
    """Return the reason of a refusal, the same of every backend."""
    job = rainbow.parse_jobspec(document)
    results = [rainbow.match(job, [made], backend=name)[0].reason for name in OWN_BACKENDS]
    assert results[0] == results[1]
    return results[0]


def group(kind="core", **more):
    return {"work": {"type": kind, **more}}


def test_a_node_that_has_each_part_and_not_all_of_them_is_told_so():
    made = cluster("cluster(node(core*4) node(core*2 gpu*1) node(core*2))")
    inside = [{"type": "core", "count": 4}, {"type": "gpu", "count": 1}]
    result = reason(made, resources=group("node", **{"with": inside}))
    assert result.text.endswith("no node has both 4 cores and 1 gpu; 1 has 4 cores, 1 has 1 gpu")
    assert (result.subject, result.wanted, result.found) == ("node", 1, 0)


def test_memory_of_slots_in_one_node_is_summed():
    inside = [
        {"type": "slot", "replicas": 2, "with": [{"type": "core"}, {"type": "memory", "count": 20, "unit": "GiB"}]}
    ]
    result = reason(cluster("cluster(node*4(core*4 memory:16GB))"), resources=group("node", **{"with": inside}))
    assert result.text.endswith("requested 40 GiB memory per node, the largest node has 16 GB")


def test_some_nodes_have_all_parts_and_fewer_than_wanted():
    made = cluster("cluster(node*2(core*4 gpu*1) node*3(core*4) node*4(gpu*1))")
    inside = [{"type": "core", "count": 4}, {"type": "gpu", "count": 1}]
    result = reason(made, resources=group("node", count=3, **{"with": inside}))
    assert result.text.endswith("only 2 have both 4 cores and 1 gpu; 5 have 4 cores, 6 have 1 gpu")


PAIR = [{"type": "core"}, {"type": "memory", "count": 10, "unit": "GB"}]
GPUS = [{"type": "core", "count": 2}, {"type": "gpu"}]


@pytest.mark.parametrize(
    ("shape", "asked", "said"),
    [
        (
            "cluster(node*2(core*4 memory:16GB))",
            group("node", **{"with": [{"type": "slot", "replicas": 2, "with": PAIR}]}),
            "found 0 of 1 node; requested 2 slots work with 1 core and 10 GB memory per node, the largest node has "
            "room for 1",
        ),
        (
            "cluster(node*2(core*4) node*3(gpu*1))",
            group("slot", **{"with": GPUS}),
            "found 0 of 1 slot work; no node has both 2 cores and 1 gpu; 2 have 2 cores, 3 have 1 gpu",
        ),
        (
            "cluster(node*2(core*3 gpu*2) node*9(core*2))",
            group("slot", replicas=3, **{"with": GPUS}),
            "found 2 of 3 slots work; each takes 2 cores and 1 gpu",
        ),
        (
            "cluster(node*3(socket*2(core*2 gpu*1)))",
            group("node", **{"with": [{"type": "socket", "count": 3, "with": GPUS}]}),
            "found 0 of 1 slot work; requested 3 sockets with 2 cores and 1 gpu per node, the largest node has 2",
        ),
    ],
)
def test_several_things_of_a_slot_are_counted_where_the_slot_is(shape, asked, said):
    assert reason(cluster(shape), resources=asked).text == said


@pytest.mark.parametrize(("asked", "nearest"), [("gc", "gcc"), ("cmak", "cmake"), ("zlb", "zlib")])
def test_the_nearest_package_is_the_nearest_in_spelling(asked, nearest):
    need = [{"name": "spack", "field": "name", "match": asked}]
    result = reason(cluster("cluster(node*2(core*4))", hung=HUNG), resources=group(requires=need))
    assert result.text.endswith(f"{nearest}: name is {nearest}, requested {asked}")


def test_the_property_that_no_node_has_is_named():
    made = cluster("cluster(node*3(core*4))", properties={"node0": ["a100", "fast"], "node1": ["fast"]})
    system = {"system": {"constraints": {"properties": ["fast", "a1000"]}}}
    result = reason(made, resources=group(), attributes=system)
    assert result.text == "0 of 3 nodes satisfy the constraint; 0 have property a1000; did you mean a100?"


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ({"properties": ["^fast"]}, "0 lack property fast"),
        ({"and": [{"properties": ["fast"]}, {"hostlist": ["nowhere"]}]}, "0 satisfy hostlist nowhere"),
    ],
)
def test_the_part_of_a_constraint_that_fails_is_named(constraint, said):
    made = cluster("cluster(node*2(core*4))", properties={"node0": ["fast"], "node1": ["fast"]})
    result = reason(made, resources=group(), attributes={"system": {"constraints": constraint}})
    assert result.text == f"0 of 2 nodes satisfy the constraint; {said}"


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ({"type": "cores"}, "the cluster has no resource of type cores; did you mean core?"),
        (
            {"type": "core", "requires": [{"name": "sapck", "field": "name", "match": "gcc"}]},
            "the cluster has no subsystem sapck; did you mean spack?",
        ),
        ({"type": "banana"}, "the cluster has no resource of type banana"),
    ],
)
def test_a_misspelled_type_or_subsystem_is_answered_with_the_one_meant(asked, hint):
    result = reason(cluster("cluster(node*2(core*4))", hung=HUNG), resources={"work": asked})
    assert result.text.endswith(hint)


@pytest.mark.parametrize(
    ("shape", "unit", "said"),
    [
        ("memory:64GB", "G", "memory of this cluster is counted in GB, requested G; did you mean GB?"),
        ("memory:64GB", "gib", "memory of this cluster is counted in GB, requested gib; did you mean GiB?"),
        ("memory:64", "GB", "memory of this cluster is counted without a unit, requested GB"),
        ("memory:64GB", "furlong", "memory of this cluster is counted in GB, requested furlong"),
    ],
)
def test_an_amount_in_a_unit_that_cannot_be_compared_says_so(shape, unit, said):
    inside = [{"type": "memory", "count": 4, "unit": unit}]
    result = reason(cluster(f"cluster(node*2(core*4 {shape}))"), resources=group("node", **{"with": inside}))
    assert result.text == said


@pytest.mark.parametrize(
    ("count", "unit", "said"),
    [
        (1_000_000, "MB", "requested 2 TB of memory in total, the cluster has 64 GB"),
        (1, "TB", "requested 2 TB of memory in total, the cluster has 64 GB"),
        (4_000_000_000, "EiB", "requested 8000000000 EiB of memory in total, the cluster has 64 GB"),
        (1, "kB", None),
        (29, "GiB", None),
        (33, "GB", "requested 66 GB of memory in total, the cluster has 64 GB"),
    ],
)
def test_an_amount_is_not_rounded_to_nothing(count, unit, said):
    made = cluster("cluster(node*2(core*4 memory:32GB))")
    inside = [{"type": "memory", "count": count, "unit": unit}]
    request = {"resources": group("node", count=2, **{"with": inside})}
    if said is None:
        assert rainbow.match(rainbow.parse_jobspec(request), [made])[0].matched
    else:
        assert reason(made, **request).text == said
        (edit,) = rainbow.matching.smallest_change(made, rainbow.parse_jobspec(request), backends.get("index")).edits
        most = {"EiB": "29 GiB", "MB": "32000 MB"}.get(unit, "32 GB")
        assert edit.text.startswith(f"memory ≤ {most}")


@pytest.mark.parametrize(
    ("count", "unit", "largest"),
    [(1, "TB", "32 GB"), (31, "GiB", "32 GB"), (33, "GB", "32 GB"), (4_000_000_000, "EiB", "32 GB")],
)
def test_the_largest_node_is_shown_in_a_unit_that_says_how_large_it_is(count, unit, largest):
    made = cluster("cluster(node*40(core*4 memory:32GB))" if count == 1 else "cluster(node*9(memory:32GB))")
    inside = [{"type": "memory", "count": count, "unit": unit}]
    result = reason(made, resources=group("node", **{"with": inside}))
    assert result.text.endswith((f"the largest node has {largest}", "the cluster has 288 GB"))


@pytest.mark.parametrize(("low", "high"), [("13", "12"), ("1.3", "1.2.9"), ("2.0", "2.0-rc1")])
def test_a_range_without_any_version_is_a_validation_error(low, high):
    need = [{"name": "spack", "field": "version", "min": low, "max": high}]
    with pytest.raises(JobspecError, match=f"max {high} is below min {low}") as caught:
        rainbow.parse_jobspec({"resources": group(requires=need)})
    assert caught.value.pointer.endswith("/max")


def test_a_range_whose_max_names_fewer_numbers_is_read():
    need = [{"name": "spack", "field": "version", "min": "1.2.5", "max": "1.2"}]
    assert rainbow.parse_jobspec({"resources": group(requires=need)})


def test_a_need_of_vertices_of_several_units_does_not_call_them_units():
    needs = [{"name": "spack", "field": "name", "match": "gcc"}]
    result = reason(cluster("cluster(node*2(core:16))"), resources=group("core", requires=needs))
    assert result.text.startswith("0 of 2 vertices of type core meet the spack requirements")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"graph": {"nodes": {}}}, "this is a cluster's graph (see rainbow cluster register), no jobspec"),
        ({"apiVersion": "batch/v1", "kind": "Job"}, "this is a Kubernetes manifest, no jobspec"),
        ("# a script\necho hi", 'must be a mapping, got "echo hi"; a batch script begins with #!'),
    ],
)
def test_what_is_no_jobspec_is_named(document, said):
    with pytest.raises(rainbow.JobspecError) as refused:
        rainbow.parse_jobspec(document)
    assert said in str(refused.value)
