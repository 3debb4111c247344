"""What is given on the command line."""
