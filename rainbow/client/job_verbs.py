"""Verbs for jobs, and the texts that name one: an id or its beginning, an element, a name, `last`, SITE:N."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rainbow.client.transport import given, path
from rainbow.job_names import not_one

if TYPE_CHECKING:
    from rainbow.client.transport import Calls

MANY_SECONDS = 600.0  # that a change of many jobs may take
IN_PATH = re.compile(r"(?!\.{1,2}$)[^/:]+(:\d+)?")  # the names of jobs that a path can hold


class JobVerbs:
    """The methods of a client that find a job by a text, show its submitted form, and change jobs."""

    _calls: Calls

    def find_jobs(self, job: str) -> list[dict[str, Any]]:
        """Return the jobs that a text names, the newest first: of several, no verb acts on any."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", "/v1/jobs:find", query={"job": job})["jobs"])

    def find_job(self, job: str) -> dict[str, Any]:
        """Return the one job that a text names; NotFound if none or several are."""
        results = self.find_jobs(job)
        if len(results) != 1:
            raise not_one(job, results)
        return results[0]

    def _job(self, job: str, *below: str) -> str:
        """Return the path of a job; a name that no path can hold, as one with a slash, is looked up first."""
        if isinstance(job, str) and job and not IN_PATH.fullmatch(job):
            job = self.find_job(job)["id"]
        return path("jobs", job, *below)

    def jobspec(self, job_id: str) -> dict[str, Any]:
        """Return the jobspec as it was submitted: {"jobspec": text or mapping, "environment_hidden"}."""
        return self._answered("GET", self._job(job_id, "jobspec"))

    def script(self, job_id: str) -> dict[str, Any]:
        """Show the batch script of a job: {"script", "environment_hidden"}; NotFound if it has none."""
        return self._answered("GET", self._job(job_id, "script"))

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job. Of one with very many tasks the last ones may still be canceled after this."""
        return self._answered("DELETE", self._job(job_id))

    def suspend(self, job_id: str) -> dict[str, Any]:
        """Suspend the running tasks of a job in place, and start no more of it."""
        return self._answered("POST", self._job(job_id) + ":suspend")

    def resume(self, job_id: str) -> dict[str, Any]:
        """Resume a suspended job."""
        return self._answered("POST", self._job(job_id) + ":resume")

    def hold(self, job_id: str) -> dict[str, Any]:
        """Start no more tasks of a job; running ones continue."""
        return self._answered("POST", self._job(job_id) + ":hold")

    def release(self, job_id: str) -> dict[str, Any]:
        """Let a held job start."""
        return self._answered("POST", self._job(job_id) + ":release")

    def requeue(self, job_id: str) -> dict[str, Any]:
        """Stop the running tasks of a job, and let it wait to start again."""
        return self._answered("POST", self._job(job_id) + ":requeue")

    def update(self, job_id: str, **changes: Any) -> dict[str, Any]:
        """Change `time_limit` (seconds), `nodes`, `without`, `cluster`, `priority`, `name`; `held=True` holds it."""
        return cast("dict[str, Any]", self._calls.call("PATCH", self._job(job_id), given(**changes)))

    def change_many(
        self,
        verb: str,
        jobs: Sequence[str] | None = None,
        *,
        where: Mapping[str, str | Sequence[str]] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Cancel, suspend, resume, hold, release or requeue many jobs: {"done", "refused": [{job, code, text}]}.

        `where` has filters of the list; without `user` it chooses one's own jobs. It may be said again. `dry_run`
        changes nothing: {"jobs"} are those that would be changed.
        """
        body = given(jobs=None if jobs is None else list(jobs), where=where, limit=limit, dry_run=dry_run or None)
        address = f"/v1/jobs:{verb}"
        return cast("dict[str, Any]", self._calls.call("POST", address, body, patience=MANY_SECONDS))

    def _answered(self, method: str, address: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self._calls.call(method, address))
