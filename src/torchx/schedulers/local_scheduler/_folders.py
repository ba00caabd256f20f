"""Folders of the records and logs of local jobs."""

import os

from torchx._home import home_dir


def local_home() -> str:
    """Returns the folder of all records, which may not exist yet."""
    return os.path.join(os.path.abspath(home_dir()), "local")


def own_logs_dir() -> str:
    """Returns the default folder of logs; they are deleted with their job."""
    return os.path.join(local_home(), "logs")
