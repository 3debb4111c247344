"""The Flask application: every view decodes, authenticates, calls one verb of the service and encodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask
from werkzeug.routing import BaseConverter

from rainbow.api import problems
from rainbow.api.agents import agents
from rainbow.api.batch import batch
from rainbow.api.clusters import clusters
from rainbow.api.config import config
from rainbow.api.events import events
from rainbow.api.health import health
from rainbow.api.jobs import jobs
from rainbow.api.metrics import metrics
from rainbow.api.openapi import openapi
from rainbow.api.pace import pace
from rainbow.api.queries import refuse_unknown_queries
from rainbow.api.reservations import reservations
from rainbow.api.tokens import tokens

if TYPE_CHECKING:
    from rainbow.service import Service


class _Id(BaseConverter):
    """An id: without a colon, so that what stands after one is a verb."""

    regex = "[^/:]+"


def create_app(service: Service) -> Flask:
    """Make the application that serves one service."""
    app = Flask("rainbow", static_folder=None)
    app.extensions["rainbow"] = service
    app.json.sort_keys = False  # type: ignore[attr-defined]  # typed as any provider, ours is the default one
    app.url_map.converters["id"] = _Id
    problems.install(app)
    pace(app)
    refuse_unknown_queries(app)
    for blueprint in (clusters, jobs, batch, agents, tokens, reservations, config, events, metrics, openapi, health):
        app.register_blueprint(blueprint)
    return app
