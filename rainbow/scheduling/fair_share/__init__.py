"""The fair-share policy: a re-founding of the DUCC Resource Manager."""
