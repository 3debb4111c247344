"""register · match · submit · cancel · receive · accept · record · step: where the parts are wired together."""

from rainbow.service.config import read_config, settings_of
from rainbow.service.service import Service, check_service, open_service
from rainbow.service.settings import Limits, Settings

__all__ = ["Limits", "Service", "Settings", "check_service", "open_service", "read_config", "settings_of"]
