"""Serves the fake until its standard input is closed; its first line tells the port."""

import asyncio
import json
import sys

from tests.fake_kube.http import serve

from .cloud import Cloud


async def _run() -> None:
    cloud = Cloud()
    port = await serve(cloud.handle, "127.0.0.1", 0, None)
    print(json.dumps({"port": port}), flush=True)  # noqa: T201 - the parent reads it
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)  # the parent's end closes it
    await cloud.close()


if __name__ == "__main__":
    asyncio.run(_run())
