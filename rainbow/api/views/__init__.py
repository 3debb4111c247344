"""The views: each decodes, authenticates, calls one verb of the service and encodes."""
