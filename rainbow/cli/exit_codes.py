"""Exit codes, and which fault ends with which."""

from __future__ import annotations

import sys
from enum import IntEnum

from rainbow.errors import Conflict, NotFound, RainbowError, TryLater
from rainbow.plugins import UnknownPlugin


class Exit(IntEnum):
    """The exit codes of `rainbow`."""

    OK = 0
    ERROR = 1  # refused as it stands: a jobspec, a graph, a file is wrong
    USAGE = 2  # the command line is wrong
    NO_MATCH = 3  # no cluster can run the job, or none is known to
    NOT_FOUND = 4
    NOT_ALLOWED = 5  # no credential, or one without the right
    CONFLICT = 6
    JOB_FAILED = 7  # the job that was waited for did not complete
    UNAVAILABLE = 75  # the server is away or busy, or a wait is over: the same may succeed later (sysexits' TEMPFAIL)


INTERRUPTED = 130  # 128 + SIGINT, as shells say it; no command lists it, as every one can end so
LACKING = "rainbow.lacking"  # where a command's context keeps which credential it asks without

BY_STATUS = {
    401: Exit.NOT_ALLOWED,
    403: Exit.NOT_ALLOWED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    429: Exit.UNAVAILABLE,
    502: Exit.UNAVAILABLE,
    503: Exit.UNAVAILABLE,
    504: Exit.UNAVAILABLE,
}
UNSATISFIABLE = "unsatisfiable"
NO_CLUSTER_NOW = "no-cluster-now"
UNDECIDED = "undecided"
UNMATCHED = (UNSATISFIABLE, UNDECIDED)


def exit_of(fault: RainbowError) -> Exit:
    """Return the exit code of a fault.

    >>> exit_of(TryLater())
    <Exit.UNAVAILABLE: 75>
    """
    client = sys.modules.get("rainbow.client.transport")  # what has sent nothing need not import it
    if client is not None and isinstance(fault, client.Problem):
        return Exit.NO_MATCH if fault.code in UNMATCHED else BY_STATUS.get(fault.status, Exit.ERROR)
    if isinstance(fault, TryLater):
        return Exit.UNAVAILABLE
    if isinstance(fault, NotFound):
        return Exit.NOT_FOUND
    if isinstance(fault, Conflict):
        return Exit.CONFLICT
    return Exit.USAGE if isinstance(fault, UnknownPlugin) else Exit.ERROR
