"""Signing in, signing out, and leave to act."""

from __future__ import annotations

import re
import threading
from typing import Any

from flask import redirect, request

from rainbow.cache import LruCache
from rainbow.errors import Forbidden, TooMany, Unauthenticated
from rainbow.page.frame import (
    check_origin,
    cookie_name,
    guarded,
    is_private,
    looks,
    page,
    render,
    service,
    session,
    with_cookie,
)
from rainbow.service.core import sessions
from rainbow.service.core.memory import place

TRIES, WITHIN = 10, 60.0  # failed logins from one address in so many seconds
INSECURE = "sign in by https, or on the server's own machine: for example ssh -L 8080:127.0.0.1:8080 SERVER"


@place("failed-logins", most="10,000 addresses", of="when logins from an address have failed")
class Failures:
    """When logins from each address have failed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: LruCache[str, list[float]] = LruCache(10_000)

    def check(self, address: str, now: float) -> None:
        """Raise TooMany if too many have failed just now."""
        if len(self._recent(address, now)) >= TRIES:
            raise TooMany("too many failed logins from your address", retry_after=int(WITHIN), limit="logins")

    def note(self, address: str, now: float) -> None:
        """Note one more."""
        with self._lock:
            self._at.put(address, [*self._recent(address, now), now])

    def _recent(self, address: str, now: float) -> list[float]:
        return [at for at in self._at.get(address) or [] if at > now - WITHIN]


def local(path: str | None) -> str:
    """Return where to go after the login: a path of this server, never another site's.

    >>> local("/jobs?state=WAITING"), local("//evil.example"), local("https://evil.example"), local(None)
    ('/jobs?state=WAITING', '/fleet', '/fleet', '/fleet')
    """
    return path if path and re.fullmatch(r"/(?![/\\])[^\\\s]*", path) else "/fleet"


@page.get("/login")
def login() -> Any:
    """Ask for tokens."""
    return render(
        "login.html", next=local(request.args.get("next")), fault="", refused="" if is_private() else INSECURE
    )


@page.post("/login")
def sign_in() -> Any:
    """Open a session under a new cookie."""
    check_origin()
    if not is_private():
        raise Forbidden(INSECURE)
    failures, address, now = service().state(Failures), request.remote_addr or "", service().monotonic()
    failures.check(address, now)
    to = local(request.form.get("next"))
    try:
        made = sessions.begin(service(), request.form.get("tokens", "").split(), acts="acts" in request.form)
    except Unauthenticated as fault:
        failures.note(address, now)
        return render("login.html", 401, next=to, fault=fault.message, refused="")
    before = request.cookies.get(cookie_name())
    if before:
        sessions.end(service(), before)
    return with_cookie(redirect(to, 303), made.cookie)  # type: ignore[arg-type]  # a Flask response in fact


@page.post("/logout")
@guarded
@looks
def logout() -> Any:
    """End the session."""
    sessions.end(service(), session().cookie)
    return with_cookie(redirect("/login", 303), "")  # type: ignore[arg-type]


@page.post("/ui/act")
@guarded
@looks
def act() -> Any:
    """Let the session change things for an hour, under a new cookie."""
    failures, address, now = service().state(Failures), request.remote_addr or "", service().monotonic()
    failures.check(address, now)
    try:
        made = sessions.act(service(), session(), request.form.get("token", "").strip())
    except Unauthenticated:
        failures.note(address, now)
        raise
    return with_cookie(redirect(local(request.form.get("next")), 303), made.cookie)  # type: ignore[arg-type]
