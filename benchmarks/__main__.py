"""Run every benchmark: each as it grows, beside a stated rival in the same run."""

from __future__ import annotations

from benchmarks import budget, fair_share, forecast, matching, priority
from benchmarks.agents import running_tasks
from benchmarks.host import hosting
from benchmarks.load_based import planning
from benchmarks.selecting import selecting
from benchmarks.shares import sharing
from benchmarks.simulating import simulating
from benchmarks.starting import starting
from benchmarks.submits import submitting

if __name__ == "__main__":
    matching.main()
    budget.main()
    selecting()
    planning()
    sharing()
    hosting()
    priority.main()
    fair_share.epochs()
    forecast.main()
    simulating()
    running_tasks()
    submitting()
    starting()
