"""What would have happened: recorded jobs under given clusters, policies and selection, in virtual time."""

from rainbow.simulation.arrival import Arrival, from_history, max_procs, read_trace
from rainbow.simulation.comparison import Comparison, Ratio, compare, summed
from rainbow.simulation.figures import Figures, figures, offered_load
from rainbow.simulation.picture import picture
from rainbow.simulation.simulate import Outcome, Ran, check_variables, simulate
from rainbow.simulation.world import Governed, World, machine

__all__ = [
    "Arrival",
    "Comparison",
    "Figures",
    "Governed",
    "Outcome",
    "Ran",
    "Ratio",
    "World",
    "check_variables",
    "compare",
    "figures",
    "from_history",
    "machine",
    "max_procs",
    "offered_load",
    "picture",
    "read_trace",
    "simulate",
    "summed",
]
