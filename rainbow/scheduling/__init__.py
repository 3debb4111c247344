"""One cluster's jobs × workers × now → orders."""

from rainbow.plugins import Registry
from rainbow.scheduling.delegate import Delegate
from rainbow.scheduling.dependencies import never_started, waits_for
from rainbow.scheduling.fair_share import FairShare
from rainbow.scheduling.feasibility import Answer, can_ever, can_now
from rainbow.scheduling.gangs import Gang, GangTask, gangs, only, placements, processes, slots_of
from rainbow.scheduling.interface import (
    Accounts,
    Ended,
    Keeps,
    Kept,
    Names,
    Plan,
    Policy,
    Reserve,
    Resume,
    Start,
    Stop,
    Suspend,
    Taken,
    View,
    Wait,
)
from rainbow.scheduling.invariants import check_plan
from rainbow.scheduling.load_based import LoadBased
from rainbow.scheduling.location import located
from rainbow.scheduling.plan_diagram import diagram
from rainbow.scheduling.priority import Priority
from rainbow.scheduling.snapshot import (
    Elastic,
    GangView,
    JobProgress,
    JobView,
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

DEFAULT_POLICY = "load_based"

__all__ = [
    "DEFAULT_POLICY",
    "Accounts",
    "Answer",
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
    "Kept",
    "LoadBased",
    "Names",
    "Plan",
    "Policy",
    "Priority",
    "ReservationView",
    "Reserve",
    "Resume",
    "RunProgress",
    "RunView",
    "SlotsView",
    "Start",
    "Stop",
    "Suspend",
    "Taken",
    "View",
    "Wait",
    "WorkerView",
    "can_ever",
    "can_now",
    "check_plan",
    "diagram",
    "gangs",
    "located",
    "never_started",
    "only",
    "placements",
    "policies",
    "processes",
    "slots_of",
    "waits_for",
]
