"""One cluster's jobs × workers × now → orders."""

from rainbow.plugins import Registry
from rainbow.scheduling.check import check_plan
from rainbow.scheduling.delegate import Delegate
from rainbow.scheduling.dependencies import never_started, waits_for
from rainbow.scheduling.diagram import diagram
from rainbow.scheduling.gangs import Gang, GangTask, gangs, only, placements, processes, slots_of
from rainbow.scheduling.load_based import LoadBased
from rainbow.scheduling.policy import (
    GangView,
    JobView,
    Plan,
    Policy,
    ReservationView,
    Reserve,
    Resume,
    RunView,
    SlotsView,
    Start,
    Stop,
    Suspend,
    View,
    Wait,
    WorkerView,
)
from rainbow.scheduling.priority import Priority

policies: Registry[Policy] = Registry("rainbow.policies")
policies.add("load_based")(LoadBased())
policies.add("delegate")(Delegate())
policies.add("priority")(Priority())

DEFAULT_POLICY = "load_based"

__all__ = [
    "DEFAULT_POLICY",
    "Delegate",
    "Gang",
    "GangTask",
    "GangView",
    "JobView",
    "LoadBased",
    "Plan",
    "Policy",
    "Priority",
    "ReservationView",
    "Reserve",
    "Resume",
    "RunView",
    "SlotsView",
    "Start",
    "Stop",
    "Suspend",
    "View",
    "Wait",
    "WorkerView",
    "check_plan",
    "diagram",
    "gangs",
    "never_started",
    "only",
    "placements",
    "policies",
    "processes",
    "slots_of",
    "waits_for",
]
