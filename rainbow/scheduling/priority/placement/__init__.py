"""Space for items on the resource diagram."""
