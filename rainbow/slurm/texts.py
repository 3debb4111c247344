"""Times and widths as Slurm writes them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_BAD = {ord(one): "?" for one in "\n\r\x0b\x0c\x00\x85\u2028\u2029"}
MOST_WIDTH = 10_000
MOST = 1 << 20  # characters of an answer


def duration(seconds: float) -> str:
    """Write a duration as squeue does.

    >>> duration(5), duration(3_725), duration(90_061)
    ('0:05', '1:02:05', '1-01:01:01')
    """
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def long_duration(seconds: float) -> str:
    """Write a duration as sacct and scontrol do.

    >>> long_duration(5), long_duration(90_061)
    ('00:00:05', '1-01:01:01')
    """
    days, remaining = divmod(int(seconds), 86_400)
    text = f"{remaining // 3600:02}:{remaining // 60 % 60:02}:{remaining % 60:02}"
    return f"{days}-{text}" if days else text


def moment_text(seconds: float | None, none: str, offset: int) -> str:
    """Write a time as of a zone that is `offset` seconds east of Greenwich."""
    if seconds is None:
        return none
    try:
        return datetime.fromtimestamp(seconds, timezone(timedelta(seconds=offset))).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return none


def one_line(text: str) -> str:
    """Return a text without what would begin another line.

    >>> one_line("a" + chr(10) + "b")
    'a?b'
    """
    return text.translate(_BAD)


def fitted(text: str, width: int, *, right: bool) -> str:
    """Cut a text at a width, or fill it up.

    >>> fitted("abc", 2, right=False), fitted("abc", 5, right=True)
    ('ab', '  abc')
    """
    return text[:width].rjust(width) if right else text[:width].ljust(width)
