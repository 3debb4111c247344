"""What is done to jobs, and how calls name one: an id or its beginning, an element, a name, `last`, SITE:N."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from rainbow.client.transport import path
from rainbow.job_names import not_one

if TYPE_CHECKING:
    from rainbow.client.transport import Calls

IN_PATH = re.compile(r"(?!\.{1,2}$)[^/:]+(:\d+)?")  # the names of jobs that a path can hold


class JobVerbs:
    """The methods of a client that find a job by a text, and that change jobs."""

    _calls: Calls

    def find_jobs(self, job: str) -> list[dict[str, Any]]:
        """Return the jobs that a text names, the newest first: of several, no verb acts on any."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", "/v1/jobs:find", query={"job": job})["jobs"])

    def find_job(self, job: str) -> dict[str, Any]:
        """Return the one job that a text names; NotFound if none or several are."""
        found = self.find_jobs(job)
        if len(found) != 1:
            raise not_one(job, found)
        return found[0]

    def _job(self, job: str, *below: str) -> str:
        """Return the path of a job; a name that no path can hold, as one with a slash, is looked up first."""
        if isinstance(job, str) and job and not IN_PATH.fullmatch(job):
            job = self.find_job(job)["id"]
        return path("jobs", job, *below)

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job. Of one with very many tasks the last ones may still be canceled after this."""
        return self._changed("DELETE", self._job(job_id))

    def suspend(self, job_id: str) -> dict[str, Any]:
        """Hold a job: what runs is stopped in place, what waits does not start."""
        return self._changed("POST", self._job(job_id) + ":suspend")

    def resume(self, job_id: str) -> dict[str, Any]:
        """Resume a suspended job."""
        return self._changed("POST", self._job(job_id) + ":resume")

    def _changed(self, method: str, address: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self._calls.call(method, address))
