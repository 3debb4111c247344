"""Names the server makes. Those of jobs sort by time."""

from __future__ import annotations

import secrets

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_TIME_DIGITS, _RANDOM_DIGITS = 11, 8


def job_id(now: float, newest: str) -> str:
    """Make the id of a job submitted at `now`, larger than `newest` even when the clock went back.

    >>> job_id(1.0, "") < job_id(2.0, "") < job_id(1.0, job_id(3.0, ""))
    True
    """
    tick = max(int(now * 1_000_000), _time_of(newest) + 1)
    return _text(tick, _TIME_DIGITS) + _text(secrets.randbits(5 * _RANDOM_DIGITS), _RANDOM_DIGITS)


def random_id() -> str:
    """Make the id of anything else."""
    return _text(secrets.randbits(100), 20)


def _time_of(job: str) -> int:
    return sum(_DIGITS.index(digit) << 5 * place for place, digit in enumerate(reversed(job[:_TIME_DIGITS])))


def _text(number: int, length: int) -> str:
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(length)))
