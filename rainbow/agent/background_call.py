"""A line to the server: one call at a time, in the background.

The agent's own thread handles the answers. After a fault that may pass, the line pauses, longer after each further
fault, and the agent repeats the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rainbow.client import Problem
from rainbow.errors import TryLater

SHORTEST_REST = 0.5  # seconds
LONGEST_REST = 15.0
NOT_OURS = frozenset({401, 403, 404})  # the secret is no (longer) good, or the cluster is gone


class BackgroundCall:
    """One call at a time. `wake` is set when an answer is there; `note` gets every passing fault, then None.

    `heard` gets every good answer: when it was asked for, so that the server can only have taken it later.
    """

    def __init__(
        self,
        wake: threading.Event,
        clock: Callable[[], float],
        note: Callable[[BaseException | None], None],
        heard: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._wake = wake
        self._clock = clock
        self._note = note
        self._heard = heard
        self._asked_at = 0.0
        self._answer: Future[Any] | None = None
        self._then: Callable[[Any], None]
        self._refused: Callable[[Problem], None]
        self._faults = 0
        self._rests_until = 0.0

    @property
    def busy(self) -> bool:
        """Return whether a call is under way."""
        return self._answer is not None

    @property
    def free(self) -> bool:
        """Return whether a call may be made now."""
        return not self.busy and self._clock() >= self._rests_until

    def call(self, what: Callable[[], Any], then: Callable[[Any], None], refused: Callable[[Problem], None]) -> None:
        """Begin the call `what`; `hear` will pass its answer to `then`, or a refusal to `refused`."""
        self._then, self._refused, self._asked_at = then, refused, self._clock()
        self._answer = _in_background(what, self._wake)

    def rest(self, seconds: float) -> None:
        """Make no call for so long."""
        self._rests_until = self._clock() + seconds

    def hear(self) -> None:
        """Act on the answer if it is there; raise what will not get better by trying again."""
        if self._answer is None or not self._answer.done():
            return
        answer, self._answer = self._answer, None
        fault = answer.exception()
        if fault is not None and _may_pass(fault):
            self._rest_after(fault)
            return
        self._faults = 0
        self._note(None)
        if fault is None:
            self._heard(self._asked_at)
            self._then(answer.result())
        elif isinstance(fault, Problem) and fault.status not in NOT_OURS:
            self._refused(fault)
        else:
            raise fault

    def _rest_after(self, fault: BaseException) -> None:
        self._note(fault)
        request = getattr(fault, "retry_after", None) or 0.0
        self.rest(min(max(request, SHORTEST_REST * 2**self._faults), LONGEST_REST))
        self._faults = min(self._faults + 1, 10)


def _may_pass(fault: BaseException) -> bool:
    if isinstance(fault, Problem):
        return fault.status == 429 or fault.status >= 500
    return isinstance(fault, TryLater)


def _in_background(what: Callable[[], Any], wake: threading.Event) -> Future[Any]:
    answer: Future[Any] = Future()

    def make() -> None:
        try:
            answer.set_result(what())
        except BaseException as fault:  # it is raised again where the answer is heard
            answer.set_exception(fault)
        wake.set()

    # a daemon, for a long poll must not keep an agent that ends
    threading.Thread(target=make, daemon=True).start()
    return answer
