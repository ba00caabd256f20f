"""Where local jobs are recorded and keep their logs."""

import os

from torchx._home import home_dir


def local_home() -> str:
    """The folder of all records, which may not exist yet."""
    return os.path.join(os.path.abspath(home_dir()), "local")


def own_logs_dir() -> str:
    """Where logs go when no ``log_dir`` is given; they are deleted with their job."""
    return os.path.join(local_home(), "logs")
