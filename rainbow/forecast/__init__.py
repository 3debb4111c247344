"""Lengths of tasks, forecasts of clusters, and when a job would start elsewhere."""

from rainbow.forecast.eta import Rooms, eta, stacked
from rainbow.forecast.forecast import Ahead, Bounds, Expected, Forecast, ahead, forecast, score
from rainbow.forecast.lengths import UNKNOWN, Key, Length, RunHistory, left, length_of, ratios
from rainbow.forecast.one_pass import one_pass
from rainbow.forecast.room import Room, Use, read_room, room_of
from rainbow.forecast.virtual_cluster import Lengths, VirtualCluster

__all__ = [
    "UNKNOWN",
    "Ahead",
    "Bounds",
    "Expected",
    "Forecast",
    "Key",
    "Length",
    "Lengths",
    "Room",
    "Rooms",
    "RunHistory",
    "Use",
    "VirtualCluster",
    "ahead",
    "eta",
    "forecast",
    "left",
    "length_of",
    "one_pass",
    "ratios",
    "read_room",
    "room_of",
    "score",
    "stacked",
]
