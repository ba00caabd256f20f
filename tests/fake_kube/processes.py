"""Processes of containers, none of which is left behind."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import Mapping, Sequence
from typing import Any

from .pod_logs import Log


async def start(words: Sequence[str], env: Mapping[str, str], folder: str, output: int) -> Process:
    """Starts a process in a session of its own; one that was being started when this is cancelled
    is ended."""
    options: dict[str, Any] = {"env": env, "cwd": folder, "stdin": DEVNULL}
    options |= {"stdout": output, "stderr": output, "start_new_session": True}
    starting = asyncio.ensure_future(create_subprocess_exec(*words, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        send_signal(process, signal.SIGKILL)
        raise


def send_signal(process: Process, number: int) -> None:
    """Signals all of a process's session, if it has not ended."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass


async def copy_output(descriptor: int, log: Log) -> None:
    """Copies a pipe to the log until its other end is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    with os.fdopen(descriptor, "rb") as pipe:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        while chunk := await reader.read(65536):
            log.write(chunk)
