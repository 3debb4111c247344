"""One request on one cluster class: yes or no at once, the rest when it is read.

quick check ─► columns over kinds ─► search on the reduced layout, where siblings may collide
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rainbow.matching.equivalence.count_arrays import LARGEST, batch_of
from rainbow.matching.equivalence.count_scalar import ClassCounts
from rainbow.matching.equivalence.reduced_layout import Placed, Reduced, TouchLimit
from rainbow.matching.model.base_units import variants_on
from rainbow.matching.model.budget import FREE, Meter, OutOfBudgetError
from rainbow.matching.model.verdict import MOST_ALTERNATIVES, Answer, Reason, Why
from rainbow.matching.quick_check import quick_check
from rainbow.matching.reasons import of_variants, shortfall, undecided, unexplained
from rainbow.matching.solution import (
    MOST_LOOKED_AT,
    Standing,
    at_most,
    closed_form,
    named_totals,
    search_or_pack,
    successive,
    taken_copies,
    totals_of,
    units_of,
)
from rainbow.matching.trail import Trail
from rainbow.matching.upper_bound import bound_is_exact

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Resource
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.count_scalar import CountState, ScalarCount
    from rainbow.matching.equivalence.query import Query
    from rainbow.matching.equivalence.subtree_classes import SubtreeClass
    from rainbow.matching.model.verdict import Take
    from rainbow.matching.rows import Row


def totals_standing(form: Standing, rooted: ClusterClass) -> dict[str, int] | None:
    """Sum what one copy takes of workers it stands on; None where what is taken depends on where that is."""
    plain = form.host.type == rooted.worker_type and not form.host.exclusive
    if not plain:
        return None
    sums: dict[str, int] = {}
    for (type_, _), amount in form.amounts.items():
        sums[type_] = sums.get(type_, 0) + form.units * amount
    return named_totals(sums, form.units)


Refusal = Callable[["Meter"], "Reason | None"]  # works out why not, at the cost of a meter
MANY = 64  # kinds below a root that are worth arrays


class Solution(NamedTuple):
    """A copy of the job on a reduced layout, and what it is made of."""

    take: Take
    rows: tuple[Row, ...]
    reduced: Reduced
    taken: Trail


class Attempt:
    """One variant of a request on one root; `refusal` says why not, if not.

    Thousands are remembered: counts and layouts are made again when they are wanted, and not kept.
    """

    def __init__(
        self,
        question: Query,
        rooted: ClusterClass,
        variant: int,
        meter: Meter,
        fits: bool = False,
    ) -> None:
        resources = variants_on(question.request, rooted.pools)[variant]
        self.written = question.request.variants[variant]
        self.question = question
        self.rooted = rooted
        self.resources = resources
        self.placed: Placed | None = None
        self.apart = False
        self.is_undecided = False
        self.refusal: Refusal | None
        try:
            self.apart = bound_is_exact(resources, rooted, meter.timed)
            self.refusal = None if fits and self.apart else self._refusal(meter)
        except OutOfBudgetError:
            self.is_undecided = True
            self.refusal = lambda meter: undecided()

    def tallied(self, meter: Meter = FREE) -> ClassCounts:
        """Count what the root offers to the parts of the variant."""
        satisfied = self.question.satisfied(self.rooted)
        constraint = self.question.request.constraint
        return ClassCounts(self.rooted, self.resources, satisfied, self.question.passes, meter, constraint)

    def _refusal(self, meter: Meter) -> Refusal | None:
        reason = quick_check(self.resources, self.rooted.totals, self.rooted)
        if reason is not None:  # told in the units that were asked for
            reason = quick_check(self.written, self.rooted.totals, self.rooted) or reason
        if reason is None:
            self.question.judge(self.rooted, meter.timed)
            if not self._is_enough(meter.timed):
                return self._shortfall
        if reason is None and not self.apart:
            reason = self._place(meter)
            self.is_undecided = reason is not None and reason.why is Why.UNDECIDED
        return (lambda meter: reason) if reason else None

    def _shortfall(self, meter: Meter) -> Reason | None:
        try:
            return shortfall(self.resources, self.tallied(meter.timed))
        except OutOfBudgetError:
            return unexplained()

    def _is_enough(self, meter: Meter) -> bool:
        """Return whether the root offers enough for each part; many kinds are counted as arrays."""
        if len(self.rooted.closure) > MANY and self.rooted.largest < LARGEST:
            holds = batch_of((self.rooted,)).holds(self.question, self.resources, meter)
            if holds is not None:
                return bool(holds[0])
        tallied = self.tallied(meter)
        return all(tallied.units(r) >= r.count.min for r in self.resources)

    def _place(self, meter: Meter = FREE) -> Reason | None:
        """Place one copy of the job, or say why there is none."""
        result = self._search(1, meter)
        if isinstance(result, Reason):
            return result
        self.placed = Placed.of(result.take, result.reduced)
        return None

    def _search(self, copies: int, meter: Meter) -> Solution | Reason:
        """Place one copy of the job on a layout that has room for so many."""
        passes = self.question.passes
        reduced = Reduced(
            self.rooted, TouchLimit(self.resources, self.rooted, copies, passes is not None), meter.timed
        )
        taken = Trail(reduced, [i for i in reduced.workers if passes and not passes(reduced.kind_at[i])])
        results = search_or_pack(self.resources, reduced, taken, meter.timed if self.apart else meter)
        return results if isinstance(results, Reason) else Solution(*results, reduced, taken)

    def place(self) -> Placed:
        """Return one copy of the job, where it is known to fit."""
        reason = None if self.placed else self._place()
        if self.placed is None:
            raise RuntimeError(
                f"internal error: counted as fitting, but placement failed: {reason.text if reason else ''}"
            )
        return self.placed

    def copies(self, meter: Meter) -> tuple[int, bool]:
        """Count how many copies fit: in closed form where there is one, else by taking them."""
        form = self._form()
        if isinstance(form, Standing):
            runs = capacities(form, self.tallied().tally())
            if runs is not None:
                return at_most(successive(runs, form.units))
        elif form is not None:
            return at_most(self.tallied().units(form) // form.count.min)
        return self._taken_copies(meter)

    def _form(self) -> Resource | Standing | None:
        return closed_form(self.resources, self.rooted)

    def totals(self) -> dict[str, int]:
        """Sum what one copy takes: in closed form where it stands on whole workers, else by placing it."""
        form = self._form() if self.apart and self.placed is None else None
        if isinstance(form, Standing) and (sums := totals_standing(form, self.rooted)) is not None:
            return sums
        return totals_of(self.place().take, self.rooted.worker_type)

    def _taken_copies(self, meter: Meter) -> tuple[int, bool]:
        try:
            solution = self._search(2 + MOST_LOOKED_AT // self.rooted.kind.vertices, meter)
        except OutOfBudgetError:
            return 1, False
        if isinstance(solution, Reason):
            return 1, False
        return taken_copies(self.resources, solution.reduced, solution.taken, solution.rows, meter)


MOST_TRIES = 3  # a busy machine may cut one short; what is hard is not worked out at every look


class ClassSolver:
    """One request on one root: the first variant that fits decides; `fits`: its only variant is known to.

    `later` gives a meter for what is worked out when it is looked at; what its time cuts short is tried again.
    """

    def __init__(
        self, question: Query, rooted: ClusterClass, meter: Meter, later: Callable[[], Meter], fits: bool = False
    ) -> None:
        self.rooted = rooted
        self.trials: list[Attempt] = []
        self._later = later
        self._tries = 0
        self._answer: Answer | None = None
        for variant, part in enumerate(meter.divided(len(question.request.variants))):
            self.trials.append(Attempt(question, rooted, variant, part, fits))
            if self.trials[-1].refusal is None:
                break
        fitting = self.trials[-1].refusal is None
        self.matched = fitting or (None if any(trial.is_undecided for trial in self.trials) else False)

    @property
    def answer(self) -> Answer:
        """The answer for every cluster with the root; what is held is each one's own, see `take`."""
        if self._answer is not None:
            return self._answer
        meter = self._later()
        result = self._work_out(meter)
        self._tries += 1
        if self._tries == MOST_TRIES or not meter.is_over:
            self._answer = result
        return result

    def _work_out(self, meter: Meter) -> Answer:
        if not self.matched:
            answer = [trial for trial in self.trials if trial.is_undecided][:1] or self.trials[:MOST_ALTERNATIVES]
            reasons = [reason for one in answer if one.refusal and (reason := one.refusal(meter))]
            return Answer(reason=of_variants(reasons) if reasons else None)
        fits, exact = self.trials[-1].copies(meter)
        totals = self.trials[-1].totals()
        return Answer(fits, exact, totals, units=units_of(totals, self.rooted.pools))

    def take(self, cluster: Cluster) -> Take | None:
        """Return what one copy would hold of one cluster with the root."""
        return self.trials[-1].place().inside(cluster, len(self.trials) - 1) if self.matched else None


Runs = list[tuple[int, int]]  # (capacity, how many neighbours have it)


def capacities(standing: Standing, tally: ScalarCount) -> Runs | None:
    """Return how many copies each vertex that `standing.host` can stand on gives to, None if one is in no worker."""
    top = tally.columns.part_of[standing.number].top
    results: dict[CountState, Runs] = {}
    for state, kind in sorted(tally.kinds.items(), key=lambda item: item[0].number):
        if not tally.found[state][top]:
            results[state] = []
        elif kind.type != standing.host.type:
            results[state] = _below(kind, state, tally, results)
        elif not tally.here(kind, state).within:
            return None
        else:
            results[state] = [(_capacity(standing, kind), 1)]
    return results[tally.start]


def _capacity(standing: Standing, kind: SubtreeClass) -> int:
    room = min(kind.content[pool] // n for pool, n in standing.amounts.items())
    return min(room, 1) if standing.host.exclusive else room  # children were met one by one, not together


def _below(kind: SubtreeClass, state: CountState, tally: ScalarCount, results: dict[CountState, Runs]) -> Runs:
    runs: Runs = []
    for child, many in kind.runs:
        inside = results.get(tally.child(kind, state, child))
        for capacity, times in _repeated(inside or [], many):
            if runs and runs[-1][0] == capacity:
                runs[-1] = (capacity, runs[-1][1] + times)
            else:
                runs.append((capacity, times))
    return runs


def _repeated(runs: Runs, many: int) -> Runs:
    return [(runs[0][0], runs[0][1] * many)] if len(runs) == 1 else runs * many
