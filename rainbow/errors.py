"""The faults that Rainbow raises, each with a code that never changes.

RainbowError                     anything of ours
├── InputError                   what was sent cannot be read; says where
│   ├── GraphError               a cluster or subsystem graph
│   ├── JobspecError             a jobspec
│   ├── StateError               a cluster's state
│   ├── SelectionError           priorities, steps, expressions
│   ├── PolicyError              settings of a scheduling policy
│   ├── ConfigError              a configuration file
│   ├── RequestError             an HTTP request: names, envelopes, parameters
│   ├── ValueRefused             a value of the documented form that is out of place: a start in the past
│   └── LimitError               larger, deeper or longer than the server allows
├── AccessError                  who asks
│   ├── Unauthenticated          missing or unknown credential
│   └── Forbidden                the credential lacks the permission
├── NotFound                     not found, or not visible to this credential
├── Conflict                     exists already, or its state does not allow it
├── PreconditionFailed           it has changed since the caller read it
├── Refused                      valid, but no cluster can or may take the job
│   ├── OverBudget               an account's budget or longest duration does not allow the job
│   ├── NoClusterNow             some clusters match, and the rules of selection leave none of them now
│   └── Undecided                no cluster is known to match: the time for matching ended first
├── TimedOut                     the body of a request did not come in time
├── PlanError                    a policy's plan breaks a hard invariant
├── InternalError                Rainbow itself has failed; its log says how
└── TryLater                     the same request may succeed later
    ├── TooMany                  an admission or rate limit
    └── Unavailable              the store or the server is away

UnknownPlugin and PluginFault, which need the registry, are in plugins.py.
"Does not fit" and "must wait" are no faults: they are values with reasons (matching.Reason, scheduling.Wait).
"""

from __future__ import annotations

from typing import Any

BY_FILE = "set RAINBOW_TOKEN_FILE to the file that holds it"  # of the administrator's token
NONE, UNKNOWN = "none", "unknown"  # outcomes: nothing is stored and nothing will be; it may be done


class RainbowError(Exception):
    """Something Rainbow refuses or cannot do."""

    code = "error"
    outcome: str | None = None  # NONE or UNKNOWN; None: what the status of the answer means

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        super().__init__(message or type(self).__doc__)
        self.message = message or str(type(self).__doc__)
        self.facts = facts


class InputError(RainbowError):
    """A document that cannot be read; `pointer` (RFC 6901) and for YAML `line`, `column` (from 1) give the place."""

    code = "input-invalid"

    def __init__(
        self,
        message: str | None = None,
        *,
        pointer: str | None = None,
        line: int | None = None,
        column: int | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.pointer = pointer
        self.line = line
        self.column = column

    def __str__(self) -> str:
        place = [f"{name} {at}" for name, at in (("line", self.line), ("column", self.column)) if at is not None]
        if self.pointer:
            place.append(f"at {self.pointer}")
        return f"{self.message} ({', '.join(place)})" if place else self.message


class GraphError(InputError):
    """The graph is not a cluster or subsystem graph."""

    code = "graph-invalid"


class JobspecError(InputError):
    """The jobspec is not valid."""

    code = "jobspec-invalid"


class StateError(InputError):
    """The state is not a flat mapping of names to numbers, text or booleans."""

    code = "state-invalid"


class SelectionError(InputError):
    """The selection's configuration or one of its expressions is not valid."""

    code = "selection-invalid"


class PolicyError(InputError):
    """The settings of the scheduling policy are not valid."""

    code = "policy-invalid"


class ConfigError(InputError):
    """The configuration file is not valid."""

    code = "config-invalid"


class RequestError(InputError):
    """The request does not match the documented schema."""

    code = "request-invalid"


class ValueRefused(InputError):
    """A value has the documented form, and cannot be meant."""

    code = "value-refused"


class LimitError(InputError):
    """A request that is larger, deeper or longer than the server allows."""

    code = "limit-exceeded"


class AccessError(RainbowError):
    """The caller is not allowed to do this."""

    code = "access"


class Unauthenticated(AccessError):
    """Authentication required: no valid credential was provided."""

    code = "unauthenticated"


class Forbidden(AccessError):
    """This credential does not give the right to do this."""

    code = "forbidden"


class NotFound(RainbowError):
    """Not found, or not visible to this credential."""

    code = "not-found"


class Conflict(RainbowError):
    """The resource already exists, or its state does not allow this operation."""

    code = "conflict"


class PreconditionFailed(RainbowError):
    """The resource has changed since it was read."""

    code = "precondition-failed"


class Refused(RainbowError):
    """No eligible cluster can run the job; `facts` has the reason for each cluster."""

    code = "unsatisfiable"


class NoClusterNow(Refused):
    """Some clusters match, and none of them takes the job now; `dropped` names the step that dropped each."""

    code = "no-cluster-now"


class OverBudget(Refused):
    """An account's budget or longest duration does not allow the job."""

    code = "over-budget"


class TimedOut(RainbowError):
    """The body of a request did not come in time."""

    code = "timed-out"


class Undecided(Refused):
    """No cluster is known to match, and the time for matching ended before all clusters were decided."""

    code = "undecided"


class PlanError(RainbowError):
    """A policy's plan breaks a hard invariant; it is refused whole."""

    code = "plan-invalid"


class InternalError(RainbowError):
    """Internal server error; the server log has the details for this request ID."""

    def __init__(self, message: str | None = None, *, outcome: str | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.outcome = outcome


class TryLater(RainbowError):
    """The same request may succeed later; `retry_after` is in seconds, `outcome` tells whether it may be done."""

    code = "try-later"

    def __init__(
        self, message: str | None = None, *, retry_after: int = 1, outcome: str = NONE, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.retry_after = retry_after
        self.outcome = outcome


class TooMany(TryLater):
    """An admission or rate limit is reached."""

    code = "too-many"


class Unavailable(TryLater):
    """The database or the server is unavailable."""

    code = "unavailable"
