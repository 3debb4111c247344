"""The pages, one file for each group of them."""
