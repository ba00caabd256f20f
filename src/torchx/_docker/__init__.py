"""The client of the Docker daemon shared by the scheduler and the workspaces.

Docker's SDK is not imported with this package but when a connection is opened.
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
