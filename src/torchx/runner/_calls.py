"""Records calls to the runner, at no cost while nobody reads the records.

``torchx.runner.events`` takes longer to import than most calls take. It is imported when somebody
may read an event: a plugin for event handlers, a handler that is attached to their logger, or a
program that has imported ``torchx.runner.events`` itself.
"""

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchx._startup.plugin_lookup import any_plugins
from torchx.specs.api import AppDef, AppHandle, parse_app_handle

if TYPE_CHECKING:
    from torchx.runner.events import log_event


_LOGGER = "torchx-events-null"
"""Name of the logger that events are written to."""


class UnreadEvent:
    """Accepts the fields of an event and drops them."""

    app_id: str | None = None
    app_image: str | None = None
    app_metadata: dict[str, str] | None = None


class UnreadCall:
    """Replaces ``log_event`` when nobody reads events."""

    def __init__(self) -> None:
        self._torchx_event = UnreadEvent()

    def __enter__(self) -> "UnreadCall":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def recorded_call(
    api: str,
    scheduler: str | None = None,
    app_id: str | None = None,
    runcfg: str | None = None,
    workspace: str | None = None,
) -> "log_event | UnreadCall":
    """Records one call; see ``torchx.runner.events.log_event``."""
    if not _readable():
        return UnreadCall()
    from torchx.runner.events import log_event

    return log_event(api, scheduler, app_id, runcfg=runcfg, workspace=workspace)


def recorded() -> bool:
    """Returns True if somebody reads the events; if not, costly fields are not computed."""
    if not _readable():
        return False
    from torchx.runner import events

    return events.recorded()


def _readable() -> bool:
    if "torchx.runner.events" in sys.modules or any_plugins("EVENT_HANDLER"):
        return True
    # another thread may just be importing it: nobody has made a logger then
    root = getattr(sys.modules.get("logging"), "root", None)
    manager = getattr(root, "manager", None)
    return manager is not None and _LOGGER in manager.loggerDict


def note_app(log: "log_event | UnreadCall", app: AppDef | None, handle: AppHandle | None) -> None:
    """Tells in the event of a call which app it was about."""
    event = log._torchx_event
    if handle is not None:
        event.app_id = parse_app_handle(handle).app_id
    if app is not None:
        event.app_image = app.roles[0].image if app.roles else None
        event.app_metadata = app.metadata


def text_of(value: object) -> str | None:
    """An argument of the call as an event has it."""
    return None if value is None else str(value)


def json_of(cfg: Any) -> str | None:
    """Options as an event has them: without secrets, and only where events are read."""
    if not cfg or not recorded():
        return None
    import json

    from torchx._secrets import mask_data, mask_string

    shown = mask_data(dict(cfg)) if isinstance(cfg, Mapping) else mask_string(str(cfg))
    return json.dumps(shown, default=str)
