"""Days of users that show what the founding texts state; each is lived through once, at a running server."""
