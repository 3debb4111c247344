"""The agent's verbs of /v1/clusters/{name}: docs/reference-agent.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, jsonify

from rainbow.api.asking import list_of, number_of, read_mapping, service, who
from rainbow.errors import RequestError
from rainbow.service import receiving

agents = Blueprint("agents", __name__, url_prefix="/v1/clusters/<name>")
RESULTS = ("exited", "timed_out", "stopped", "failed")


@agents.post("/receive")
def receive(name: str) -> Any:
    """Offer tasks, waiting for some if there are none."""
    asking, body, agent = _message()
    limits = service().settings.limits
    most = int(number_of(body, "max", 16, limits.offers))
    return jsonify(receiving.receive(service(), asking, name, agent, most, number_of(body, "wait", 0, limits.wait)))


@agents.post("/accept")
def accept(name: str) -> Any:
    """Give offered tasks to the agent."""
    asking, body, agent = _message()
    return jsonify(receiving.accept(service(), asking, name, agent, list_of(body, "tasks"), _seq(body)))


@agents.post("/events")
def events(name: str) -> Any:
    """Store what happened to tasks."""
    asking, body, agent = _message()
    told = list_of(body, "events")
    for k, event in enumerate(told):
        _check_event(event, f"/events/{k}")
    return jsonify(receiving.record_events(service(), asking, name, agent, told, _seq(body)))


@agents.post("/heartbeat")
def heartbeat(name: str) -> Any:
    """Note that the agent lives."""
    asking, body, agent = _message()
    up = body.get("workers")
    if up is not None and not (isinstance(up, list) and all(isinstance(worker, str) for worker in up)):
        raise RequestError("workers is a list of names, or null for all", pointer="/workers")
    running = list_of(body, "running")
    return jsonify(receiving.heartbeat(service(), asking, name, agent, up, running, _seq(body)))


def _message() -> tuple[Any, dict[str, Any], str]:
    asking = who()
    body = read_mapping()
    agent = body.get("agent")
    if not isinstance(agent, str) or not 0 < len(agent) <= 200:
        raise RequestError("agent is a text of 1 to 200 characters", pointer="/agent")
    return asking, body, agent


def _seq(body: Mapping[str, Any]) -> int:
    """Return the message's number among those of its agent, 0 where it has none."""
    given = body.get("seq", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**53:
        raise RequestError("seq is a whole number from 0 to 2^53", pointer="/seq")
    return given


def _check_event(event: Any, pointer: str) -> None:
    if not isinstance(event, Mapping) or event.get("event") not in ("started", "ended"):
        raise RequestError("an event is started or ended", pointer=pointer)
    if event["event"] == "ended" and event.get("result", "exited") not in RESULTS:
        raise RequestError(f"a result is one of {', '.join(RESULTS)}", pointer=f"{pointer}/result")
    code = event.get("exit_code")
    if code is not None and (isinstance(code, bool) or not isinstance(code, int) or abs(code) >= 2**31):
        raise RequestError("exit_code is a whole number", pointer=f"{pointer}/exit_code")
