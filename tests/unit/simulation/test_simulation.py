"""Recorded jobs in virtual time: the product's own plans, honest figures, and what cannot be simulated."""

import gzip
from collections import Counter
from dataclasses import replace
from itertools import islice
from xml.dom import minidom

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.errors import InputError, PolicyError
from rainbow.scheduling import Priority
from rainbow.simulation import (
    Arrival,
    Governed,
    World,
    compare,
    figures,
    from_history,
    machine,
    max_procs,
    offered_load,
    picture,
    read_trace,
    simulate,
)
from rainbow.simulation.comparison import t_95
from tests.conftest import LONG, SHARED, examples
from tests.support.policies.dispatching import Job, replay
from tests.unit.scheduling.priority.test_priority_expression import POOL, workload

LINE = "{number} {submit} -1 {run} {cores} -1 -1 {cores} {limit} -1 {status} 3 -1 -1 {queue} -1 -1 -1"


def arrivals(jobs):
    return [Arrival(job.id, job.submit, job.least, job.runtime, job.walltime) for job in jobs]


def under(clusters=None, **options):
    return World(clusters or [machine(POOL)], {"": Governed("priority", options)})


def starts(outcome):
    return {one.id: one.start for one in outcome.ran}


@pytest.mark.parametrize("policy", [{}, {"discipline": "conservative"}, {"discipline": "fcfs"}, {"order": "f2"}])
def test_starts_are_those_of_the_plain_replay(policy):
    jobs = workload(120 if LONG else 40, seed=5)
    result = simulate(under(**policy), arrivals(jobs))
    expected = replay(Priority(), {"machine": {"core": POOL}}, jobs, policy, remembers=True)
    assert starts(result) == expected.start
    assert result.plans == expected.plans


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=14),
    st.booleans(),
)
def test_jobs_that_arrive_and_end_at_once_are_planned_once(rows, conservative):
    policy = {"discipline": "conservative" if conservative else "easy"}
    jobs = [
        Job(f"{k:02}", float(sum(r[0] for r in rows[: k + 1])), n, run, run + 2.0)
        for k, (_, n, run) in enumerate(rows)
    ]
    result = simulate(World([machine(4)], {"": Governed("priority", policy)}), arrivals(jobs))
    expected = replay(Priority(), {"machine": {"core": 4}}, jobs, policy, remembers=True)
    assert starts(result) == expected.start


def test_the_same_seed_gives_the_same_outcome():
    jobs = arrivals(workload(40, seed=9))
    world = under([machine(POOL, "oak"), machine(POOL // 2, "ash")])
    first, again, other = (simulate(world, jobs, seed) for seed in (4, 4, 5))
    assert first == again != other
    assert {one.cluster for one in first.ran} == {"oak", "ash"}


def test_selection_sees_queues_and_matching_leaves_out_what_is_too_small():
    steps = [{"sort_ascending": "queue.waiting_tasks"}, {"sort_descending": "cores_free"}, {"select": "first"}]
    world = replace(
        under([machine(4, "oak"), machine(8, "ash")]),
        selector="constraint",
        options={"priorities": [{"priority": 1, "steps": steps}]},
    )
    jobs = [
        Arrival("wide", 0.0, 8, 100.0, 100.0),
        Arrival("small", 1.0, 4, 10.0, 10.0),
        Arrival("huge", 2.0, 9, 1.0, 1.0),
    ]
    result = simulate(world, jobs)
    assert {one.id: one.cluster for one in result.ran} == {"wide": "ash", "small": "oak"}
    assert result.left_out == {"wider than every cluster": 1}


@pytest.mark.parametrize("policy", ["load_based", "delegate", "fair_share"])
def test_every_policy_can_be_simulated(policy):
    result = simulate(World([machine(POOL)], {"": Governed(policy)}), arrivals(workload(30, seed=2)))
    assert len(result.ran) + sum(result.left_out.values()) == 30


def test_a_job_ends_at_its_limit():
    (ran,) = simulate(under(), [Arrival("long", 5.0, 1, 900.0, 60.0)]).ran
    assert (ran.start, ran.end) == (5.0, 65.0)


# ── figures and comparisons ──


def test_figures_leave_out_the_first_tenth_and_bound_short_jobs():
    jobs = [Arrival(f"{k:02}", float(k), POOL, 1.0, 1.0) for k in range(10)]
    jobs[0] = replace(jobs[0], run=21.0, limit=21.0)
    result = figures(simulate(under(), jobs))
    assert (result.jobs, result.wait) == (9, 20.0)
    assert result.slowdown == pytest.approx(21.0 / 10.0)
    assert offered_load(simulate(under(), jobs)) == pytest.approx(30.0 / 9.0)


def test_a_policy_compared_with_itself_shows_no_difference():
    """20 times: other jobs each time."""
    for seed in range(20):
        jobs = arrivals(workload(48 if LONG else 15, seed=seed))
        result = compare(under(), under(discipline="easy"), [jobs[k::3] for k in range(3)], seed)
        assert {one.verdict for one in result.ratios} == {"no difference shown"}
        assert not result.moved


def test_a_gain_is_found_and_says_whom_it_costs():
    windows = [arrivals(workload(120 if LONG else 60, seed=seed, load=1.4)) for seed in range(6)]
    windows = [[replace(one, requestor="ann" if one.slots > 8 else "bob") for one in window] for window in windows]
    result = compare(under(), under(order="saf"), windows)
    assert result.of("slowdown").verdict == "lower"
    assert result.of("slowdown").high < 1.0 < result.of("longest_wait").high
    assert result.moved["ann"][0] > result.moved["bob"][0]
    assert [one.name for one in result.by["requestor"]] == ["ann", "bob"]
    assert any("offered load" in warning for warning in result.warnings)


def test_few_windows_are_said_to_be_few():
    result = compare(under(), under(order="saf"), [arrivals(workload(30, seed=1))])
    assert result.of("wait").verdict == "no difference shown"
    assert any("1 windows" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (5, 2.571), (9, 2.262), (15, 2.131), (20, 2.086), (30, 2.042), (120, 1.980)],
)
def test_quantiles_are_those_of_the_tables(freedom, quantile):
    assert t_95(freedom) == pytest.approx(quantile, abs=1e-3)


@pytest.mark.soak
def test_f2s_gain_is_found_on_a_recorded_workload():
    trace = SHARED / "traces" / "lublin_256.swf.gz"
    if not trace.exists():
        pytest.skip("the shared traces are not beside this repository")
    jobs = list(islice(read_trace(trace), 6 * 300))
    windows = [jobs[k : k + 300] for k in range(0, len(jobs), 300)]
    result = compare(
        World([machine(256)]), World([machine(256)], {"": Governed("priority", {"order": "f2"})}), windows
    )
    assert result.of("slowdown").verdict == "lower"
    assert max_procs(trace) in (0, 256)


def test_a_picture_is_a_picture():
    outcome = simulate(under(), arrivals(workload(60, seed=3)))
    drawn = minidom.parseString(picture(outcome, "<month> & more"))  # noqa: S318  # our own picture
    assert len(drawn.getElementsByTagName("polyline")) == 3
    assert drawn.getElementsByTagName("text")[0].firstChild.data == "<month> & more (60 jobs, 64 cores)"


# ── what cannot be simulated ──


def trace(folder, *lines, name="t.swf"):
    path = folder / name
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def line(number=1, submit=0, run=10, cores=1, limit=20, status=1, queue=2):
    return LINE.format(**locals())


def test_what_a_trace_cannot_say_is_left_out_and_counted(tmp_path):
    notes = Counter()
    path = trace(
        tmp_path,
        "; MaxProcs: 12",
        line(1, submit=7),
        line(2, run=0),
        line(3, cores=-1),
        line(4, status=3),
        line(5, submit=-1),
        line(6, submit=3, limit=-1),
        line(6, submit=9),
        "",
        name="t.swf.gz",
    )
    results = list(read_trace(path, notes=notes))
    assert [(one.id, one.limit, one.requestor, one.job_class) for one in results] == [
        ("6", 10.0, "3", "2"),
        ("1", 20.0, "3", "2"),
        ("6.2", 20.0, "3", "2"),
    ]
    assert notes == {
        "no run time": 1,
        "no processors": 1,
        "part of another job": 1,
        "no submission time": 1,
        "without a limit: the run time is taken": 1,
    }
    assert max_procs(path) == 12


@pytest.mark.parametrize(
    "garbage",
    ["hello", "1 2 3", line() + " 5", line().replace("10", "nan"), line(submit="1e999"), "\x00\xff" * 40],
)
def test_a_line_that_is_none_is_named(tmp_path, garbage):
    with pytest.raises(InputError, match="line 2: expected 18 numbers") as refused:
        list(read_trace(trace(tmp_path, line(), garbage)))
    assert refused.value.line == 2


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(line().encode(), mtime=0)[:30]], ids=["none", "cut short"]
)
def test_what_is_no_gzip_file_is_refused(tmp_path, content):
    path = tmp_path / "t.swf.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be unpacked"):
        list(read_trace(path))


def test_a_trace_that_grows_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("rainbow.simulation.arrival.LARGEST", 200)
    with pytest.raises(InputError, match="more than 200 bytes"):
        list(read_trace(trace(tmp_path, *[line(k) for k in range(9)], name="t.swf.gz")))


def test_a_clock_of_1970_limits_of_nothing_and_a_division_by_zero_end_well():
    jobs = [Arrival(f"{k}", 0.0, 1 + k % 3, 1e-9 if k % 2 else 5.0, 0.0) for k in range(12)]
    result = simulate(World([machine(2)], {"": Governed("priority", {"order": "1 / (submitted - submitted)"})}), jobs)
    assert len(result.ran) == 8
    assert result.left_out == {"wider than every cluster": 4}
    assert figures(result).longest_wait >= 0.0
    assert figures(simulate(under(), [])).jobs == 0


def test_bad_settings_are_refused_before_anything_runs():
    with pytest.raises(PolicyError) as refused:
        simulate(under(order="wallclock"), [Arrival("a", 0.0, 1, 1.0, 1.0)])
    assert refused.value.pointer == "/order"


SPEC = {
    "version": 1,
    "resources": [{"type": "slot", "count": 2, "label": "a", "with": [{"type": "core", "count": 2}]}],
    "tasks": [{"command": ["true"], "slot": "a", "count": {"per_slot": 1}}],
    "attributes": {"system": {"duration": 100}},
}


def row(name, submitted, ran=None, requestor="ann"):
    tasks = [{"started_at": 50.0, "ended_at": None if ran is None else 50.0 + ran}]
    return {
        "id": name,
        "submitted_at": submitted,
        "requestor": requestor,
        "cluster": "oak",
        "jobspec": SPEC,
        "tasks": tasks,
    }


def test_tasks_of_a_history_run_as_long_as_each_did():
    task = {"command": ["true"], "resources": "a", "replicas": 3}
    bag = {"version": 1, "resources": {"a": {"type": "core"}}, "tasks": [task], "attributes": {}}
    ended = [{"started_at": 5.0, "ended_at": 5.0 + seconds} for seconds in (10.0, 40.0, 20.0)]
    (result,) = from_history([{**row("a", 3.0), "jobspec": bag, "tasks": ended}])
    assert result.run == 40.0
    assert [result.length([k]) for k in range(3)] == [10.0, 40.0, 20.0]
    (ran,) = simulate(World([machine(1, "oak")], recorded=True), [result]).ran
    assert (ran.start, ran.end) == (3.0, 73.0)


def test_a_job_of_a_history_may_have_been_submitted_as_text():
    text = yaml.safe_dump({**SPEC, "attributes": {"system": {"duration": 100, "class": "big"}}}) + "# 1.10"
    (result,) = from_history([{**row("a", 3.0, 40.0), "jobspec": text}])
    assert (result.job_class, result.run) == ("big", 40.0)
    assert simulate(World([machine(4, "oak")], recorded=True), [result]).ran[0].cores == 4


def test_a_servers_history_becomes_arrivals():
    notes = Counter()
    rows = [row("c", 9.0), row("a", 3.0, 40.0), row("b", 5.0, 20.0), row("d", 9.5, requestor="bob")]
    results = list(from_history(rows, notes))
    assert [(one.id, one.run) for one in results] == [("a", 40.0), ("b", 20.0), ("c", 30.0), ("d", 30.0)]
    assert notes == {"never ran: a run time was drawn from jobs like it": 2}
    assert list(from_history([row("x", 1.0)], notes)) == []
    outcome = simulate(World([machine(4, "oak"), machine(4, "ash")], recorded=True), results)
    assert [(one.id, one.cluster, one.cores, one.start) for one in outcome.ran] == [
        ("a", "oak", 4, 3.0),
        ("b", "oak", 4, 43.0),
        ("c", "oak", 4, 63.0),
        ("d", "oak", 4, 93.0),
    ]
