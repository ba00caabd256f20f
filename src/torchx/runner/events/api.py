"""The event that records a call to the runner."""

from enum import Enum
from typing import Any, Union

from torchx._startup.dataclass import fields, light_dataclass


class SourceType(str, Enum):
    """The origin of a call."""

    UNKNOWN = "<unknown>"
    INTERNAL = "INTERNAL"
    EXTERNAL = "EXTERNAL"


@light_dataclass
class TorchxEvent:
    """The record of one call to the runner: its subject, duration and outcome.

    The three ``exception_*`` fields and ``raw_exception`` are ``None`` for a call that returned.
    """

    session: str
    scheduler: str
    api: str
    app_id: str | None = None
    app_image: str | None = None
    app_metadata: dict[str, str] | None = None
    runcfg: str | None = None
    """JSON of the options."""
    raw_exception: str | None = None
    source: SourceType = SourceType.UNKNOWN
    cpu_time_usec: int | None = None
    wall_time_usec: int | None = None
    start_epoch_time_usec: int | None = None
    workspace: str | None = None
    exception_type: str | None = None
    exception_message: str | None = None
    exception_source_location: str | None = None
    """JSON of the file name, line and function that raised."""

    def __str__(self) -> str:
        return self.serialize()

    def serialize(self) -> str:
        """Returns a JSON object of all fields in order."""
        import json

        data = {f.name: getattr(self, f.name) for f in fields(self)}
        if isinstance(self.source, SourceType):
            data["source"] = self.source.value
        return json.dumps(data)

    @staticmethod
    def deserialize(data: Union[str, "TorchxEvent"]) -> "TorchxEvent":
        """Reads what ``serialize`` wrote; a source that this version does not know is ``UNKNOWN``.

        Raises:
            TypeError: for an unknown field, or data that is neither text nor an event.
        """
        if isinstance(data, TorchxEvent):
            return data
        if not isinstance(data, str):
            msg = f"expected a serialized TorchxEvent (str) or a TorchxEvent, got {type(data)}"
            raise TypeError(msg)
        import json

        values: dict[str, Any] = json.loads(data)
        if "source" in values:
            known = {source.value: source for source in SourceType}
            values["source"] = known.get(values["source"], SourceType.UNKNOWN)
        return TorchxEvent(**values)
