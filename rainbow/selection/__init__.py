"""Candidates and their state → one cluster, with every step that led to it.

choice         the interface of a selector, and its answer
expression/    an expression about a cluster: text → tree → code, for one cluster or for many
options        the options of the selector `constraint`: read, checked, warned of
variables      what expressions can read
constraint     the selector of filters, calculations and sorts
select         the entry, and the selector `random`
assignment     many jobs together: greedily, or by the integer_program
replay, cases  decisions taken again, operators' cases
"""

from rainbow.selection.choice import Choice, DeclaresReads, Scalar, Selector, Step
from rainbow.selection.select import check_options, matched_read, read_of, reads, reads_states, select, selectors

__all__ = [
    "Choice",
    "DeclaresReads",
    "Scalar",
    "Selector",
    "Step",
    "check_options",
    "matched_read",
    "read_of",
    "reads",
    "reads_states",
    "select",
    "selectors",
]
