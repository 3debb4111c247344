"""The agent's messages: offers become runs, orders go to the executor, ends become events."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rainbow.agent.executors.interface import Executor, Suspends, Warns
from rainbow.agent.executors.run import TAIL, Checked, Ended, Pending, Result, Run, RunId, SiteJob, Written
from rainbow.client import responses
from rainbow.jobspec.hostlist import expand_ids, fold_ids

MOST_BOUND = 100_000  # cores of one machine


def run_of(offer: responses.Offer) -> Run:
    """Return the run that an offer describes."""
    return Run(
        id=run_id(offer),
        job=offer["job"],
        command=tuple(offer["command"]),
        cwd=offer.get("cwd") or _if_there(offer.get("submitted_from") or ""),
        environment=offer.get("environment") or {},
        duration=offer.get("duration") or 0.0,
        processes=offer.get("processes", 1),
        placement=offer.get("placement") or {},
        units=offer.get("units") or {},
        output=offer.get("output") or TAIL,
        binding=_binding(offer.get("binding") or {}),
        request=offer.get("request"),
        files=offer.get("files") or {},
        variables=offer.get("variables") or {},
        umask=int(offer.get("umask") or "-1", 8),
    )


def _binding(said: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[int]]]:
    """Read which cores and GPUs a run holds of each worker; nothing with RAINBOW_BIND=none."""
    if os.environ.get("RAINBOW_BIND") == "none":
        return {}
    return {
        worker: {type_: expand_ids(ids, MOST_BOUND) or [] for type_, ids in held.items()}
        for worker, held in said.items()
    }


def _if_there(folder: str) -> str:
    """Return the folder a job was submitted from if it is here, too."""
    return folder if folder and os.path.isdir(folder) and os.access(folder, os.X_OK) else ""


def run_id(ref: responses.RunRef) -> RunId:
    """Return the run a message refers to."""
    return ref["id"], ref["attempt"]


def refs(runs: Iterable[RunId]) -> list[responses.RunRef]:
    """Name runs in a message."""
    return [{"id": task, "attempt": attempt} for task, attempt in runs]


def happened(run: RunId, event: str, detail: str = "") -> responses.Event:
    """Report that a run has started, is suspended, has been resumed, or is unable to be."""
    said: responses.Event = {"task": run[0], "attempt": run[1], "event": event}
    return {**said, "detail": detail} if detail else said


def waits(run: RunId, why: Pending) -> responses.Event:
    """Report why a run has not begun."""
    said: responses.Event = {
        "task": run[0],
        "attempt": run[1],
        "event": "pending",
        "code": why.code,
        "text": why.text,
    }
    return {**said, "facts": dict(why.facts)}


def placed(run: RunId, options: Mapping[str, Mapping[str, Sequence[int]]]) -> responses.Event:
    """Report which cores and GPUs a resource manager gave a run."""
    binding = {worker: {kind: fold_ids(ids) for kind, ids in held.items()} for worker, held in options.items()}
    return {"task": run[0], "attempt": run[1], "event": "placed", "binding": binding}


def at_site(run: RunId, job: SiteJob) -> responses.Event:
    """Report how a site calls a run, and where it is there."""
    said: responses.Event = {"task": run[0], "attempt": run[1], "event": "site", "number": job.number[:100]}
    if job.partition:
        said["partition"] = job.partition[:100]
    if job.nodes:
        said["nodes"] = job.nodes[:1_000]
    return {**said, "detail": job.detail} if job.detail else said


def wrote(run: RunId, written: Written) -> responses.Event:
    """Report the end of what a run has written so far."""
    said: responses.Event = {"task": run[0], "attempt": run[1], "event": "output", "output": written.output}
    return {**said, "errors": written.errors} if written.errors else said


def checked(question: str, said: Checked) -> responses.Event:
    """Report whether a site would take a job to come."""
    event: responses.Event = {"task": question, "attempt": 0, "event": "checked", "text": said.refused[:300]}
    return event if said.wait is None else {**event, "facts": {"wait": said.wait}}


def ended(end: Ended) -> responses.Event:
    """Report how a run ended."""
    task, attempt = end.id
    event: responses.Event = {"task": task, "attempt": attempt, "event": "ended", "result": str(end.result)}
    if end.exit_code is not None:
        event["exit_code"] = end.exit_code
    event["output"] = end.output
    if end.errors:
        event["errors"] = end.errors
    event["detail"] = end.detail
    if end.cause:
        event["cause"] = end.cause
    return event


MOST_OUTPUT = 4 << 20  # characters of output in one message, well below what a server takes


def batch(events: Iterable[responses.Event], size: int) -> list[responses.Event]:
    """Return the first events, up to `size`, of which no two are of different attempts at one task.

    With more than MOST_OUTPUT characters of output the message ends.

    The answer names stale tasks by id alone; so it can only mean one attempt.
    """
    attempts: dict[str, int] = {}
    chosen: list[responses.Event] = []
    written = 0
    for event in islice(events, size):
        written += len(event.get("output", "")) + len(event.get("errors", ""))
        if chosen and written > MOST_OUTPUT:
            break
        if attempts.setdefault(event["task"], event["attempt"]) != event["attempt"]:
            break
        chosen.append(event)
    return chosen


def stale_runs(stale: Iterable[str], said: Iterable[RunId]) -> list[RunId]:
    """Return which of the runs we spoke of are stale; of two attempts at one task it is the older.

    >>> stale_runs(["a"], [("a", 2), ("a", 1), ("b", 1)])
    [('a', 1)]
    """
    spoken = sorted(said)
    return [next(run for run in spoken if run[0] == task) for task in stale if any(run[0] == task for run in spoken)]


def in_words(end: Ended) -> str:
    """Say how a run ended, for the agent's log."""
    how = "exit code" if end.result is Result.EXITED else str(end.result)
    code = f" {end.exit_code}" if end.result is Result.EXITED else ""
    detail = end.detail.removeprefix(f"{end.result}: ")
    return f"ended: {how}{code}" + (f" ({detail})" if detail else "")


DONE = {"suspend": "suspended", "resume": "resumed"}


def hold(executor: Executor, run: RunId, verb: str) -> responses.Event:
    """Suspend or resume a run; return what is to be told of it: that it is so, or that it cannot be."""
    if not isinstance(executor, Suspends):
        return happened(run, "unable", f"executor {type(executor).__name__} does not support suspend")
    try:
        (executor.suspend if verb == "suspend" else executor.resume)(run)
    except Exception as fault:  # an executor may be anybody's
        return happened(run, "unable", f"the executor could not {verb} it: {fault}")
    return happened(run, DONE[verb])


def end(executor: Executor, run: RunId, answer: Mapping[str, Any]) -> None:
    """End a run; one that is preempted gets its signal first, where the executor can send one."""
    if answer.get("signal") and isinstance(executor, Warns):
        executor.warn(run, answer["signal"], answer.get("grace", 0.0))
    else:
        executor.stop(run)
