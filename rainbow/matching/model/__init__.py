"""What a match is about: verdicts, a cluster's layout, and the conditions on its workers."""
