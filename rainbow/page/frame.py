"""The guard around every page: the session, forms, headers and faults; and a page made from its template.

Nothing comes from elsewhere, and nothing is inline: the policy of HEADERS forbids both. Whoever is signed in looks
only, until a token is entered again. A cookie of the page opens nothing under /v1.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode, urlsplit

from flask import Blueprint, Response, current_app, g, redirect, render_template, request

from rainbow.cache import LruCache
from rainbow.errors import Forbidden, Unauthenticated
from rainbow.service.core import sessions
from rainbow.service.core.memory import picture
from rainbow.service.core.pubsub import ALL
from rainbow.service.core.sessions import Session
from rainbow.write_queue import WRITER, Writer

if TYPE_CHECKING:
    from rainbow.service import Service
    from rainbow.service.core.access import Caller

HERE = Path(__file__).parent
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SAFE = ("GET", "HEAD")
LOOPBACK = ("127.", "::1", "::ffff:127.")
SMALL = 1_024  # bytes of an answer that is not compressed
TOKEN_PLACE = "@form-token@"  # noqa: S105 - in a page that is made; each answer has a token of its own there
LIVE = "X-Live"  # a request with it follows what it shows, and asks again and again
SHARE = 0.02  # of a core that all who follow may take together
AHEAD = 5.0  # seconds of that share which may be used at once
EACH = 0.01  # of a core that making one answer again and again may take, as long as it is asked for
LASTS = 8.0  # seconds that an answer is used beside news at most: those who follow ask again after 10 s
STALE = 15.0  # seconds after which an answer is made again, news or not
COPIES = 200  # answers that are kept
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

page = Blueprint("page", __name__, template_folder="templates")
View = Callable[..., Any]


def service() -> Service:
    """Return the service this app serves."""
    return cast("Service", current_app.extensions["rainbow"])


def who() -> Caller:
    """Return the user that is signed in."""
    return session().caller


def session() -> Session:
    """Return the session of this request."""
    return cast("Session", g.session)


# ── which requests are let in ──


def guarded(view: View) -> View:
    """Serve a view to signed-in users; send others to the login page."""

    @wraps(view)
    def called(**parts: Any) -> Any:
        g.news = service().news.stamp()  # before anything is read: what comes later is news to this page
        result = sessions.find(service(), request.cookies.get(cookie_name(), ""))
        if result is None:
            if request.method in SAFE and not request.path.startswith("/ui/"):
                return redirect(f"/login?{urlencode({'next': request.full_path.rstrip('?')})}", 303)
            raise Unauthenticated("you are not signed in, or your session has ended; sign in again")
        g.session = result
        WRITER.set(Writer(result.caller.known[0]))  # what is written for this request is theirs
        if request.method not in SAFE:
            check_form()
            if not getattr(view, "looks_only", False) and not result.acts:
                raise Forbidden("this session is read-only; enter your token again to change something")
        return view(**parts)

    return called


def looks(view: View) -> View:
    """Mark a view whose POST changes only the session: read-only sessions may send it."""
    view.looks_only = True  # type: ignore[attr-defined]
    return view


def check_form() -> None:
    """Refuse a form that did not come from a page of this session."""
    check_origin()
    brought = request.form.get("form", "") or request.headers.get("X-Form", "")
    mask, _, sealed = brought.partition(".")
    if not mask or not hmac.compare_digest(sealed, _sealed(mask)):
        raise Forbidden("this form is not from a page of your session; reload the page and send it again")


def check_origin() -> None:
    """Refuse requests from another site."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site not in (None, "same-origin") or (origin is not None and urlsplit(origin).netloc != request.host):
        raise Forbidden("this form was sent from another site")


def form_token() -> str:
    """Return the token of forms: masked in each answer, so that compression reveals nothing."""
    mask = secrets.token_hex(8)
    return f"{mask}.{_sealed(mask)}"


def _sealed(mask: str) -> str:
    return hmac.new(session().form_token.encode(), mask.encode(), hashlib.sha256).hexdigest()


def is_private() -> bool:
    """Return whether the connection is private: TLS, here or at a proxy beside us, or the loopback."""
    return _is_tls() or (request.remote_addr or "").startswith(LOOPBACK)


def _is_tls() -> bool:
    return request.scheme == "https" or request.headers.get("X-Forwarded-Proto") == "https"


def cookie_name() -> str:
    """Return the cookie's name; the prefix lets browsers take it by TLS and from this host alone."""
    return "__Host-rainbow" if _is_tls() else "rainbow"


def with_cookie(answer: Response, value: str) -> Response:
    """Set the session's cookie, or delete it if the value is empty."""
    stored: dict[str, Any] = {"secure": _is_tls(), "httponly": True, "samesite": "Strict", "path": "/"}
    if value:
        answer.set_cookie(cookie_name(), value, max_age=int(sessions.LONGEST), **stored)
    else:
        answer.set_cookie(cookie_name(), "", expires=0, **stored)
    return answer


# ── those who follow ──


@picture("pages", most=f"{COPIES} answers", true="used until the next news, or as long as making one took, 20 times")
class Copies(LruCache[Any, tuple[int, float, float, Response]]):
    """Answers shared by the followers of a page: number and time of the last news, expiry, answer."""

    def __init__(self) -> None:
        super().__init__(COPIES)
        self.busy = 0.0  # until when the share of a core is used up
        self.making: dict[Any, object] = {}  # keys of what some thread makes now

    @contextmanager
    def turn(self, key: Any) -> Iterator[bool]:
        """Let one thread at a time make an answer; tell the others that it is not theirs."""
        mine = object()
        try:
            yield self.making.setdefault(key, mine) is mine
        finally:
            if self.making.get(key) is mine:
                del self.making[key]


def shared(view: View) -> View:
    """Share one answer among followers with the same rights.

    What is made for them takes SHARE of a core at most: beyond that they are to ask later, and keep what they have.
    """

    @wraps(view)
    def called(**parts: Any) -> Any:
        if LIVE not in request.headers or "gzip" not in request.headers.get("Accept-Encoding", ""):
            return view(**parts)
        here, copies = service(), service().state(Copies)
        entry = here.catalogue.get(parts.get("name", ""))
        now, version = here.monotonic(), here.news.version(entry.id if entry else ALL)
        key = (request.full_path, who().known, who().confined, session().acts)
        known = copies.get(key)
        if known is None or (known[0] != version and now >= known[2]) or now > known[1] + STALE:
            with copies.turn(key) as is_mine:
                if not is_mine or now + AHEAD < copies.busy:
                    after = (1 + random.random()) * max(0.0, copies.busy - now)  # noqa: S311 - spreads who ask
                    return Response(status=204, headers={"Retry-After": str(1 + int(after))})
                begun = time.thread_time()
                made = with_headers(current_app.make_response(view(**parts)))
                cost = time.thread_time() - begun
                known = copies.put(key, (version, now, now + min(LASTS, cost / EACH), made))
                copies.busy = max(now, copies.busy) + cost / SHARE
        made = known[3]
        return Response(made.get_data(), made.status_code, made.headers)

    return called


# ── a page from its template ──


def render(template: str, status: int = 200, **context: Any) -> Response:
    """Make a page; its address, sent to another user, shows the same."""
    signed: Session | None = g.get("session")
    now = service().clock()
    shown = {"session": signed, "news": g.get("news"), "now": now, "asset": asset}
    linked = {"style": asset("page.css"), "script": asset("page.js")}
    text = render_template(template, **{**shown, **linked, "form_token": TOKEN_PLACE, **context})
    if signed is not None:  # what those who follow share has no session's token
        text = text.replace(TOKEN_PLACE, "" if LIVE in request.headers else form_token())
    answer = Response(text, status, mimetype="text/html")
    answer.headers["Cache-Control"] = "no-store"
    return answer


def with_headers(answer: Response) -> Response:
    """Add the headers of every page, and compress long ones."""
    answer.headers.update(HEADERS)
    is_text = answer.mimetype in ("text/html", "application/json", "text/css", "text/javascript")
    accepted = "gzip" in request.headers.get("Accept-Encoding", "")
    if is_text and accepted and not answer.is_streamed and "Content-Encoding" not in answer.headers:
        body = answer.get_data()
        if len(body) > SMALL:
            answer.set_data(gzip.compress(body, 5, mtime=0))
            answer.headers["Content-Encoding"] = "gzip"
    answer.headers["Vary"] = "Accept-Encoding, Cookie"
    return answer


@cache
def files() -> Mapping[str, tuple[str, bytes]]:
    """Return {file: (digest, content)} of the static files."""
    results = {path.name: path.read_bytes() for path in sorted((HERE / "static").iterdir()) if path.suffix in KINDS}
    return {name: (hashlib.sha256(content).hexdigest()[:12], content) for name, content in results.items()}


def asset(name: str) -> str:
    """Return a static file's address, which changes with its content."""
    return f"/static/{files()[name][0]}/{name}"
