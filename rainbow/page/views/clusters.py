"""Clusters: the fleet at a glance, a list, one with its nodes, timeline, queue, shares and plan; accounts; models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from flask import jsonify, redirect, request

from rainbow.errors import Forbidden, RequestError
from rainbow.jobspec.hostlist import expand_hosts
from rainbow.page.frame import guarded, page, render, service, shared, who
from rainbow.page.words import clean, count, percent
from rainbow.service.accounts import administration
from rainbow.service.clusters import drain, inventory, scheduling_settings
from rainbow.service.queries import fleet as fleet_queries
from rainbow.service.queries import forecasts, monitoring, occupancy
from rainbow.service.queries import jobs as job_queries
from rainbow.service.scheduler import model_fits
from rainbow.state_machine import JobState

PAGE = 100  # clusters, and waiting jobs
TOP = 40  # clusters that the fleet names with their reason
SMALL = 200  # tiles, above which they are small
ROWS = 50  # bars in the table beside the picture
MOST_WORKERS = 1_000  # that one form moves
HOURS = (1, 6, 24, 168)  # windows of the timeline
BRANCHES = 500  # accounts and users
TABS = ("nodes", "timeline", "queue", "shares", "plan", "settings")
VERBS = ("drain", "offline", "reinstate")


@page.get("/fleet")
@guarded
@shared
def fleet() -> Any:
    """Show all clusters, and first those that need their operator."""
    answer = fleet_queries.summary(service(), who(), TOP)
    tiles = [_tile(one) for one in answer["tiles"]]
    series = fleet_queries.series(service(), who())
    return render("fleet.html", here="fleet", fleet=answer, tiles=tiles, small=len(tiles) > SMALL, series=series)


def _tile(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return a tile: name, address, its class, and the same in words. There may be thousands."""
    away = {"unattended": "off", "drained": "away", "deleting": "away"}
    look = "err" if one["fault"] else away.get(one["state"]) or f"u{occupancy.tenths(one['busy'])}"
    waits = f", {count(one['waiting'])} waiting" if one["waiting"] else ""
    words = f"{one['state']}, {percent(one['busy'])} in use{waits}"
    return clean(one["name"], 60), quote(one["name"], safe=""), f"{look} w" if waits else look, words


@page.get("/clusters")
@guarded
@shared
def clusters() -> Any:
    """List all clusters by name."""
    target, state = request.args.get("q", "").strip(), request.args.get("state", "")
    answer = fleet_queries.summary(service(), who(), 0)
    rows = [one for one in answer["tiles"] if target.lower() in one["name"].lower() and state in ("", one["state"])]
    first = _number("from", 0)
    more = first + PAGE if len(rows) > first + PAGE else None
    following = f"/clusters?{urlencode({'q': target, 'state': state, 'from': more})}" if more else None
    shown = {"rows": rows[first : first + PAGE], "count": len(rows), "states": answer["states"]}
    return render("clusters.html", here="clusters", **shown, following=following, q=target, state=state)


@page.get("/accounts")
@guarded
@shared
def accounts() -> Any:
    """Show the tree of accounts and users: shares, the used part of each, and the order that follows."""
    rows = [row for one in administration.listing(service(), who())["accounts"] for row in _branch(one)]
    return render("accounts.html", here="accounts", rows=rows[:BRANCHES], more=len(rows) > BRANCHES, count=len(rows))


def _branch(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an account: its own, and one for each user."""
    own = {**one, "account": one["name"], "user": "", "key": one["name"]}
    users = [{**u, "account": one["name"], "depth": one["depth"], "budget": None} for u in one["users"]]
    return [own, *({**user, "key": f"{user['account']}/{user['user']}"} for user in users)]


def _number(key: str, default: int, most: int = 10**9) -> int:
    text = request.args.get(key, "")
    return min(most, int(text[:9])) if text.isdecimal() else default


@page.get("/clusters/<name>")
@guarded
@shared
def cluster(name: str) -> Any:
    """Show one cluster: one of its tabs."""
    tab = request.args.get("tab", "nodes")
    if tab not in TABS:
        raise RequestError(f"unknown tab {tab[:40]}; expected one of {', '.join(TABS)}", pointer="/tab")
    shown = inventory.show(service(), who(), name)
    return render(
        "cluster.html",
        here="clusters",
        watch=name,
        cluster=shown,
        name=name,
        tab=tab,
        tabs=TABS,
        owns=_owns(name),
        series=fleet_queries.series(service(), who(), name),
        **_PARTS[tab](name),
    )


def _owns(name: str) -> bool:
    entry = service().catalogue.get(name)
    return entry is not None and (who().admin or entry.id in who().secrets)


def _nodes(name: str) -> dict[str, Any]:
    answer = occupancy.occupancy(service(), who(), name)
    chosen = request.args.get("worker")
    one = occupancy.worker(service(), who(), name, chosen) if chosen else None
    return {"map": answer, "away": occupancy.rows(service(), who(), name), "one": one}


def _timeline(name: str) -> dict[str, Any]:
    hours, now = _number("hours", 1, 24 * 7) or 1, service().clock()
    begin, end = now - 3600 * hours, now + 900 * hours
    answer = occupancy.bars(service(), who(), name, begin, end, ROWS)
    newest = [_row(answer, at) for at in range(min(ROWS, len(answer["job"])))]
    return {"hours": hours, "windows": HOURS, "bars": answer, "newest": newest, "begin": begin, "end": end}


def _row(answer: Mapping[str, Any], at: int) -> dict[str, Any]:
    job, name = answer["jobs"][answer["job"][at]]
    return {
        "job": job,
        "name": name,
        "user": answer["users"][answer["user"][at]],
        "worker": answer["lanes"][answer["lane"][at]],
        "start": answer["start"][at],
        "end": answer["end"][at],
        "kind": answer["kind"][at],
    }


def _queue(name: str) -> dict[str, Any]:
    query = {"state": JobState.WAITING, "cluster": name, "sort": "oldest"}
    chosen = job_queries.job_filter(who(), query, request.args.get("cursor") or None, PAGE + 1)
    result = job_queries.listing(service(), who(), chosen)
    more = result[PAGE - 1]["id"] if len(result) > PAGE else None
    following = f"/clusters/{quote(name, safe='')}?tab=queue&cursor={more}" if more else None
    return {"jobs": result[:PAGE], "following": following}


def _shares(name: str) -> dict[str, Any]:
    answer = monitoring.show(service(), who(), name)
    figures = answer["figures"]
    classes = figures.get("classes", {})
    plain = {key: value for key, value in figures.items() if isinstance(value, (int, float, str))}
    pools = {key: figures[key] for key in ("nodepools", "orders") if figures.get(key)}
    return {
        "told": answer,
        "classes": classes if isinstance(classes, Mapping) else {},
        "plain": plain,
        "pools": pools,
    }


def _plan(name: str) -> dict[str, Any]:
    answer = monitoring.plan(service(), who(), name)
    return {"plan": answer, "ahead": forecasts.of_cluster(service(), who(), name, PAGE, None)}


def _settings(name: str) -> dict[str, Any]:
    answer = monitoring.show(service(), who(), name)
    rows = scheduling_settings.changed(service(), who(), name)
    switched = {one["changed_at"] for one in rows if one["what"] == "policy"}
    own = [one for one in rows if one["what"] == "policy" or one["changed_at"] not in switched]
    return {"told": answer, "changes": own[:PAGE]}  # a new policy's settings are all its own: it is one row


_PARTS = {
    "nodes": _nodes,
    "timeline": _timeline,
    "queue": _queue,
    "shares": _shares,
    "plan": _plan,
    "settings": _settings,
}


@page.get("/clusters/<name>/map")
@guarded
@shared
def cluster_map(name: str) -> Any:
    """Return the data of the map of nodes."""
    answer = jsonify(occupancy.occupancy(service(), who(), name))
    answer.add_etag()
    answer.headers["Cache-Control"] = "private, no-cache"
    return answer.make_conditional(request)


@page.get("/clusters/<name>/bars")
@guarded
@shared
def cluster_bars(name: str) -> Any:
    """Return the data of the timeline."""
    hours, now = _number("hours", 1, 24 * 7) or 1, service().clock()
    reported = occupancy.bars(service(), who(), name, now - 3600 * hours, now + 900 * hours, 10_000)
    reported["users"], reported["lanes"] = ([clean(one, 60) for one in reported[key]] for key in ("users", "lanes"))
    reported["jobs"] = [[job, clean(text, 60)] for job, text in reported["jobs"]]
    for one in reported["planned"]:
        one |= {key: clean(one[key], 60) for key in ("name", "requestor")}
    answer = jsonify(reported)
    answer.headers["Cache-Control"] = "no-store"
    return answer


# ── drain, with a preview ──


@page.get("/clusters/<name>/drain")
@guarded
def preview(name: str) -> Any:
    """Show the effect of taking workers away, before it is done."""
    verb, text = request.args.get("verb", "drain"), request.args.get("workers", "").strip()
    if not _owns(name):
        raise Forbidden(f"the secret of cluster {name[:100]} is required")
    answer = occupancy.preview(service(), who(), name, _named(text)) if text else None
    return render("drain.html", here="clusters", name=name, verb=_verb(verb), workers=text, told=answer)


def _verb(verb: str) -> str:
    if verb not in VERBS:
        raise RequestError(f"the verb must be one of {', '.join(VERBS)}", pointer="/verb")
    return verb


def _named(text: str) -> list[str]:
    result = expand_hosts(text, MOST_WORKERS)
    if not result:
        raise RequestError(f"workers must be a hostlist of at most {MOST_WORKERS} workers", pointer="/workers")
    return result


@page.post("/ui/clusters/<name>/<any(drain,offline,reinstate):verb>")
@guarded
def move(name: str, verb: str) -> Any:
    """Put workers away, or bring them back; without workers the whole cluster."""
    text = request.form.get("workers", "").strip()
    if text:
        for worker in _named(text):
            drain.move(service(), who(), name, worker, verb)
    elif verb in ("drain", "reinstate"):
        drain.move_cluster(service(), who(), name, verb)
    else:
        raise RequestError("offline needs workers; a whole cluster is drained", pointer="/verb")
    return redirect(f"/clusters/{quote(name, safe='')}", 303)


# ── models of run times ──

WIDTH, HEIGHT, EDGE = 640, 240, 24
MOST = 50  # groups


@page.get("/models")
@guarded
def models() -> Any:
    """Show the model of each group of finished runs, the largest groups first."""
    results = sorted(model_fits.listing(service(), who(), None), key=lambda one: (-one["runs"], one["group"]))
    shown = [{**one, "drawn": _drawn(one) if one["used"] else None} for one in results[:MOST]]
    return render("models.html", here="models", models=shown)


def _drawn(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a plot has its points, its line and its band."""
    low, high = one["lowest"], one["highest"]
    ends = [(value, one["slope"] * value + one["intercept"]) for value in (low, high)]
    top = max(*(seconds for _, seconds in one["points"]), *(seconds + one["above"] for _, seconds in ends))

    def at(value: float, seconds: float) -> tuple[float, float]:
        across = EDGE + (value - low) / ((high - low) or 1) * (WIDTH - 2 * EDGE)
        return round(across, 1), round(HEIGHT - EDGE - max(0.0, seconds) / (top or 1) * (HEIGHT - 2 * EDGE), 1)

    above = [at(value, seconds + one["above"]) for value, seconds in ends]
    below = [at(value, seconds + one["below"]) for value, seconds in reversed(ends)]
    return {
        "points": [at(*point) for point in one["points"]],
        "line": _joined(at(*end) for end in ends),
        "band": _joined([*above, *below]),
        "top": top,
    }


def _joined(places: Any) -> str:
    return " ".join(f"{x},{y}" for x, y in places)
