"""Whose a job at a site is: ours only if our mark is in it.

A controller that lost its memory gives numbers out again, and people change comments. So a number alone says nothing:
what a site tells of a job is believed, and the job is canceled, only if it is ours by its mark and its user. Where it
has no mark at all, since some sites drop comments, its user and the time of its submission must be those of ours.
"""

from __future__ import annotations

import math
from datetime import datetime

from rainbow.agent.executors.interface import Final, Row
from rainbow.agent.executors.slurm.job import Active

CLOCKS = 5.0  # seconds by which the clocks of a site and of its agent may differ


def is_ours(active: Active, said: Row | Final, own: str) -> bool:
    """Return whether a job is that of a run; `own`: the agent's own account, whose it is where nobody is mapped."""
    owner = active.account.name if active.account else own
    if said.user != owner:  # nothing is known of it where the site does not say whose it is
        return False
    if said.mark:
        return said.mark == active.mark
    if active.submitted:
        return said.submitted == active.submitted
    at = time_of(said.submitted)
    return active.asked_at - CLOCKS <= at <= active.numbered_at + CLOCKS


def other(active: Active, said: Row | Final, name: str) -> str:
    """Say what a number of ours is now, which is not ours any more."""
    key = f"the key {said.mark}" if said.mark else "no key of ours"
    whose = f" of user {said.user}" if said.user else ""
    return f"{name} job {active.native}{whose} has {key} now: it is left alone, and ours is looked for"


def time_of(text: str) -> float:
    """Return a time that a site writes in the zone of this machine, in seconds; what is no time is never."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return math.inf
