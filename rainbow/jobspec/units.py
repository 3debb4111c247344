"""Units of amounts: where request and vertex name units of one quantity, amounts are converted."""

from __future__ import annotations

from functools import lru_cache

_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_PREFIXES = {"": 1, **_DECIMAL, **_BINARY}
_BASES = {"B": "byte", "Hz": "hertz", "W": "watt", "J": "joule"}


@lru_cache(maxsize=1024)
def quantity(unit: str) -> tuple[str, int]:
    """Return what a unit measures and how many base units it is; a unit we do not know measures itself.

    >>> quantity("GiB"), quantity("W"), quantity("furlong"), quantity("")
    (('byte', 1073741824), ('watt', 1), ('furlong', 1), ('', 1))
    """
    for base, measured in _BASES.items():
        if unit.endswith(base) and unit.removesuffix(base) in _PREFIXES:
            return measured, _PREFIXES[unit.removesuffix(base)]
    return unit, 1


def is_known(unit: str) -> bool:
    """Tell whether a unit is one that amounts are converted from.

    >>> is_known("MiB"), is_known("Mib"), is_known("")
    (True, False, False)
    """
    return quantity(unit)[0] in _BASES.values() and unit not in _BASES.values()


KNOWN = f"{', '.join(_BASES)}, and these after one of {', '.join(_DECIMAL | _BINARY)}"
