"""Numbers that remember how they were written: as a number 1.10 is 1.1, as a version it is not."""

from __future__ import annotations

from typing import Any, Self

LONGEST_NUMBER = 100  # characters; reading a longer one takes time that grows with its square


class _Written:
    """What both kinds share; stands before int or float among the bases."""

    text: str

    def __new__(cls, value: Any, text: str = "") -> Self:
        """Make the number; without a text only to be copied, as its text follows."""
        made = super().__new__(cls, value)  # type: ignore[call-arg]  # int and float take it
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text


class WrittenInt(_Written, int):
    """A whole number whose text is its own: 0x10, 1_000, 010."""


class WrittenFloat(_Written, float):
    """A number whose text is its own: 1.10, 3600."""


def written(value: Any, text: str) -> Any:
    """Give a number its text, where Python would write it otherwise.

    >>> f"{written(1.1, '1.10')} {written(1.5, '1.5')}", written(1.1, "1.10") == 1.1, type(written(8, "8"))
    ('1.10 1.5', True, <class 'int'>)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or str(value) == text:
        return value
    return WrittenInt(value, text) if isinstance(value, int) else WrittenFloat(value, text)


def as_number(value: Any) -> Any:
    """Return a number without its text, for what computes with it; anything else as it is.

    >>> type(as_number(written(1.1, "1.10"))), as_number("1.10")
    (<class 'float'>, '1.10')
    """
    if isinstance(value, WrittenInt):
        return int(value)
    return float(value) if isinstance(value, WrittenFloat) else value


def as_text(value: Any) -> Any:
    """Return what a field is compared with: fractions and numbers in a form of their own as they are written.

    >>> as_text(written(1.1, "1.10")), as_text(0.5), as_text(7), as_text(True)
    ('1.10', '0.5', 7, True)
    """
    return str(value) if isinstance(value, (float, WrittenInt)) else value
