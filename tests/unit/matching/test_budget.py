"""The budget of a query (issue 16, 5): shares are fair, the time is kept, and undecided is never told as no."""

import contextlib
import json
import time
from dataclasses import replace

import pytest

import rainbow
from rainbow.jobspec import Constraint, Resource
from rainbow.matching import Budget, candidates_of, prepare, refusals_of, undecided_of, verdict_to_json
from rainbow.matching import match as match_purely
from rainbow.matching.equivalence import class_solver
from rainbow.matching.index_backend import IndexBackend
from rainbow.matching.model.budget import STEPS, Meter, OutOfBudgetError
from rainbow.matching.model.conditions import Rule
from rainbow.matching.model.verdict import Verdict
from rainbow.service import Limits, Settings
from tests.conftest import ADMIN, Api, grid, jobspec, open_service_at
from tests.support.hard_inputs import HARD, asked, hard_cluster, wanted

BACKENDS = ["index", "networkx"]
FEW = Budget(cluster_steps=2_000, query_steps=60_000)
PACKING = asked(*(Resource("slot", label=f"s{k}", children=(wanted("core", 34 + k),)) for k in range(9)))


def packed(name, *more):
    """Make a cluster on which nine slots of 34 to 42 cores do not fit, which only a long search can tell.

    What contains something is taken whole, by one slot.
    """
    return hard_cluster([{"core": (100 + k, {"pu": 1})} for k in range(8)] + [{"core": k} for k in more], name)


class Ticking:
    """A clock that goes on by a millisecond whenever it is looked at."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 0.001
        return self.now


# ── fair shares ──


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["zbig", "abig"])
def test_thirty_hard_clusters_do_not_refuse_the_one_that_fits(backend, name):
    hard = [packed(f"c{k}", k + 1) for k in range(30)]
    big = hard_cluster([{"core": 1_000}], name)
    verdicts = match_purely(PACKING, [*hard, big], backend, FEW)
    assert {verdict.cluster: verdict.matched for verdict in verdicts} == {
        **{cluster.name: None for cluster in hard},
        name: True,
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_answers_depend_neither_on_names_nor_on_order(backend):
    shapes = [(k + 1,) for k in range(6)] + [(120,), (40, 41), (400,)]
    one = [packed(f"c{k}", *shape) for k, shape in enumerate(shapes)]
    other = [packed(f"c{9 - k}", *shape) for k, shape in reversed(list(enumerate(shapes)))]
    answers = [[v.matched for v in match_purely(PACKING, clusters, backend, FEW)] for clusters in (one, other)]
    assert answers[0] == answers[1][::-1]
    assert None in answers[0]
    assert True in answers[0]


def test_what_the_cheap_ones_leave_is_shared_by_the_undecided():
    options: dict[int, list[float]] = {}

    def ask(place, meter):
        options.setdefault(place, []).append(meter.left)
        if place:
            meter.left -= 10
            return Verdict("cheap", True)
        meter.left = 0
        return Verdict("dear", None)

    Budget(cluster_steps=100, query_steps=1_000).decide(range(5), ask)
    assert options == {0: [100, 860], 1: [100], 2: [100], 3: [100], 4: [100]}


def test_shares_of_time_are_equal_and_end_with_the_query():
    clock, ends = Ticking(), []

    def ask(place, meter):
        before = clock.now
        with contextlib.suppress(OutOfBudgetError):
            while True:
                meter.check()
        ends.append(round(clock.now - before, 2))
        return Verdict(str(place), None)

    Budget(clock, cluster=0.05, query=1.0).decide(range(4), ask)
    assert ends[:4] == [0.05] * 4
    assert len(set(ends[4:])) == 1
    assert sum(ends) <= 1.1


def test_variants_share_what_one_of_them_leaves():
    meter, parts = Meter(steps=90), []
    for part in meter.divided(3):
        parts.append(part.left)
        part.left -= 10
    assert parts == [30, 40, 70]
    assert meter.left == 60


def test_what_a_part_does_not_use_comes_back():
    meter = Meter(steps=90)
    with meter.part(50) as part:
        part.step(20)
        assert meter.left == 40
    assert meter.left == 70
    with contextlib.suppress(OutOfBudgetError), meter.part(50) as part:
        part.step(60)
    assert meter.left == 20


def test_a_variant_that_fits_is_found_behind_one_that_is_hard():
    both = replace(PACKING, variants=(*PACKING.variants, (wanted("core", 3),)))
    for backend in BACKENDS:
        assert match_purely(both, [packed("c")], backend, FEW)[0].matched is True


# ── three values ──


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("many", [1, 20])
def test_undecided_is_neither_candidate_nor_refusal(backend, many):
    verdicts = match_purely(PACKING, [packed(f"c{k}", k + 1) for k in range(many)], backend, FEW)
    assert len(undecided_of(verdicts)) == many
    assert (len(candidates_of(verdicts)), len(refusals_of(verdicts))) == (0, 0)
    answer = verdict_to_json(PACKING, verdicts)
    assert (answer["candidates"], answer["refusals"]) == ([], [])
    assert [one["reason"] for one in answer["undecided"]] == ["undecided"] * many


@pytest.mark.parametrize("many", [1, 20])
def test_an_undecided_answer_is_asked_again(many):
    index, clusters = IndexBackend(), [packed(f"c{k}", 400 + k) for k in range(many)]
    short = Budget(cluster_steps=5, query_steps=5 * many)
    assert {verdict.matched for verdict in index.match_all(PACKING, clusters, short)} == {None}
    assert {verdict.matched for verdict in index.match_all(PACKING, clusters, STEPS)} == {True}


# ── the hard inputs ──


class Readings:
    """A clock on which each reading takes a millisecond."""

    count = 0

    def __call__(self):
        self.count += 1
        return self.count / 1000


@pytest.mark.parametrize("name", HARD)
def test_hard_input_ends_when_the_clock_says_so(name):
    """However fast the machine is: the search reads the clock while it works, and ends at its word."""
    make, size = HARD[name]
    request, cluster = make(size)
    prepare(cluster, "index")
    clock = Readings()
    verdict = rainbow.match(request, [cluster], "index", Budget(clock, 0.01, 0.1))[0]
    assert verdict.reason is None or verdict.reason.text
    assert clock.count < 200


@pytest.mark.soak
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", HARD)
def test_hard_input_ends_within_twice_its_budget(name, backend):
    make, size = HARD[name]
    request, cluster = make(size)
    prepare(cluster, backend)
    begun = time.thread_time()
    verdict = rainbow.match(request, [cluster], backend, Budget(time.thread_time, 0.05, 1.0))[0]
    assert verdict.reason is None or verdict.reason.text
    assert time.thread_time() - begun < 2.0


def test_what_others_do_meanwhile_is_not_paid_for():
    cluster, job = rainbow.read_cluster(grid(2, 2), "oak"), rainbow.parse_jobspec(json.dumps(jobspec()))
    budget = Settings().budget()
    time.sleep(0.2)  # four times what a cluster may take
    assert rainbow.match(job, cluster, budget=budget)[0].matched is True


def test_clues_leave_out_only_operands_that_fail():
    ands = Constraint("and", operands=(Constraint("properties", ("a", "^b")), Constraint("hostlist", ("n[1-3]",))))
    either = Constraint("or", operands=(ands, Constraint("properties", ("^a",)), Constraint("ranks", ("7",))))
    passing = {
        (properties, name, rank)
        for properties in ("", "a", "b", "ab")
        for name in ("n1", "n4")
        for rank in (6, 7)
        if Rule(either).passes({"properties": frozenset(properties), "name": name, "rank": rank})
    }
    expected = {
        (properties, name, rank)
        for properties in ("", "a", "b", "ab")
        for name in ("n1", "n4")
        for rank in (6, 7)
        if (properties == "a" and name == "n1") or "a" not in properties or rank == 7
    }
    assert passing == expected


# ── over HTTP ──


SLOTS = {f"s{k}": {"type": "core", "replicas": 1, "count": 58 + k} for k in range(15)}
HARD_CORES = tuple(100 + k for k in range(14))  # one slot each: no machine searches all orders of them
JOB = {"resources": SLOTS, "tasks": [{"command": ["a"], "resources": "s0"}]}


@pytest.fixture
def hasty(database, clock):
    """The API of a server that matches for less time than others."""
    service = open_service_at(database, clock, limits=Limits(match_seconds=0.4, match_cluster_seconds=0.1))
    yield Api(service)
    service.close()


def register(api, name, cores):
    vertices = {"c": {"metadata": {"type": "cluster"}}}
    for k, count in enumerate(cores):
        vertices[f"n{k}"] = {"metadata": {"type": "node"}}
        vertices[f"k{k}"] = {"metadata": {"type": "core", "size": count}}
        if count in HARD_CORES:  # what contains something is taken whole
            vertices[f"p{k}"] = {"metadata": {"type": "pu"}}
    edges = [{"source": "c", "target": f"n{k}"} for k in range(len(cores))]
    edges += [{"source": f"n{k}", "target": f"k{k}"} for k in range(len(cores))]
    edges += [{"source": f"k{vertex[1:]}", "target": vertex} for vertex in vertices if vertex.startswith("p")]
    return api.register(name, {"graph": {"nodes": vertices, "edges": edges}})


def test_submit_says_undecided_and_names_the_clusters(hasty):
    tokens = [register(hasty, name, HARD_CORES).token for name in ("oak", "elm")]
    reported = hasty.problem(422, "undecided", "POST", "/v1/jobs", {"jobspec": JOB}, *tokens)
    assert "2 undecided after 0.4 s (elm, oak)" in reported["detail"]
    assert "limits.match_seconds" in reported["detail"]
    assert ([one["cluster"] for one in reported["undecided"]], reported["refusals"]) == (["elm", "oak"], [])
    answer = hasty.good("POST", "/v1/match", {"jobspec": JOB}, *tokens)
    assert [one["reason"] for one in answer["undecided"]] == ["undecided", "undecided"]
    metrics = hasty.call("GET", "/metrics", None, ADMIN).get_data(as_text=True)
    assert 'rainbow_submits_total{outcome="undecided"} ' in metrics
    assert 'rainbow_matches_total{verdict="undecided"} ' in metrics


def test_submit_goes_to_a_cluster_that_matches_beside_undecided_ones(hasty):
    tokens = [register(hasty, f"c{k}", (*HARD_CORES, k + 1)).token for k in range(3)]
    tokens.append(register(hasty, "zbig", (2_000,)).token)
    made = hasty.good("POST", "/v1/jobs", {"jobspec": JOB}, *tokens)
    assert made["cluster"] == "zbig"
    assert [one["cluster"] for one in made["decision"]["undecided"]] == ["c0", "c1", "c2"]


# ── what time cut short ──


class Stalling:
    """A clock that stands still; while it `stalls`, an hour passes between two looks."""

    def __init__(self):
        self.now, self.stalls = 0.0, False

    def __call__(self):
        self.now += 3_600 * self.stalls
        return self.now


def test_a_reason_that_a_busy_moment_cut_short_is_worked_out_for_the_next_who_asks():
    clock, cluster = Stalling(), hard_cluster([{"core": k} for k in range(1, 60)], "c")
    request, index = asked(Resource("node", children=(wanted("core", 100),))), IndexBackend()
    [first] = index.match_all(request, [cluster], Budget(clock))
    clock.stalls = True
    cut_short = first.reason.text
    clock.stalls = False
    [second] = index.match_all(request, [cluster], Budget(clock))
    assert "time limit" in cut_short
    assert "the largest node has 59" in second.reason.text
    clock.stalls = True
    assert index.match_all(request, [cluster], STEPS)[0].reason == second.reason  # and remembered


def test_what_never_ends_in_time_is_not_worked_out_at_every_look(monkeypatch):
    clock, cluster, index = Stalling(), hard_cluster([{"core": k} for k in range(1, 60)], "c"), IndexBackend()
    request = asked(Resource("node", children=(wanted("core", 100),)))
    tried = []
    whole = class_solver.Attempt._shortfall
    monkeypatch.setattr(class_solver.Attempt, "_shortfall", lambda self, meter: tried.append(0) or whole(self, meter))
    for _ in range(6):
        clock.stalls = False
        [verdict] = index.match_all(request, [cluster], Budget(clock))
        clock.stalls = True
        assert "time limit" in verdict.reason.text
    assert len(tried) == class_solver.MOST_TRIES
