"""Names of jobs in the store: the numbers people type, and the symbols and tags that jobs give themselves."""
