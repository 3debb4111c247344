"""The kinds of columns, alike on both databases."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

Row = dict[str, Any]


def together(rows: list[Row]) -> Row | list[Row]:
    """Return the parameters of one statement for all rows: one row by itself costs PostgreSQL fewer round trips."""
    return rows[0] if len(rows) == 1 else rows


class Words(sa.TypeDecorator[str]):
    """Text that any database can hold: NUL and halves of surrogate pairs become the replacement character.

    PostgreSQL refuses them. What is looked up under such a name is then simply not found.
    """

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Any) -> str | None:
        """Return the text as it is stored."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class LongWords(Words):
    """The same without a bound."""

    impl = sa.Text
    cache_ok = True


NAME = Words(100)
ID = Words(64)
WORD = Words(16)
TEXT = LongWords()
JSON = sa.JSON(none_as_null=True)
TIME = sa.Double
# counts upwards for ever: what was once the number of an event is never that of another
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
