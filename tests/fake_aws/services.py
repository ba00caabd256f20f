"""The services that the fake has. Each is made with all services that were made before it."""

from collections.abc import Callable, Sequence
from typing import Any

from .logs import Logs

SERVICES: Sequence[Callable[[dict[str, Any]], Any]] = (Logs,)
