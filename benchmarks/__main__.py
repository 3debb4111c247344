"""Run the benchmarks, or those named, as `python -m benchmarks budget matching` does."""

from __future__ import annotations

import gc
import sys

from benchmarks import budget, fair_share, forecast, matching, priority
from benchmarks.accounts import accounting
from benchmarks.accuracy import held_out, turning_out
from benchmarks.agents import running_tasks
from benchmarks.growth import growing
from benchmarks.host import hosting
from benchmarks.lists import forgetting, listed
from benchmarks.load_based import planning
from benchmarks.located import locating
from benchmarks.presence import attended, present, refreshed, woken
from benchmarks.routing import routing
from benchmarks.scale import scaling
from benchmarks.selecting import selecting
from benchmarks.servers import several
from benchmarks.shards import sharded
from benchmarks.shares import sharing
from benchmarks.simulating import simulating
from benchmarks.starting import starting
from benchmarks.submits import submitting
from benchmarks.waiting import waiting
from benchmarks.whynow import whynow
from benchmarks.worst import worst
from rainbow.__main__ import SELDOM

PARTS = {
    "matching": matching.main,
    "budget": budget.main,
    "selecting": selecting,
    "load_based": planning,
    "located": locating,
    "shares": sharing,
    "host": hosting,
    "waiting": waiting,
    "whynow": whynow,
    "attended": attended,
    "presence": present,
    "refresh": refreshed,
    "wake": woken,
    "lists": listed,
    "retention": forgetting,
    "priority": priority.main,
    "fair_share": fair_share.epochs,
    "forecast": forecast.main,
    "accuracy": turning_out,
    "held_out": held_out,
    "simulation": simulating,
    "routing": routing,
    "agents": running_tasks,
    "accounts": accounting,
    "submits": submitting,
    "servers": several,
    "shards": sharded,
    "scale": scaling,
    "growth": growing,
    "worst": worst,
    "start": starting,
}

if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in PARTS]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(PARTS)}")
    gc.set_threshold(*SELDOM)  # as in every process of Rainbow
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
