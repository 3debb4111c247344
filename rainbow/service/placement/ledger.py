"""The ledger: every decision with its inputs, so that it can be replayed.

decision ─┬─ candidates, refusals, selection, seed    shown to all who may see the job; of many clusters the first
              └─ ledger    policy (selector, options), states, graphs (revisions): what the selection was given;
                           base, frame: the states, as what differs from those of an earlier decision;
                           match, matched: names and columns, where the answer is shortened; selection: its seal

The job's parameters are in its jobspec. Each part of the ledger is JSON text, known by its SHA-256. Long ones are
kept once for all jobs that share them (store/jobs.py): the candidates of equal jobs are the same.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat, takewhile
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden, TooMany
from rainbow.matching import candidates_of, names_of
from rainbow.scheduling import policies
from rainbow.selection import Choice, Step, matched_read, reads_states
from rainbow.selection.replay import (
    RecordedDecision,
    SelectorRules,
    compare,
    is_sealed_by,
    read_recorded,
    redecide,
    seal_of,
)
from rainbow.selection.replay import written as replay_written
from rainbow.selection.variables import AGE, matched_values
from rainbow.service.core.memory import picture, place
from rainbow.service.core.settings import settings_of
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.placement.candidates import DigestedText, placeable, revision_of, verdicts_on
from rainbow.service.placement.match_cache import MOST_SHOWN
from rainbow.store import jobs, pages
from rainbow.store.jobs import JobRecord
from rainbow.store.pages import Filter

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.service.placement.match_cache import Match
    from rainbow.store.cluster_states import Board, BoardStates


LEDGER = "ledger"
SHORT = 2_000  # characters of a part that is kept with its job


def written(choice: Choice) -> dict[str, Any]:
    """Write a choice as JSON, with every candidate's rank and the step that dropped it."""
    return {
        "cluster": choice.cluster,
        "selector": choice.selector,
        "steps": [_step(step) for step in choice.steps],
        "reason": choice.reason,
        "warnings": [*choice.warnings],
        "values": choice.values,
        "ranks": choice.ranks,
        "drops": choice.drops,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "priority": step.priority,
        "step": step.step,
        "argument": step.argument,
        "survivors": [*step.survivors],
        "values": {**step.values},
        "dropped": {**step.dropped},
        "note": step.note,
    }


def selection_record(choice: Choice, match: Match) -> dict[str, Any]:
    """Write a choice as a submit is answered: of many clusters only what it says of those listed."""
    if match.fits_in_answer:
        return written(choice)
    names = [verdict.cluster for verdict in match.candidates[:MOST_SHOWN]]
    if choice.cluster is not None and choice.cluster not in names:
        names.append(choice.cluster)
    about = written(replace(choice, steps=choice.about(names)))
    ranks = choice.ranks_of(names)
    return {**about, "ranks": {name: ranks[name] for name in names if name in ranks}}


def longer(choice: Choice, match: Match, how: tuple[str, Mapping[str, Any]]) -> dict[str, DigestedText]:
    """Return the complete match and choice for the decision log; empty if the response has them.

    A choice of ours is taken again when it is looked at: it is kept as its seal and what it may have read.
    """
    if match.fits_in_answer:
        return {}
    if not reads_states(how[0]):  # it has looked at no candidate either
        return {"match": match.named}
    if (read := matched_read(*how)) is None:
        return {"match": match.worked_out, "selection": DigestedText.of(written(choice))}
    return {"match": match.named, "matched": match.columns(read), "selection": DigestedText("", seal_of(choice))}


@dataclass(frozen=True, slots=True)
class WholeStates:
    """States that were kept whole, and the board they stood on."""

    part: DigestedText
    board: Board


@picture("frames", most="states of all clusters", true="texts are known by digest, and stored with each decision")
class Frames:
    """The last states that were kept whole; of those after them only what differs is kept, until that is as much."""

    def __init__(self) -> None:
        self._last: WholeStates | None = None
        self._spent = 0

    def parts(self, read: BoardStates) -> dict[str, DigestedText]:
        """Return the parts of the ledger that say what the states were."""
        board, last = read.board, self._last
        if last is None or last.board.places is not board.places or self._spent > len(last.part.text):
            last = self._last = self._whole(read.base)
        changed = board.since(last.board.version)
        if 2 * len(changed) > len(board.made):
            last = self._last = self._whole(read.base)
            changed = board.since(last.board.version)
        frame = DigestedText.of({"at": read.at, "changed": board.kept(changed)})
        self._spent += len(frame.text)
        return {"base": last.part, "frame": frame}

    def _whole(self, board: Board) -> WholeStates:
        self._spent = 0
        return WholeStates(DigestedText.of(board.kept(range(len(board.made)))), board)


def restored(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states that were kept as what differs from others."""
    frame = options["frame"]
    return {name: _aged(stored, frame["at"]) for name, stored in {**options["base"], **frame["changed"]}.items()}


def _aged(stored: Sequence[Any], at: float) -> dict[str, Any]:
    """Return a cluster's variables as they were at a time."""
    values, reported = stored
    return dict(values) if reported is None else {**values, AGE: max(0.0, at - reported)}


def entry(parts: Mapping[str, DigestedText]) -> dict[str, Any]:
    """Return the log entry of a decision: the digest of each part, plus short parts inline."""
    texts = {name: part.text for name, part in parts.items() if 0 < len(part.text) <= SHORT}
    return {**texts, "digests": {name: part.digest for name, part in parts.items()}}


def long(parts: Mapping[str, DigestedText]) -> dict[str, str]:
    """Return the other parts, by digest."""
    return {part.digest: part.text for part in parts.values() if len(part.text) > SHORT}


def _parts(connection: sa.Connection, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Read the parts of a ledger again."""
    elsewhere = {digest: name for name, digest in stored["digests"].items() if name not in stored}
    texts = {name: stored[name] for name in stored["digests"] if name in stored}
    texts |= {elsewhere[digest]: text for digest, text in jobs.get_records(connection, elsewhere).items()}
    return {name: json.loads(text) for name, text in texts.items()}


def whole(connection: sa.Connection, job_id: str) -> dict[str, Any]:
    """Return a decision with all its clusters and `given`, what it was given by part: empty if that was not kept."""
    decision = _with_candidates(connection, job_id)
    seal = decision["digests"].get("selection")
    if seal and "selection" not in decision["given"]:
        choice = _again(decision, _parameters(connection, job_id))
        if is_sealed_by(choice, seal):
            decision["selection"] = written(choice)
    return decision


def state_at(connection: sa.Connection, job_id: str, cluster: str) -> Mapping[str, Any]:
    """Return what was known of a cluster when a job was placed; empty if that was not kept."""
    result: Mapping[str, Any] = _with_candidates(connection, job_id)["given"].get("states", {}).get(cluster, {})
    return result


def again(connection: sa.Connection, job_id: str) -> dict[str, Any]:
    """Return where else a job may go and how that is chosen; empty if it was placed before that was kept."""
    result: dict[str, Any] = _with_candidates(connection, job_id).get("again", {})
    return result


def _with_candidates(connection: sa.Connection, job_id: str) -> dict[str, Any]:
    decision = jobs.decision(connection, job_id)
    stored = decision.pop(LEDGER, None)
    options = _parts(connection, stored) if stored else {}
    if "frame" in options:
        options["states"] = restored(options)
    if "regraphed" in options:
        options["graphs"] |= options.pop("regraphed")
    decision |= {"selection": options.get("selection", decision.get("selection"))}
    for which, listed in options.get("match", {}).items():
        known = {one["cluster"]: one for one in decision[which]}
        decision[which] = [{**one, **known.get(one["cluster"], {})} for one in listed]
    _fill(decision.get("candidates", []), options.get("matched", {}))
    for name, values in options.pop("arriving", {}).items():
        for one, value in zip(decision["candidates"], values, strict=True):
            options["states"][one["cluster"]] |= {} if value is None else {name: value}
    decision.pop("more", None)
    if "again" in decision and "clusters" not in decision["again"]:
        names = [one["cluster"] for one in decision["candidates"]]
        decision["again"] = {"clusters": names, **decision["again"]}
    return {**decision, "given": options, "digests": stored["digests"] if stored else {}}


def _fill(candidates: Sequence[dict[str, Any]], columns: Mapping[str, Any]) -> None:
    """Add to candidates what a decision may have read of them."""
    for name, values in columns.items():
        for one, value in zip(candidates, values if isinstance(values, list) else repeat(values), strict=False):
            if name == "fits":
                one.setdefault("fits", value)
            elif value is not None:
                one.setdefault("totals", {}).setdefault(name, value)


def shown(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision without its ledger: the states of clusters are theirs."""
    return {key: value for key, value in decision.items() if key != LEDGER}


def replay(service: Service, connection: sa.Connection, record: JobRecord) -> dict[str, Any]:
    """Take a job's decision again from what was kept; say whether the same comes of it."""
    decision = _with_candidates(connection, record.id)
    if not decision["given"]:
        raise Conflict(f"job {record.id} cannot be replayed: it was placed before decision inputs were recorded")
    choice = _again(decision, _parameters(connection, record.id))
    repeated, stored = written(choice), decision["given"].get("selection")
    sealed = stored is None and decision["digests"].get("selection")
    equal = is_sealed_by(choice, sealed) if sealed else repeated == decision["selection"]
    return {
        "id": record.id,
        "number": record.number,
        "cluster": record.cluster,
        "equal": equal,
        "selection": repeated if equal else decision["selection"],
        "replayed": repeated,
        "digests": decision["digests"],
        "graphs_changed_since": _changed(service, decision),
    }


def _again(decision: Mapping[str, Any], parameters: Mapping[str, Any]) -> Choice:
    inputs = _inputs(decision, parameters)
    return redecide(read_recorded(inputs), SelectorRules(inputs["selector"]["name"], inputs["selector"]["options"]))


def _changed(service: Service, decision: Mapping[str, Any]) -> list[str]:
    """Name the candidates whose graphs are no longer those that were matched."""
    then = decision["given"]["graphs"]
    now = {name: revision_of(entry) for name, entry in service.catalogue.items()}
    names = [one["cluster"] for one in decision["candidates"]]
    return [name for name in names if name in then and now.get(name) != then[name]]


def listing(
    service: Service, who: Caller, chosen: Filter, matched: Collection[str] = ()
) -> tuple[list[dict[str, Any]], str | None]:
    """List what recorded decisions were given, the newest first, and the job to continue from.

    `matched`: variables that other rules read of a match. Candidates of which the decision has not read them are
    matched again; `unknown` names those whose graphs have changed since.
    """
    if not who.admin:
        raise Forbidden("recorded decisions need the admin token")
    with service.store.read() as connection:
        placed = pages.listing(connection, chosen)
        results = [(record, _with_candidates(connection, record.id)) for record in placed]
        known = [(record, decision) for record, decision in results if decision["given"]]
        for record, decision in known if matched else ():
            _match_again(service, reading(connection, record.id).request, decision, matched)
        listed = [_listed(connection, record, decision) for record, decision in known]
    return listed, placed[-1].id if len(placed) == chosen.limit else None


def _match_again(service: Service, request: Request, decision: dict[str, Any], names: Collection[str]) -> None:
    then, now = decision["given"]["graphs"], service.catalogue
    lacking = {one["cluster"]: one for one in decision["candidates"] if not _says(one, names)}
    same = [now[name] for name in lacking if name in now and revision_of(now[name]) == then.get(name)]
    verdicts = placeable(service, verdicts_on(service, request, same))
    candidates = candidates_of(verdicts)
    results = [lacking.pop(name) for name in names_of(candidates)]
    _fill(results, {name: matched_values(candidates, name) for name in names})
    if lacking:
        decision["unknown"] = sorted(lacking)


def _says(candidate: Mapping[str, Any], names: Collection[str]) -> bool:
    totals = candidate.get("totals", {})
    return all("fits" in candidate if name == "fits" else name in totals for name in names)


def _listed(connection: sa.Connection, record: JobRecord, decision: Mapping[str, Any]) -> dict[str, Any]:
    inputs = _inputs(decision, _parameters(connection, record.id))
    unknown = {"unknown": decision["unknown"]} if "unknown" in decision else {}
    return {"id": record.id, "submitted_at": record.submitted_at, "cluster": record.cluster, **inputs, **unknown}


def _inputs(decision: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a decision was given."""
    selector, options = decision["given"]["policy"]
    names = {one["cluster"] for one in decision["candidates"]} - set(decision.get("unattended", ()))
    return {
        "candidates": [one for one in decision["candidates"] if one["cluster"] in names],
        "parameters": parameters,
        "states": {name: state for name, state in decision["given"]["states"].items() if name in names},
        "seed": decision["seed"],
        "selector": {"name": selector, "options": options},
    }


def _parameters(connection: sa.Connection, job_id: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(reading(connection, job_id).request.parameters, default=str))
    return result


# ── other rules ──

MOST_TRIED, PIECE = 1_000, 100  # decisions of a comparison, and those read at once
SECONDS = 2.0  # that a comparison may take


@place("comparison", most="one", of="who compares decisions")
class ComparisonTurn:
    """Who compares: one at a time, so that comparisons never take more than one thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def tried(service: Service, who: Caller, config: str, limit: int) -> dict[str, Any]:
    """Decide the last decisions again under the rules of a configuration; nothing is changed.

    `cut`: the SECONDS were over before so many decisions were compared.
    """
    if not who.admin:
        raise Forbidden("recorded decisions need the admin token")
    read, end, turn = settings_of(config), service.monotonic() + SECONDS, service.state(ComparisonTurn).lock
    if not turn.acquire(blocking=False):
        raise TooMany("another comparison is running; try again in 2 s", retry_after=2, limit="comparisons")
    rules = SelectorRules(read.selector, read.selector_options)
    try:
        chosen = islice(_recorded(service, who, rules.matched), min(limit, MOST_TRIED))
        decisions = takewhile(lambda _: service.monotonic() < end, chosen)
        now = SelectorRules(service.settings.selector, service.settings.selector_options)
        result = compare(decisions, now, rules)
    finally:
        turn.release()
    return {**replay_written(result), "cut": service.monotonic() >= end, "warnings": [*read.warnings]}


def _recorded(service: Service, who: Caller, matched: Collection[str]) -> Iterator[RecordedDecision]:
    cursor: str | None = None
    while True:
        result, cursor = listing(service, who, Filter(before=cursor, limit=PIECE), matched)
        yield from map(read_recorded, result)
        if cursor is None:
            return


def checked(who: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
    """Check the rules of a configuration, or a scheduling policy's settings; the fault says where they are wrong."""
    if not (who.admin or who.secrets):
        raise Forbidden("the admin token or a cluster's secret is required")
    if "config" in body:
        read = settings_of(body["config"])
        rules = {"name": read.selector, "options": dict(read.selector_options)}
        return {"selector": rules, "warnings": [*read.warnings]}
    settings = policies.get(body["policy"]).check(body.get("settings") or {})
    return {"policy": body["policy"], "settings": dict(settings)}
