"""All errors of TorchX that a caller may want to react to, on one page.

The second base of a class is what was raised before the class existed, or what Python raises in
such a case, so that existing ``except`` clauses keep working.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchx.schedulers.causes import Explanation
    from torchx.specs.api import AppStatus


class TorchXError(Exception):
    """Base of every error that TorchX raises on purpose; its message is for the user."""

    explanation: "Explanation | None" = None
    """Why an app could not be launched, on errors that come from a launch or a dry run."""


# The request is wrong. -------------------------------------------------------------------------


class InvalidInput(TorchXError, ValueError):
    """The request is wrong as written. Nothing was submitted."""


class UnsupportedRequest(TorchXError, NotImplementedError):
    """The scheduler does not support the request."""


class InvalidRunConfigException(InvalidInput):
    """The options given are not what the scheduler takes."""

    def __init__(self, invalid_reason: str, cfg_key: str, cfg: "Mapping[str, object]") -> None:
        from torchx._secrets import mask_data

        given = str(mask_data(cfg)) if cfg else "<EMPTY>"
        end = "" if invalid_reason.endswith("?") else "."
        super().__init__(f"{invalid_reason}{end} Given: {given}")
        self.cfg_key = cfg_key


class MalformedAppHandleException(InvalidInput):
    """The text is not a handle."""

    def __init__(self, app_handle: str) -> None:
        super().__init__(
            f"{app_handle} is not of the form: <scheduler_backend>://<session_name>/<app_id>"
        )


class ComponentValidationException(InvalidInput):
    """A component breaks the rules for components."""


class OverlayTypeError(InvalidInput, TypeError):
    """A value of an overlay has the wrong type for its place in the request."""


class MissingMountOption(InvalidInput, KeyError):
    """A mount lacks an option that it needs; clients read the option from the first argument."""

    def __str__(self) -> str:
        return str(self.args[-1])


class MountNotSupported(InvalidInput, TypeError):
    """A role has a mount of a type that the scheduler does not support."""


class ConfigFileError(InvalidInput):
    """A config file cannot be read; the message names file and line."""


class ConfigFileNotFound(InvalidInput, FileNotFoundError):
    """``TORCHXCONFIG`` names a file that does not exist."""


# Unknown names. -------------------------------------------------------------------------------


class UnknownName(InvalidInput, KeyError):
    """The given name is not known."""

    def __str__(self) -> str:
        return str(self.args[0])  # that of a `KeyError` is the repr


class UnknownApp(UnknownName):
    """The scheduler does not know the app, or has forgotten it."""


class UnknownAppException(TorchXError):
    """The scheduler does not know the app of a handle; raised by the runner."""

    def __init__(self, app_handle: str) -> None:
        super().__init__(
            f"Unknown app = {app_handle}. Did you forget to call session.run()?"
            " Otherwise, the app may have already finished and purged by the scheduler"
        )
        self.app_handle = app_handle


class UnresolvedApp(UnknownName):
    """No app launched from here matches the given id."""


class AmbiguousApp(InvalidInput):
    """Several apps match the given prefix of an app id; the message lists them."""


class UnknownSchedulerException(InvalidInput):
    """No scheduler has that name."""

    def __init__(self, scheduler_backend: str) -> None:
        super().__init__(
            f"Scheduler backend: {scheduler_backend} does not exist."
            " Use session.scheduler_backends() to see all supported schedulers"
        )


class ComponentNotFoundException(InvalidInput):
    """There is no such component."""


class LogsNotFound(InvalidInput, RuntimeError):
    """The app, role, replica or attempt whose logs were requested does not exist."""


# Something is not installed. -------------------------------------------------------------------


class NotInstalled(TorchXError, ModuleNotFoundError):
    """A package is missing.

    Args:
        name: the module that cannot be imported.
        extra: the extra of TorchX that installs it; the message then ends with the install command.
    """

    def __init__(self, message: str, *, name: str | None = None, extra: str | None = None) -> None:
        if extra:
            message += f"; install it with: pip install 'torchx[{extra}]'"
        super().__init__(message, name=name)
        self.extra = extra


class SchedulerNotInstalled(NotInstalled):
    """A scheduler cannot be created because its module, or a package that it needs, is missing."""


class DockerNotInstalled(NotInstalled):
    """The Python package ``docker`` is missing."""


class FsspecNotInstalled(NotInstalled):
    """A path or URL was given that needs fsspec, which is not installed."""


class PluginNotLoaded(TorchXError, ModuleNotFoundError):
    """An installed plugin cannot be imported; the message names its entry point and package."""


class UnwritableOutput(TorchXError, OSError):
    """Standard output cannot be written, for example because the disk is full."""


# The backend. ----------------------------------------------------------------------------------


class BackendUnavailable(TorchXError, OSError):
    """The backend could not be reached. The same call may succeed later."""


class ProgramNotFound(BackendUnavailable):
    """A program needed to reach the backend, such as ``sbatch``, is not on PATH.

    Unlike other outages this one is permanent: nothing is retried.
    """


class CommandFailed(TorchXError, RuntimeError):
    """A program of the backend failed.

    Args:
        program: its name.
        exit_code: its exit code; a negative number is the signal that killed it.
        stderr: its error message, on one line.
    """

    def __init__(self, program: str, exit_code: int, stderr: str) -> None:
        super().__init__(f"`{program}` failed: {stderr or f'exit code {exit_code} and no message'}")
        self.program = program
        self.exit_code = exit_code
        self.stderr = stderr


class DockerRefused(TorchXError, RuntimeError):
    """The Docker daemon answered with an error.

    Args:
        status: HTTP status; 0 for an error in the middle of a transfer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class RefusedByRegistry(InvalidInput):
    """The registry refused a request.

    Args:
        status: its HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TransferFailed(DockerRefused):
    """The Docker daemon could not pull or push an image; the message is the daemon's."""


class UnexpectedReply(TorchXError, ValueError):
    """A tool answered with something that this version does not understand.

    Args:
        what: the call that was made.
        text: its answer.
    """

    def __init__(self, what: str, text: str) -> None:
        super().__init__(f"`{what}` answered with something unexpected: {text.strip()!r:.500}")


# The job. --------------------------------------------------------------------------------------


class JobStartError(TorchXError, OSError):
    """The job could not be started completely; none of its replicas is left running."""


class AppStatusError(TorchXError):
    """The app did not succeed."""

    def __init__(self, status: "AppStatus", *args: object) -> None:
        super().__init__(*args)
        self.status = status


# Workspaces and trackers. ----------------------------------------------------------------------


class WorkspaceNotFound(InvalidInput, FileNotFoundError):
    """The given workspace does not exist."""


class UnreadableWorkspace(TorchXError, OSError):
    """A file of the workspace could not be read; nothing was sent."""


class UnwritableDirectory(TorchXError, OSError):
    """A directory that a workspace is copied to cannot be written."""


class DirectoryTaken(InvalidInput, FileExistsError):
    """The target directory of a copy exists and was not created by TorchX."""


class RootMissing(TorchXError, AssertionError):
    """The folder that a tracker writes to does not exist."""


class ConfigMissing(InvalidInput, FileNotFoundError):
    """The config file of a tracker does not exist."""


class AmbiguousRun(TorchXError, RuntimeError):
    """Several MLflow runs have the same name."""
