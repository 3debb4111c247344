"""Runs held in place and let go on, by executors that can."""

from __future__ import annotations

from rainbow.agent.executor import Executor, Suspends
from rainbow.agent.messages import happened
from rainbow.agent.runs import RunId
from rainbow.client import wire

DONE = {"suspend": "suspended", "resume": "resumed"}


def hold(executor: Executor, run: RunId, verb: str) -> wire.Event:
    """Suspend or resume a run; return what is to be told of it: that it is so, or that it cannot be."""
    if not isinstance(executor, Suspends):
        return happened(run, "unable", f"executor {type(executor).__name__} cannot suspend")
    try:
        (executor.suspend if verb == "suspend" else executor.resume)(run)
    except Exception as fault:  # an executor may be anybody's
        return happened(run, "unable", f"the executor could not {verb} it: {fault}")
    return happened(run, DONE[verb])
