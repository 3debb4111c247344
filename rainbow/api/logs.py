"""The log: one line of JSON an event, to stderr, and never a secret."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

# a credential of ours by its prefix, and the password in a URL
SECRET = re.compile(r"\brb[rstma]_[A-Za-z0-9_-]{6,}")
PASSWORD = re.compile(r"://([^:/@\s]*):[^@/\s]*@")


def log_to_stderr(level: str = "info") -> None:
    """Write one line an event, to stderr, with the time in UTC and the id of the request."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            hide,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


def hide(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave every secret out of what is logged, wherever it stands.

    >>> hide(None, "", {"fault": "bad rbt_abcdefgh at postgresql://u:pw@host/db"})
    {'fault': 'bad ... at postgresql://u:...@host/db'}
    """
    return {key: _hidden(value) if isinstance(value, str) else value for key, value in event.items()}


def _hidden(text: str) -> str:
    return PASSWORD.sub(r"://\1:...@", SECRET.sub("...", text))


def without_password(database: str) -> str:
    """Leave a password out of a URL."""
    return PASSWORD.sub(r"://\1:...@", database)
