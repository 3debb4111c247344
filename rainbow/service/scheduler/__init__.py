"""The scheduler: one cluster's steps, and the thread that takes them."""
