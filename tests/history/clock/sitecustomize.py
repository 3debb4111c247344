"""Let every Python process that has this folder on its path read the time of day from a clock that is set wrong.

The file that RAINBOW_HISTORY_CLOCK names holds by how many seconds, as eight bytes that its writer changes in place.
"""

import mmap
import os
import struct
import time

if path := os.environ.get("RAINBOW_HISTORY_CLOCK"):
    with open(path, "rb") as file:
        wrong = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    seconds, nanoseconds = time.time, time.time_ns

    def by() -> float:
        """Return by how much the clock is wrong now."""
        return float(struct.unpack("d", wrong[:8])[0])

    time.time = lambda: seconds() + by()
    time.time_ns = lambda: nanoseconds() + int(by() * 1e9)
