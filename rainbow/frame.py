"""Tables of pandas (extra `notebook`): imported here alone, when one is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


def frame(rows: Iterable[Mapping[str, Any]], index: str) -> pandas.DataFrame:
    """Return rows as a DataFrame with the index of this column; whole numbers stay whole where some are missing."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_frame requires pandas; run: pip install 'rainbow-scheduler[notebook]'") from error
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    table = pandas.DataFrame.from_records(listed, columns=[*names] or [index])
    return table.convert_dtypes().set_index(index)
