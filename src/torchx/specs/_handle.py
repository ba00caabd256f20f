"""Handles: the URIs that identify apps."""

from typing import NamedTuple

from torchx.errors import (
    MalformedAppHandleException,
)

AppHandle = str
"""``{scheduler}://{session_name}/{app_id}``"""


class ParsedAppHandle(NamedTuple):
    """The parts of a handle."""

    scheduler_backend: str
    session_name: str
    app_id: str


def make_app_handle(scheduler_backend: str, session_name: str, app_id: str) -> AppHandle:
    """Joins the parts of a handle.

    >>> make_app_handle("slurm", "torchx", "1234")
    'slurm://torchx/1234'
    """
    return f"{scheduler_backend}://{session_name}/{app_id}"


def parse_app_handle(app_handle: AppHandle) -> ParsedAppHandle:
    """Splits a handle; the session may be empty, and may hold slashes.

    >>> parse_app_handle("k8s:///foo_bar")
    ParsedAppHandle(scheduler_backend='k8s', session_name='', app_id='foo_bar')

    Raises:
        MalformedAppHandleException: if the text is not a handle.
    """
    scheduler, separator, rest = app_handle.partition("://")
    session, slash, app_id = rest.rpartition("/")
    whole = scheduler and separator and slash and app_id
    if not whole or "\n" in app_handle or "\r" in app_handle:
        raise MalformedAppHandleException(app_handle)
    return ParsedAppHandle(scheduler, session, app_id)
