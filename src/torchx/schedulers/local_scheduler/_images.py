"""Image providers: program and working directory of replicas."""

import abc
import os
from collections.abc import Mapping

from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput
from torchx.specs.api import Role


@light_dataclass
class ReplicaParam:
    """A process to run."""

    args: list[str]
    env: dict[str, str]
    stdout: str | None = None
    """Path of a log file; ``None`` if there is none."""
    stderr: str | None = None
    combined: str | None = None
    cwd: str | None = None
    """Working directory; ``None`` for the launcher's."""


class ImageProvider(abc.ABC):
    """Makes an image available on this machine."""

    @abc.abstractmethod
    def fetch(self, image: str) -> str:
        """Makes the image available and returns the path of its root."""

    def fetch_role(self, role: Role) -> str:
        """Like ``fetch`` for the role's image; may change the role. Called once for each role."""
        return self.fetch(role.image)

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory of the replicas; ``None`` for the launcher's own."""
        return None

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the path of the program."""
        return os.path.join(img_root, role.entrypoint)

    def get_replica_param(
        self,
        img_root: str,
        role: Role,
        stdout: str | None = None,
        stderr: str | None = None,
        combined: str | None = None,
    ) -> ReplicaParam:
        """Returns the process to run for one replica, given its role with the macros replaced."""
        return ReplicaParam(
            args=[self.get_entrypoint(img_root, role), *role.args],
            env=role.env,
            stdout=stdout,
            stderr=stderr,
            combined=combined,
            cwd=self.get_cwd(role.image),
        )


class LocalDirectoryImageProvider(ImageProvider):
    """Images are directories of this machine, which become the working directory."""

    def __init__(self, cfg: Mapping[str, object] | None = None) -> None:
        pass

    def fetch(self, image: str) -> str:
        """Checks that the directory exists."""
        if not os.path.isdir(image):
            msg = f"the image `{image}` is not a directory of this machine"
            raise InvalidInput(msg)
        return image

    def get_cwd(self, image: str) -> str | None:
        """Returns the image."""
        return image

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the entrypoint unchanged."""
        return role.entrypoint


class CWDImageProvider(ImageProvider):
    """Ignores the image: replicas run in the launcher's working directory."""

    def __init__(self, cfg: Mapping[str, object] | None = None) -> None:
        pass

    def fetch(self, image: str) -> str:
        """Returns the working directory."""
        return _cwd()

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory."""
        return _cwd()

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the entrypoint unchanged."""
        return role.entrypoint


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        msg = "the working directory was removed, change to one that exists"
        raise InvalidInput(msg) from None
