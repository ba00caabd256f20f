"""Hands a model to a running TorchServe through its management API.

The server fetches the model from here: the file is downloaded from wherever fsspec can read,
served over HTTP for as long as the registration takes, and its address is registered.
"""

import argparse
import getpass
import http.client
import http.server
import re
import secrets
import shutil
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from torchx._filesystem import filesystem
from torchx.errors import BackendUnavailable, InvalidInput, TorchXError

MODEL_OPTIONS = {
    "model_name": "name of the model on the server",
    "handler": "inference handler",
    "runtime": "runtime of the handler",
    "batch_size": "size of a batch",
    "max_batch_delay": "milliseconds to wait for a batch",
    "initial_workers": "number of workers to start",
    "synchronous": "whether to answer only when the workers run: true or false",
    "response_timeout": "seconds after which a worker that does not answer is started again",
}
"""Options that TorchServe takes for a model; only those that are set are sent."""

_ERROR_CHARS = 500


def parse_args(argv: list[str]) -> argparse.Namespace:
    """The options; those for the model are ``None`` where not given."""
    parser = argparse.ArgumentParser(
        prog="serve", description="registers a model with a TorchServe that is running"
    )
    parser.add_argument(
        "--model_path", required=True, metavar="URL", help="path or URL of the model archive"
    )
    parser.add_argument(
        "--management_api",
        required=True,
        metavar="URL",
        help="management API of the server, http://torchserve:8081 for example",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60,
        metavar="S",
        help="seconds to wait for the management API's answer (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8222,
        help="port on which the server fetches the model, 0 for any (default: %(default)s)",
    )
    parser.add_argument("--dryrun", action="store_true", help=argparse.SUPPRESS)
    for name, text in MODEL_OPTIONS.items():
        parser.add_argument(f"--{name}", help=text)
    args = parser.parse_args(argv)
    if not args.timeout > 0:
        parser.error(f"--timeout: `{args.timeout}` is no time limit, give seconds above 0")
    if not 0 <= args.port < 2**16:
        parser.error(f"--port: `{args.port}` is no port, give 0 to 65535")
    return args


def main(argv: list[str] | None = None) -> None:
    """Command line of ``serve.torchserve``.

    Raises:
        InvalidInput: if an option is wrong, or there is no such model.
        BackendUnavailable: if the management API cannot be reached or is at fault.
        TorchXError: if it refuses the model.
    """
    args = parse_args(sys.argv[1:] if argv is None else argv)
    if args.dryrun:
        _say("success: dry run, nothing was registered")
        return
    options = {name: value for name in MODEL_OPTIONS if (value := getattr(args, name)) is not None}
    host, port = _host_and_port(args.management_api)
    with tempfile.TemporaryDirectory(prefix="torchx-serve-") as folder:
        file = Path(folder, _file_name(args.model_name))
        _say(f"downloading {args.model_path}")
        _download(args.model_path, file)
        family, address = _address_towards(host, port)
        with _serving(folder, family, args.port) as local_port:
            shown = f"[{address}]" if family == socket.AF_INET6 else address
            url = f"http://{shown}:{local_port}/{file.name}"
            _say(f"registering {url}")
            reply = _register(args.management_api, {"url": url, **options}, args.timeout)
    _say(f"registered: {reply}")


def _host_and_port(management_api: str) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(management_api)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        parts, port = urllib.parse.SplitResult("", "", "", "", ""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        shown = management_api.rpartition("@")[2]  # what stands before it is a secret
        msg = (
            f"`{shown}` is not the URL of a management API, give one such as"
            " http://torchserve:8081, without a user"
        )
        raise InvalidInput(msg)
    return parts.hostname, port


def _file_name(model_name: str | None) -> str:
    """A name that nobody can guess: whoever reaches the port and knows it can fetch the model."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = "user"
    words = [re.sub(r"[^A-Za-z0-9.-]", "-", word) for word in (model_name or "model", user)]
    return f"{'_'.join(words)}_{secrets.token_hex(8)}.mar"


def _download(model_path: str, file: Path) -> None:
    fs, path = filesystem(model_path)
    try:
        with fs.open(path, "rb") as source, file.open("wb") as target:
            shutil.copyfileobj(source, target, 2**20)
    except (FileNotFoundError, IsADirectoryError):
        msg = f"there is no file `{model_path}`, give the path or URL of a model archive"
        raise InvalidInput(msg) from None
    except ValueError as err:
        msg = f"cannot read `{model_path}`: {err}"
        raise InvalidInput(msg) from None
    except OSError as err:
        msg = f"cannot download `{model_path}`: {err}"
        raise BackendUnavailable(msg) from None


def _address_towards(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """The address of this machine by which the host can reach it; sends nothing."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as err:
        msg = f"the host `{host}` of the management API is not known: {err}"
        raise BackendUnavailable(msg) from None
    problem: OSError | None = None
    for family, kind, protocol, _, address in infos:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return socket.AddressFamily(family), str(probe.getsockname()[0])
        except OSError as err:
            problem = err
    msg = f"the host `{host}` of the management API cannot be reached: {problem}"
    raise BackendUnavailable(msg)


class _Handler(http.server.SimpleHTTPRequestHandler):
    def list_directory(self, path: Any) -> None:
        """Refuses directory listings, which would reveal the file's name."""
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs each request."""
        _say(f"{self.address_string()} {format % args}")


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


@contextmanager
def _serving(folder: str, family: socket.AddressFamily, port: int) -> Iterator[int]:
    """Serves the folder's files on all addresses of this machine, and gives the port."""
    kind = type("_FamilyServer", (_Server,), {"address_family": family})

    def handler(*args: Any) -> _Handler:
        return _Handler(*args, directory=folder)

    try:
        server = kind(("", port), handler)
    except OSError as err:
        msg = f"cannot serve the model on port {port}: {err.strerror}; give another --port"
        raise InvalidInput(msg) from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _register(management_api: str, query: dict[str, str], timeout: float) -> str:
    """Registers the model, without retries: a second request could start its workers twice.

    Returns:
        The server's response.
    """
    url = f"{management_api.rstrip('/')}/models?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, method="POST", data=b"")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return str(reply.read().decode(errors="replace").strip())
    except urllib.error.HTTPError as err:
        with err:
            text = err.read().decode(errors="replace").strip()[:_ERROR_CHARS]
        msg = f"`{management_api}` did not register the model: {err.code} {err.reason}: {text}"
        raise (BackendUnavailable if err.code >= 500 else TorchXError)(msg) from None
    except (OSError, http.client.HTTPException) as err:  # not reached, or no answer in time
        reason = getattr(err, "reason", err)
        msg = (
            f"`{management_api}` did not answer within {timeout:g} s: {reason}; check that the"
            " server runs and that it can reach this machine"
        )
        raise BackendUnavailable(msg) from None


def _say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


def _run() -> None:
    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)  # so that the download is removed

    signal.signal(signal.SIGTERM, end)
    try:
        main()
    except TorchXError as err:
        sys.stderr.write(f"serve: {err}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    _run()
