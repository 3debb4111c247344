"""Runs at a cluster: takes the tasks started for it, runs them through an executor, reports how they end."""

from rainbow.agent import kept, optional  # noqa: F401 - they register the executors
from rainbow.agent.executor import Ended, Executor, Result, Run, RunId, executors, open_executor
from rainbow.agent.loop import Agent

__all__ = ["Agent", "Ended", "Executor", "Result", "Run", "RunId", "executors", "open_executor"]
