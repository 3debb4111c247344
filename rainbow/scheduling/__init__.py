"""One cluster's jobs × workers × now → orders."""

from rainbow.plugins import PluginFault, Registry, UnknownPlugin
from rainbow.scheduling.delegate import Delegate
from rainbow.scheduling.dependencies import never_started, waits_for
from rainbow.scheduling.fair_share import FairShare
from rainbow.scheduling.feasibility import Answer, can_ever, can_now
from rainbow.scheduling.gangs import Gang, GangTask, gangs, only, placements, processes, slots_of
from rainbow.scheduling.interface import (
    Accounts,
    Begins,
    Ended,
    Keeps,
    LocalTime,
    Names,
    Plan,
    Policy,
    Reserve,
    ReservedSpace,
    Resume,
    Start,
    Stop,
    Suspend,
    Taken,
    Traits,
    View,
    Wait,
    Warns,
)
from rainbow.scheduling.invariants import check_plan
from rainbow.scheduling.load_based import LoadBased
from rainbow.scheduling.plan_diagram import diagram
from rainbow.scheduling.priority import Priority
from rainbow.scheduling.snapshot import (
    Broken,
    Elastic,
    GangView,
    JobProgress,
    JobView,
    Promise,
    ReservationView,
    RunProgress,
    RunView,
    SlotsView,
    WorkerView,
)

policies: Registry[Policy] = Registry("rainbow.policies")
policies.add("load_based")(LoadBased())
policies.add("delegate")(Delegate())
policies.add("priority")(Priority())
policies.add("fair_share")(FairShare())


def installed(name: str) -> Policy | None:
    """Return a policy; None if it is not installed any more: its cluster waits for its owner, and no other does."""
    try:
        return policies.get(name)
    except (UnknownPlugin, PluginFault):
        return None


def traits_of(policy: str | Policy | None) -> Traits:
    """Return the traits of a policy; each may also be an attribute of its own, as it was before there were traits.

    >>> traits_of("delegate") == traits_of(policies.get("delegate")) != traits_of("not-installed")
    True
    """
    policy = installed(policy) if isinstance(policy, str) else policy
    traits: Traits | None = getattr(policy, "traits", None)
    return traits or Traits(*(bool(getattr(policy, one, False)) for one in Traits._fields))


__all__ = [
    "Accounts",
    "Answer",
    "Begins",
    "Broken",
    "Delegate",
    "Elastic",
    "Ended",
    "FairShare",
    "Gang",
    "GangTask",
    "GangView",
    "JobProgress",
    "JobView",
    "Keeps",
    "LoadBased",
    "LocalTime",
    "Names",
    "Plan",
    "Policy",
    "Priority",
    "Promise",
    "ReservationView",
    "Reserve",
    "ReservedSpace",
    "Resume",
    "RunProgress",
    "RunView",
    "SlotsView",
    "Start",
    "Stop",
    "Suspend",
    "Taken",
    "Traits",
    "View",
    "Wait",
    "Warns",
    "WorkerView",
    "can_ever",
    "can_now",
    "check_plan",
    "diagram",
    "gangs",
    "installed",
    "never_started",
    "only",
    "placements",
    "policies",
    "processes",
    "slots_of",
    "traits_of",
    "waits_for",
]
