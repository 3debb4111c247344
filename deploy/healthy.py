"""The image's health check: ends 0 if the server in this container is ready, by TLS where it speaks that."""

import os
import ssl
import sys
from urllib.error import URLError
from urllib.request import urlopen

PORT = os.environ.get("RAINBOW_PORT", "8080")
# the certificate is of the name that clients use, which is not that of loopback
UNNAMED = ssl._create_unverified_context()  # noqa: S323 - nothing secret is sent, and nobody is between

for scheme, context in (("https", UNNAMED), ("http", None)):
    try:
        with urlopen(f"{scheme}://127.0.0.1:{PORT}/readyz", timeout=3, context=context):  # noqa: S310
            sys.exit(0)
    except (URLError, OSError):
        continue
sys.exit(1)
