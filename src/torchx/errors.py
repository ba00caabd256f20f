"""All errors of TorchX that a caller may want to react to."""


class TorchXError(Exception):
    """Base of every error that TorchX raises on purpose; its message is for the user."""


class InvalidInput(TorchXError, ValueError):
    """The request is wrong as written. Nothing was submitted."""


class UnknownName(InvalidInput, KeyError):
    """Nothing has the name that was given."""

    def __str__(self) -> str:
        return str(self.args[0])  # that of a `KeyError` is the repr


class BackendUnavailable(TorchXError, OSError):
    """The backend could not be reached. The same call may succeed later."""


class PluginNotLoaded(TorchXError, ModuleNotFoundError):
    """An installed plugin cannot be imported; the message names its entry point and package."""


class UnsupportedRequest(TorchXError, NotImplementedError):
    """The scheduler cannot do what was asked for."""


class JobStartError(TorchXError, OSError):
    """The job could not be started as a whole; nothing of it is left running."""


class UnexpectedReply(TorchXError, ValueError):
    """A tool answered with something that this version does not understand.

    Args:
        what: the call that was made.
        text: its answer.
    """

    def __init__(self, what: str, text: str) -> None:
        super().__init__(f"`{what}` answered with something unexpected: {text.strip()!r:.500}")


class UnknownApp(UnknownName):
    """The scheduler knows nothing of the app."""


class LogsNotFound(InvalidInput, RuntimeError):
    """There is no such role, replica or attempt to read the logs of."""
