"""Where a module that is imported by a test leaves what it saw."""

from typing import Any

library: Any = None
message = ""
