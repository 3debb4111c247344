"""Fair tree factors: as a real Slurm computes them, and what holds of every tree."""

import json
from itertools import permutations
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.accounts.fair_tree import standings
from rainbow.accounts.tree import Account, Member, Tree

CASES = json.loads((Path(__file__).parents[1] / "cases" / "fair_tree.json").read_text())
NEAR = 0.5e-4  # four digits


def read(case):
    accounts = [Account(one["name"], one["parent"], one["shares"]) for one in case["accounts"]]
    members = [Member(one["account"], one["user"], one["shares"]) for one in case["members"]]
    usage = {(one["account"], one["user"]): float(one["usage"]) for one in case["members"]}
    return Tree.of(accounts, members), usage


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"tree {case['seed']}")
def test_factors_are_those_of_a_real_slurm(case):
    agrees(case)


def agrees(case):
    tree, usage = read(case)
    result = standings(tree, usage)
    factors = {member.key: result[member.key].factor for member in tree.members.values()}
    answer = {(one["account"], one["user"]): one["factor"] for one in case["members"]}
    assert factors == pytest.approx(answer, abs=NEAR)
    for one in case["accounts"]:
        if one["shares"] is not None:
            assert result[one["name"]].shares == pytest.approx(one["norm_shares"], abs=NEAR)
            assert result[one["name"]].used == pytest.approx(one["used"], abs=NEAR)


@pytest.mark.soak
def test_factors_are_those_of_a_slurm_that_runs_now():
    from tests.sites.slurm_fair_tree import fair, generated, measured

    with fair() as slurm:
        for seed in range(1_000, 1_020):
            agrees(measured(slurm, generated(seed)))


@st.composite
def trees(draw):
    count = draw(st.integers(1, 6))
    shares = st.one_of(st.none(), st.integers(0, 5)) if draw(st.booleans()) else st.integers(0, 5)
    names = [f"a{k}" for k in range(count)]
    accounts = [Account(name, draw(st.sampled_from(["", *names[:k]])), draw(shares)) for k, name in enumerate(names)]
    pairs = draw(st.sets(st.tuples(st.sampled_from(["", *names]), st.sampled_from("uvwxyz")), max_size=12))
    members = [Member(account, user, draw(shares)) for account, user in sorted(pairs)]
    usage = {member.key: draw(st.sampled_from([0.0, 1.0, 10.0, 1e6])) for member in members}
    return Tree.of(accounts, members), usage


@given(trees())
def test_every_user_has_one_place_from_1_down(drawn):
    tree, usage = drawn
    result = standings(tree, usage)
    places = sorted((result[key].factor for key in tree.members), reverse=True)
    assert all(0 < place <= 1 for place in places)
    assert not places or places[0] == 1.0
    assert all(place >= 1 - k / len(places) - 1e-9 for k, place in enumerate(places))  # ties share the better place


@given(trees())
def test_users_of_a_better_account_come_before_those_of_a_worse(drawn):
    tree, usage = drawn
    result = standings(tree, usage)
    for one, other in permutations(tree.accounts.values(), 2):
        alike = one.parent == other.parent and None not in (one.shares, other.shares)
        if alike and result[one.name].level > result[other.name].level:
            worst = [result[key].factor for key in under(tree, one.name)]
            best = [result[key].factor for key in under(tree, other.name)]
            assert not worst or not best or min(worst) >= max(best)


def under(tree, account):
    return [key for key in tree.members if account in [one.name for one in tree.line(key[0])]]


@given(trees(), st.integers(0, 11), st.floats(1, 1e6))
def test_who_uses_more_does_not_come_earlier(drawn, which, more):
    tree, usage = drawn
    keys = sorted(usage)
    if keys:
        key = keys[which % len(keys)]
        before, after = standings(tree, usage)[key], standings(tree, {**usage, key: usage[key] + more})[key]
        assert after.factor <= before.factor + 1e-9


def test_an_account_says_what_part_of_its_share_it_has_used_and_how_many_come_first():
    tree = Tree.of([Account("bio", shares=1), Account("cfd", shares=3)], [Member("bio", "ann"), Member("cfd", "bob")])
    result = standings(tree, {("bio", "ann"): 50.0, ("cfd", "bob"): 50.0})
    assert (result["bio"].percent, result["bio"].ahead, result["cfd"].percent, result["cfd"].ahead) == (200, 1, 67, 0)
    assert standings(tree, {})["bio"].level == inf
