"""What agents ask and report, and who of them is there."""
