"""Serves the fake cluster until its standard input is closed; its first line tells where."""

import argparse
import asyncio
import json
import ssl
import sys

from .cluster import Cluster
from .http import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="fake_kube", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--version", default="", help="of Kubernetes, as 1.28")
    parser.add_argument("--operators", default="", help="installed ones, with commas between")
    parser.add_argument("--no-kubelet", action="store_true", help="pods stay as they are created")
    parser.add_argument("--certificate", help="file with the server's certificate and key, for TLS")
    parser.add_argument("--keep", type=int, default=20_000, help="changes that watches can see")
    asyncio.run(_run(parser.parse_args()))


async def _run(args: argparse.Namespace) -> None:
    tls = None
    if args.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(args.certificate)
    cluster = Cluster(args.keep, kubelet=not args.no_kubelet)
    if args.version:
        major, _, minor = args.version.partition(".")
        cluster.api.settings.version = int(major), int(minor)
    for operator in filter(None, args.operators.split(",")):
        cluster.install(operator)
    port = await serve(cluster.handle, "127.0.0.1", args.port, tls)
    print(json.dumps({"port": port}), flush=True)  # noqa: T201 - the parent reads it
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)  # the parent's end closes it
    await cluster.close()


if __name__ == "__main__":
    main()
