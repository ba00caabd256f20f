"""Records calls to the runner. Nothing is recorded unless a plugin provides a destination."""

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from torchx._startup.lazy_logger import get_logger
from torchx._startup.plugin_lookup import any_plugins
from torchx.runner.events.api import SourceType, TorchxEvent
from torchx.runner.events.handlers import get_logging_handler
from torchx.util.session import get_session_id_or_create_new

if TYPE_CHECKING:
    import logging

__all__ = [
    "SourceType",
    "TorchxEvent",
    "get_logging_handler",
    "get_session_id_or_create_new",
    "log_event",
    "record",
]

logger = get_logger(__name__)

_destinations: "dict[str, logging.Logger]" = {}
_destinations_lock = threading.Lock()


def record(event: TorchxEvent, destination: str = "null") -> None:
    """Writes the event to the handler of a destination; failures are only logged."""
    if _surely_unread(destination):
        return
    sink = _destination(destination)
    if not _has_reader(sink):
        return
    try:
        sink.info("%s", event.serialize())
    except Exception as err:  # noqa: BLE001 - an event must never break the call that it records
        logger.warning(
            "could not record the event of `%s`: %s: %s", event.api, type(err).__name__, err
        )
        logger.debug("traceback", exc_info=err)


class log_event:
    """Records one call; its fields are set on ``_torchx_event`` during the call.

    >>> with log_event("run", "local_cwd") as log:
    ...     log._torchx_event.app_id = "train-x1"
    """

    def __init__(
        self,
        api: str,
        scheduler: str | None = None,
        app_id: str | None = None,
        app_image: str | None = None,
        app_metadata: dict[str, str] | None = None,
        runcfg: str | None = None,
        workspace: str | None = None,
    ) -> None:
        self._torchx_event = TorchxEvent(
            session=get_session_id_or_create_new(),
            scheduler=scheduler or "",
            api=api,
            app_id=app_id,
            app_image=app_image,
            app_metadata=app_metadata,
            runcfg=runcfg,
            workspace=workspace,
        )
        self._cpu_ns = 0
        self._wall_ns = 0

    def __enter__(self) -> "log_event":
        self._cpu_ns = time.process_time_ns()
        self._wall_ns = time.perf_counter_ns()
        self._torchx_event.start_epoch_time_usec = time.time_ns() // 1_000
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        event = self._torchx_event
        event.cpu_time_usec = (time.process_time_ns() - self._cpu_ns) // 1_000
        event.wall_time_usec = (time.perf_counter_ns() - self._wall_ns) // 1_000
        if exc is not None:
            _describe_exception(event, exc)
        _mask_secrets(event)
        record(event)


def _mask_secrets(event: TorchxEvent) -> None:
    from torchx._secrets import mask_data

    for name in ("app_image", "app_metadata", "workspace"):
        value = getattr(event, name)
        if value is not None:
            setattr(event, name, mask_data(value))


def recorded() -> bool:
    """Returns True if somebody reads the events; if not, costly fields are not computed."""
    # clients replace `record` with a function of their own
    if record is not _record:
        return True
    return not _surely_unread("null") and _has_reader(_destination("null"))


def _surely_unread(destination: str) -> bool:
    """Returns True if nobody can be listening: ``logging`` is not imported, no plugin installed."""
    if destination != "null" or "logging" in sys.modules:
        return False
    return get_logging_handler is _get_logging_handler and not any_plugins("EVENT_HANDLER")


_record = record
_get_logging_handler = get_logging_handler


def _destination(name: str) -> "logging.Logger":
    """Returns the logger of a destination, which is configured once."""
    import logging

    sink = _destinations.get(name)
    if sink is None:
        with _destinations_lock:
            sink = _destinations.get(name)
            if sink is None:
                handler = _handler(name)
                sink = logging.getLogger(f"torchx-events-{name}")
                sink.setLevel(logging.INFO)
                sink.propagate = False
                sink.handlers.insert(0, handler)  # others may have been attached before
                _destinations[name] = sink
    return sink


def _handler(destination: str) -> "logging.Handler":
    import logging

    try:
        return get_logging_handler(destination)
    except KeyError:
        raise
    except Exception as err:  # noqa: BLE001 - a plugin must not break the recorded calls
        logger.warning(
            "events for `%s` are dropped, its handler cannot be made: %s: %s",
            destination,
            type(err).__name__,
            err,
        )
        return logging.NullHandler()


def _has_reader(sink: "logging.Logger") -> bool:
    import logging

    return any(type(handler) is not logging.NullHandler for handler in sink.handlers)


def _describe_exception(event: TorchxEvent, exc: BaseException) -> None:
    import json
    import traceback

    from torchx._secrets import mask_message

    lines = traceback.format_exception(type(exc), exc, exc.__traceback__)
    event.raw_exception = mask_message("".join(lines))
    event.exception_type = type(exc).__name__
    event.exception_message = mask_message(str(exc))
    frames = traceback.extract_tb(exc.__traceback__)
    if frames:
        last = frames[-1]
        where = {"filename": last.filename, "lineno": last.lineno, "name": last.name}
        event.exception_source_location = json.dumps(where)
