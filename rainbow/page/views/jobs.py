"""Jobs: listed, and one with the whole decision that placed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import yaml
from flask import redirect, request

from rainbow.errors import RainbowError, RequestError
from rainbow.jobspec.times import seconds_of
from rainbow.page.frame import guarded, page, render, service, shared, who
from rainbow.service.jobs import lifecycle, names, verbs
from rainbow.service.queries import definition, fleet, forecasts
from rainbow.service.queries import jobs as job_queries
from rainbow.store.jobs import PENDING
from rainbow.store.pages import COUNTED
from rainbow.text import rfc3339

PAGE = 25  # jobs
MOST_CLUSTERS = 50  # of a decision, unless all are asked for
MOST_TASKS = 50
MOST_TOGETHER = 200  # jobs that one form names
MOST_MATCHING = 10_000  # jobs that a filter chooses for one form
MOST_SQUARES = 2_000  # elements of an array that are drawn one by one
ROW = 50  # of them in a row
BOX, GAP, LINE = 200, 60, 52  # of a drawing of dependencies: a job's width, between two steps, from job to job
LONGEST_JOBSPEC = 20_000  # characters that are shown
FILTERS = ("state", "cluster", "requestor", "reason", "name", "account", "since", "sort")
WORDS = {"user": "requestor", **{key: key for key in FILTERS if key not in ("sort", "since")}}  # of the search box
VERBS = ("cancel", "suspend", "resume", "hold", "release")
Document = Mapping[str, Any]


def asked() -> dict[str, str]:
    """Return the filters of the address, without the empty ones."""
    return {key: value for key in FILTERS if (value := request.args.get(key, "").strip())}


@page.get("/jobs")
@guarded
@shared
def jobs() -> Any:
    """List jobs."""
    search = request.args.get("q", "").strip()[:LONGEST_SEARCH]
    if search and (one := _one(search)) is not None:
        return redirect(f"/jobs/{one}", 303)
    asks = asked() | _searched(search)
    chosen = job_queries.job_filter(who(), asks, request.args.get("cursor") or None, PAGE + 1)
    result = job_queries.listing(service(), who(), chosen)
    more = result[PAGE - 1]["id"] if len(result) > PAGE else None
    counts = {by: fleet.job_counts(service(), who(), by) for by in COUNTED}
    following = f"/jobs?{urlencode({**asks, 'cursor': more})}" if more else None
    return render(
        "jobs.html", here="jobs", jobs=result[:PAGE], counts=counts, asks=asks, following=following, search=search
    )


LONGEST_SEARCH = 300  # characters


def _one(search: str) -> str | None:
    """Return the one job that a search names, as a command would name it."""
    with service().store.read() as connection:
        rows = names.matches(connection, who(), search) if ":" not in search or search.count(":") == 1 else []
    return rows[0].job if len(rows) == 1 else None


def _searched(search: str) -> dict[str, str]:
    """Read `user:bob state:failed since:2h` and words of a name; an empty value leaves its filter open."""
    asks: dict[str, str] = {}
    for word in search.split():
        key, sign, value = word.partition(":")
        if not sign:
            asks["name"] = f"{asks['name']}*{word}*".replace("**", "*") if "name" in asks else f"*{word}*"
        elif key == "since":
            seconds = seconds_of(value, plain=3600)
            if value and seconds is None:
                raise RequestError(f"since:{value[:40]} is no duration; write since:2h", pointer="/q")
            asks |= {"since": rfc3339(service().clock() - (seconds or 0.0)) or ""} if value else {}
        elif key not in WORDS:
            raise RequestError(f"no filter is named {key[:40]}; there are: {', '.join(WORDS)}, since", pointer="/q")
        elif value:
            asks[WORDS[key]] = value
    return asks


@page.get("/jobs/<id:job_id>")
@guarded
@shared
def job(job_id: str) -> Any:
    """Show one job: the clusters that can run it, the best of them, its start and place, its output."""
    whole = names.whole_id(service(), who(), job_id)
    after = request.args.get("after", "")
    begin = int(after[:9]) if after.isdecimal() else None
    shown = job_queries.show(service(), who(), whole, begin, MOST_TASKS)
    ask = job_queries.why_verified if "verify" in request.args else job_queries.why_now
    answer = ask(service(), who(), whole)
    picture = drawn(answer["decision"], MOST_CLUSTERS if "all" not in request.args else None)
    may = _may(whole, shown["state"])
    results: dict[str, Any] = {"job": shown, "why": answer, "eta": _eta(whole), "picture": picture, "may": may}
    bad = shown.get("failed", []) if begin is None else []
    rest = [task for task in shown["tasks"] if task["id"] not in {one["id"] for one in bad}]
    results |= {"failed_first": [*bad, *rest]}
    results |= {"squares": _squares(whole, shown), "row": ROW, "submitted": _submitted(whole)}
    results |= {"relatives": _arranged(definition.relatives(service(), who(), whole)), "box": BOX}
    return render("job.html", here="jobs", watch=shown["cluster"], **results)


def _squares(whole: str, shown: Document) -> list[dict[str, Any]]:
    """Return the elements of an array to be drawn, each with its place in the drawing and its label."""
    if "array" not in shown or sum(shown["counts"].values()) > MOST_SQUARES:
        return []
    tasks = job_queries.show(service(), who(), whole, None, MOST_SQUARES)["tasks"]
    return [
        {
            "x": 14 * (place % ROW),
            "y": 14 * (place // ROW),
            "after": task["index"] - 1,
            "state": task["state"],
            "label": _label(task),
        }
        for place, task in enumerate(tasks)
    ]


def _arranged(relatives: Document) -> dict[str, Any]:
    """Give each job near one its place: a column for each step, the earliest on the left, and lines between them."""
    steps = sorted({job["step"] for job in relatives["jobs"]})
    columns = [[job for job in relatives["jobs"] if job["step"] == step] for step in steps]
    high = LINE * max(map(len, columns))
    jobs = [
        {**job, "x": (BOX + GAP) * k, "y": (high - LINE * len(column)) / 2 + LINE * row}
        for k, column in enumerate(columns)
        for row, job in enumerate(column)
    ]
    place = {job["id"]: job for job in jobs}
    lines = [
        {"x1": start["x"] + BOX, "y1": start["y"] + LINE / 2 - 4, "x2": end["x"], "y2": end["y"] + LINE / 2 - 4}
        for earlier, later, _ in relatives["edges"]
        for start, end in [(place[earlier], place[later])]
    ]
    wide = (BOX + GAP) * len(columns) - GAP
    return {"jobs": jobs, "lines": lines, "width": wide, "height": high, "more": relatives["more"]}


def _label(task: Document) -> str:
    code = f", exit code {task['exit_code']}" if task["exit_code"] else ""
    return f"element {str(task.get('element', task['index'])).rpartition('_')[2]}: {task['state'].lower()}{code}"


def _submitted(whole: str) -> str:
    """Return the jobspec as text, as much of it as a page shows."""
    document = definition.jobspec(service(), who(), whole)["jobspec"]
    text = document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return (
        text
        if len(text) <= LONGEST_JOBSPEC
        else f"{text[:LONGEST_JOBSPEC]}\n… rainbow job show --jobspec has all of it"
    )


def _eta(job_id: str) -> Document | None:
    """Return when it is expected, with its band; None if that is not for the caller."""
    try:
        return forecasts.of_job(service(), who(), job_id)
    except RainbowError:
        return None


def _may(job_id: str, state: str) -> bool:
    """Return whether the caller may change this job, if it acts."""
    if state not in PENDING:
        return False
    try:
        with service().store.read() as connection:
            lifecycle.own_job(connection, who(), job_id)
    except RainbowError:
        return False
    return True


@page.post("/ui/jobs/<id:job_id>/<any(cancel,suspend,resume,hold,release):verb>")
@guarded
def change(job_id: str, verb: str) -> Any:
    """Cancel, suspend, resume, hold or release a job."""
    verbs.change(service(), who(), verb, names.whole_job(service(), who(), job_id))
    return redirect(f"/jobs/{job_id}", 303)


@page.post("/ui/jobs")
@guarded
def change_many() -> Any:
    """Do the same to the jobs that were selected, or to all that a filter chooses, after a page that says to which.

    What one of them refuses is shown with its reason. Jobs that were submitted after the preview are left alone.
    """
    verb, ids = request.form.get("verb", ""), request.form.getlist("job")[:MOST_TOGETHER]
    if verb not in VERBS:
        raise RequestError(f"the verb must be one of {', '.join(VERBS)}", pointer="/verb")
    sure = request.form.get("sure") == "yes"
    asks = {key: text for key in (*FILTERS, "until") if (text := request.form.get(key, "").strip())}
    many = verbs.ManyJobs(service(), who(), verb, dry_run=not sure)
    if "all" in request.form:
        asks.setdefault("until", rfc3339(service().clock()) or "")
        chosen = job_queries.job_filter(who(), asks, None, 1)
        answer = many.matching(replace(chosen, states=chosen.states or sorted(PENDING)), MOST_MATCHING)
    else:
        asks, answer = {}, many.named(ids, None)
    return render("sure.html", here="jobs", verb=verb, ids=ids, asks=asks, sure=sure, answer=answer)


# ── the picture of a decision ──


def drawn(decision: Document, most: int | None) -> dict[str, Any]:
    """Arrange a decision: a row for each cluster, the chosen one first, and how many each step of it leaves."""
    selection = decision.get("selection") or {}
    ranks, drops, values = (selection.get(key) or {} for key in ("ranks", "drops", "values"))
    rows = [
        {**one, "fit": True, "rank": ranks.get(name), "drop": drops.get(name, ""), "values": values.get(name) or {}}
        for one in decision.get("candidates") or ()
        for name in [one["cluster"]]
    ]
    rows.sort(key=lambda row: (row["cluster"] != selection.get("cluster"), row["rank"] is None, row["rank"] or 0))
    refused = [{**one, "fit": False} for one in decision.get("refusals") or ()]
    undecided = [{**one, "fit": None} for one in decision.get("undecided") or ()]
    every = [*rows, *refused, *undecided]
    return {
        "rows": every[:most],
        "more": len(every) - len(every[:most]),
        "steps": _steps(len(every), len(rows), selection.get("steps") or ()),
        "chosen": selection.get("cluster"),
        "selection": selection,
    }


def _steps(registered: int, match: int, steps: Sequence[Document]) -> list[dict[str, Any]]:
    """Return how many clusters each step leaves, as a number and as a share of all."""
    refused = f"{registered - match} do not" if registered > match else ""
    rows = [(registered, "looked at", ""), (match, "match", refused)]
    rows += [
        (len(step["survivors"]), f"{step['step']} {step['argument']}", step["note"] or _dropped(step))
        for step in steps
    ]
    return [
        {"left": remaining, "part": remaining / (registered or 1), "text": text, "note": note}
        for remaining, text, note in rows
    ]


def _dropped(step: Document) -> str:
    return f"{len(step['dropped'])} dropped" if step["dropped"] else ""
