"""The agent's verbs of /v1/clusters/{name}: docs/reference-agent.md."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, jsonify

from rainbow.api.asking import number_of, read_mapping, service, who
from rainbow.api.parking import park, waited
from rainbow.service.agents import receiving

agents = Blueprint("agents", __name__, url_prefix="/v1/clusters/<name>")


@agents.post("/receive")
def receive(name: str) -> Any:
    """Offer tasks, waiting for some if there are none."""
    asking, body, agent = _message("Receive")
    limits = service().settings.limits
    most = int(number_of(body, "max", 16, limits.offers))
    seconds = number_of(body, "wait", 0, limits.wait)
    before = waited()
    if before is None:
        return jsonify(receiving.receive(service(), asking, name, agent, most, seconds))
    found, pause = receiving.look(service(), asking, name, agent, most, seconds - before)
    park(pause)
    return jsonify(found)


@agents.post("/accept")
def accept(name: str) -> Any:
    """Give offered tasks to the agent."""
    asking, body, agent = _message("Accept")
    return jsonify(receiving.accept(service(), asking, name, agent, body["tasks"], body.get("seq", 0)))


@agents.post("/events")
def events(name: str) -> Any:
    """Store what happened to tasks."""
    asking, body, agent = _message("Events")
    return jsonify(receiving.record_events(service(), asking, name, agent, body["events"], body.get("seq", 0)))


@agents.post("/heartbeat")
def heartbeat(name: str) -> Any:
    """Note that the agent lives."""
    asking, body, agent = _message("Heartbeat")
    keeps = body.get("on_lost_server") == "keep"
    up, running, seq = body.get("workers"), body.get("running", []), body.get("seq", 0)
    return jsonify(
        receiving.heartbeat(service(), asking, name, agent, up, running, seq, body.get("load"), keeps=keeps)
    )


def _message(form: str) -> tuple[Any, dict[str, Any], str]:
    asking = who()
    body = read_mapping(form)
    return asking, body, body["agent"]
