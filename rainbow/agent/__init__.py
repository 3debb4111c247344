"""The agent at a cluster: receives tasks, runs them through an executor, and reports how they end."""

from rainbow.agent.executors.interface import Executor, Explains, executors, open_executor
from rainbow.agent.executors.run import Ended, Pending, Result, Run, RunId
from rainbow.agent.work_loop import Agent

__all__ = [
    "Agent",
    "Ended",
    "Executor",
    "Explains",
    "Pending",
    "Result",
    "Run",
    "RunId",
    "executors",
    "open_executor",
]
