"""Space for an item on the resource diagram."""
