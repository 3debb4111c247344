"""Python client of the HTTP API.

from rainbow.client import Client

client = Client("http://127.0.0.1:8080", token="rbt_...")
job = client.submit(open("job.yaml").read())
client.wait(job["id"])
"""

from rainbow.client.calls import Problem
from rainbow.client.verbs import Client

__all__ = ["Client", "Problem"]
