"""Tokens, accounts, configuration, health and metrics."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from flask import Blueprint, Response, jsonify, redirect, request

from rainbow import __version__
from rainbow.accounts.usage import DAY
from rainbow.api.wire import QUERIES, count_in_query, flag, login, once, read_mapping, service, timed, who
from rainbow.errors import Forbidden, RequestError, Unavailable
from rainbow.service.accounts import administration as account_verbs
from rainbow.service.clusters import tokens as verbs
from rainbow.service.core import access
from rainbow.service.core import reload as core_reload
from rainbow.service.core.counters import exposition
from rainbow.service.core.readiness import Readiness
from rainbow.service.core.threads import Threads
from rainbow.service.jobs.run_models import GROUP, VARIABLE
from rainbow.service.queries import audit as audit_queries
from rainbow.service.queries.jobs import moment
from rainbow.service.queries.monitoring import gauges
from rainbow.service.queries.monitoring import metrics as of_clusters
from rainbow.service.scheduler import model_fits
from rainbow.store import clusters
from rainbow.store.migrations.upgrade import newest

config = Blueprint("config", __name__, url_prefix="/v1")


@config.post("/config:reload")
def reload() -> Any:
    """Read the server's configuration file again.

    The answer lists what `changed`, what `needs_restart`, and `warnings`. A file that cannot be used changes
    nothing: 422 with pointer, line and column. 409 if the server has no file. Needs the admin token.
    """
    return jsonify(core_reload.reload(service(), who()))


@config.get("/config/memory")
def memory() -> Any:
    """List the tables in this server's memory by name: size, limit, and the reason it is correct.

    `kind` is table (values that may be forgotten at any time, with `hits` and `misses`), picture (of the store) or
    place (where the server's own work has got to). Needs the admin token.
    """
    return jsonify(memory=core_reload.memory(service(), who()))


@config.get("/version")
def version() -> Any:
    """Show the server's version, the versions of the API that it speaks, and the schema of its store."""
    who()
    return jsonify(server=__version__, api=["v1"], schema=newest())


@config.get("/audit")
def audit() -> Any:
    """List changes with the caller that made them, the newest first, in pages.

    The administrator sees all, an owner what concerns their clusters. `since` and `until` are times as
    2030-01-31T12:00:00Z; `job` is a job's number, id or name. Kept as long as ended jobs are (`scheduler.history`).
    """
    query, most = request.args, service().settings.limits.listed
    limit = count_in_query("limit", min(100, most), most)
    since, until = moment(query, "since"), moment(query, "until")
    chosen = {key: query.get(key) for key in ("job", "credential", "cursor")}
    result, following = audit_queries.listing(
        service(), who(), **chosen, since=since, until=until, limit=limit, login=login()
    )
    return jsonify(audit=timed(result), next=following)


@config.get("/models")
def models() -> Any:
    """Fit linear models of run times to finished runs, and list them by group, those that are not used with why.

    `group` names what makes runs alike: name, requestor, parameter.KEY, several with commas; `by` the variable: one
    of the cluster's state, or parameter.KEY; `since` the first day. Needs the admin token.
    """
    arguments = request.args
    keys = arguments["group"].split(",") if "group" in arguments else GROUP
    for key in {"group", "by"} & arguments.keys():
        if not re.fullmatch(QUERIES["config.models"][key]["pattern"], arguments[key]):
            raise RequestError(f"{key} does not name what a model can be of", pointer=f"/{key}")
    day = arguments.get("since")
    since = account_verbs.day_of(day, "/since") * DAY if day is not None else None
    result = model_fits.listing(service(), who(), since, keys, arguments.get("by", VARIABLE))
    return jsonify(models=result)


credentials = Blueprint("credentials", __name__, url_prefix="/v1")


@credentials.get("/credentials:known")
def known() -> Any:
    """Say which credentials are known here, by their SHA-256: a router sends a server no others.

    `digests` are separated by commas. With the digest of a registration secret, `taken` says whether there is a
    `cluster` of this name.
    """
    query, name = request.args.get("digests", "").split(","), request.args.get("cluster")
    with service().store.look() as connection:
        result = access.known_of(service(), connection, list(filter(DIGEST.fullmatch, query)))
        answer = name is not None and access.registers(service(), result)
        taken = {"taken": clusters.find(connection, str(name)) is not None} if answer else {}
    return jsonify(known=result, **taken)


DIGEST = re.compile(r"[0-9a-f]{64}")

health = Blueprint("health", __name__)
KINDS = ("application/json", "text/html")  # of what `/` answers, the first if both will do


@health.get("/livez")
def live() -> Any:
    """Return 200 while the process answers."""
    return jsonify(status="live")


@health.get("/readyz")
def ready() -> Any:
    """Return 200 while the process answers, its database stores, and the threads that requests need run."""
    service().state(Readiness).check(service().store, service().monotonic)
    if down := service().state(Threads).down():
        raise Unavailable(f"thread {', '.join(down)} of the server has failed and starts again; see its log")
    return jsonify(status="ready", scheduler=service().settings.name)


@health.get("/")
def front() -> Any:
    """Return the name, the version and where to continue; a browser is sent to the page."""
    if service().settings.server.page and request.accept_mimetypes.best_match(KINDS) == "text/html":
        return redirect("/fleet", 303)
    verbs = ["/v1/clusters", "/v1/jobs", "/v1/match", "/livez", "/readyz", "/metrics"]
    return jsonify(service="rainbow", scheduler=service().settings.name, verbs=verbs)


metrics = Blueprint("metrics", __name__)


@metrics.get("/metrics")
def show() -> Any:
    """Show the metrics for Prometheus.

    Needs the admin token or a monitor token, unless `server.metrics` is everybody. Metrics of a cluster's scheduling
    are those of its last cycle, or of one of the 20 plans that a request makes. `brief=true` leaves them out.
    """
    _check_reader()
    figures = () if flag("brief") else of_clusters(service())
    return Response(exposition(gauges(service()), figures), mimetype="text/plain; version=0.0.4")


def _check_reader() -> None:
    """Refuse a caller without a credential for it: a proxy in front makes every address the loopback's."""
    if service().settings.server.metrics != "everybody" and not who().monitors:
        raise Forbidden("admin or monitor token required (rainbow token mint --monitor)")


tokens = Blueprint("tokens", __name__, url_prefix="/v1/tokens")


@tokens.post("")
def mint() -> Any:
    """Create a submit token or a monitor token; its value is shown once."""
    return once(partial(verbs.mint_token, service()), 201, partial(read_mapping, "Token"), timed)


@tokens.get("")
def listing() -> Any:
    """List the credentials of the caller's own clusters, without their values."""
    return jsonify(tokens=timed(verbs.listing(service(), who())))


@tokens.post("/<id:token_id>:rotate")
def rotate(token_id: str) -> Any:
    """Replace a credential's value, shown once; the old value expires now.

    Works for a cluster's secret, too.
    """
    return once(lambda asking, _, call: verbs.rotate(service(), asking, token_id, call), write=timed)


@tokens.delete("/<id:token_id>")
def revoke(token_id: str) -> Any:
    """Revoke a credential now."""
    verbs.revoke(service(), who(), token_id)
    return "", 204


accounts = Blueprint("accounts", __name__, url_prefix="/v1")


@accounts.get("/accounts", endpoint="listing")
def list_accounts() -> Any:
    """List the accounts in the order of the tree, with shares, usage and factors."""
    return jsonify(account_verbs.listing(service(), who()))


@accounts.get("/accounts/<id:account>", endpoint="show")
def show_account(account: str) -> Any:
    """Show an account with its users, limits, budget and standing."""
    return jsonify(account_verbs.show(service(), who(), account))


@accounts.put("/accounts/<id:account>", endpoint="put")
def put_account(account: str) -> Any:
    """Create an account, or change the fields of the body; a user that is null leaves it. Of root: the rules."""
    asking = who()
    return jsonify(account_verbs.put(service(), asking, account, read_mapping("Account")))


@accounts.delete("/accounts/<id:account>", endpoint="delete")
def delete_account(account: str) -> Any:
    """Delete an account without active jobs and without accounts below it."""
    account_verbs.delete(service(), who(), account)
    return "", 204


@accounts.get("/qos", endpoint="qos")
def list_qos() -> Any:
    """List the qualities of service: priority, limits, exemptions, users, and preempted ones."""
    return jsonify(qos=account_verbs.list_qos(service(), who()))


@accounts.put("/qos/<id:qos>", endpoint="put_qos")
def put_qos(qos: str) -> Any:
    """Create a quality of service, or change the fields of the body."""
    asking = who()
    return jsonify(account_verbs.put_qos(service(), asking, qos, read_mapping("Qos")))


@accounts.delete("/qos/<id:qos>", endpoint="delete_qos")
def delete_qos(qos: str) -> Any:
    """Delete a quality of service that no active job has."""
    account_verbs.delete_qos(service(), who(), qos)
    return "", 204


@accounts.get("/usage")
def usage() -> Any:
    """Sum usage by account, user, cluster or day, in hours of each type; with csv=true as CSV."""
    arguments, as_csv = request.args, flag("csv")
    result = account_verbs.usage(
        service(), who(), arguments.get("by"), arguments.get("since"), arguments.get("until")
    )
    return Response(account_verbs.csv_of(result), mimetype="text/csv") if as_csv else jsonify(result)
