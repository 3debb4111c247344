"""The backends that need nothing installed beside Rainbow: they answer every case alike."""

from rainbow.matching import Requires, backends

OWN_BACKENDS = [name for name in backends.names() if not isinstance(backends.get(name), Requires)]
