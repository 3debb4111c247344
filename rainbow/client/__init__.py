"""Python client of the HTTP API.

from rainbow.client import Client

client = Client("http://127.0.0.1:8080", token="rbt_...")
job = client.submit(open("job.yaml").read())
client.wait(job["id"])
"""

from rainbow.client.http_client import Client
from rainbow.client.transport import Problem

__all__ = ["Client", "Problem"]
