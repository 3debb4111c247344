"""The service object, and what every verb uses: rights, limits, settings, events, counters."""
