"""One client of the Docker daemon, for the scheduler and the workspaces.

Nothing of Docker's SDK is imported with this package; that happens when a connection is made.
"""

from torchx._docker._calls import WORKERS, image_record, in_parallel, pull, with_retries
from torchx._docker._connection import connect, probe_socket
from torchx._docker._errors import docker_host, missing_image, translate_errors, unavailable
from torchx._docker._transfers import show, silent

__all__ = [
    "WORKERS",
    "connect",
    "docker_host",
    "image_record",
    "in_parallel",
    "missing_image",
    "probe_socket",
    "pull",
    "show",
    "silent",
    "translate_errors",
    "unavailable",
    "with_retries",
]
