"""register · match · submit · cancel · receive · accept · record · step: where the parts are wired together."""

from rainbow.service.core.service import Service, check_service, open_service
from rainbow.service.core.settings import Limits, Settings, read_config, settings_of

__all__ = ["Limits", "Service", "Settings", "check_service", "open_service", "read_config", "settings_of"]
