"""Serving a model to a management API, which is a real HTTP server here."""

import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.apps.serve import serve
from torchx.apps.serve.serve import main, parse_args
from torchx.errors import BackendUnavailable, InvalidInput, TorchXError

MODEL = bytes(range(256)) * 5000  # larger than a block of the copy


class ManagementApi(http.server.HTTPServer):
    """Fetches each model that is registered, as TorchServe does."""

    status = 200
    fetch = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paths: list[str] = []
        self.queries: list[dict[str, list[str]]] = []
        self.models: list[bytes] = []
        self.folder_status = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: ManagementApi

    def do_POST(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(parts.query)
        self.server.paths.append(parts.path)
        self.server.queries.append(query)
        if self.server.fetch:
            url = query["url"][0]
            with urllib.request.urlopen(url, timeout=30) as reply:
                self.server.models.append(reply.read())
            try:
                urllib.request.urlopen(url.rpartition("/")[0] + "/", timeout=30).close()
            except urllib.error.HTTPError as err:
                self.server.folder_status = err.code
                err.close()
        body = b'{"status": "the answer"}\n'
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[ManagementApi]:
    with ManagementApi() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def temp_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "m.mar").write_bytes(MODEL)
    return str(tmp_path / "m.mar")


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


pytestmark = pytest.mark.usefixtures("proxies")


def test_the_server_can_fetch_the_model_while_it_is_registered(api, model, temp_dir, capsys):
    main(["--model_path", model, "--management_api", f"{api.url}/", "--port", "0"])
    assert api.models == [MODEL]
    assert api.paths == ["/models"]
    (query,) = api.queries
    assert set(query) == {"url"}
    url = urllib.parse.urlsplit(query["url"][0])
    assert url.hostname == "127.0.0.1"
    assert re.fullmatch(r"/model_[^/]+_[0-9a-f]{16}\.mar", url.path)
    assert "the answer" in capsys.readouterr().out
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(query["url"][0], timeout=30)
    assert list(temp_dir.iterdir()) == []
    assert api.folder_status == 404


def test_only_the_options_that_are_set_are_sent(api, model):
    options = {
        "model_name": "tiny model/1",
        "handler": "h",
        "runtime": "python",
        "batch_size": "2",
        "max_batch_delay": "3",
        "initial_workers": "4",
        "synchronous": "true",
        "response_timeout": "5",
    }
    assert set(options) == set(serve.MODEL_OPTIONS)
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    main(["--model_path", model, "--management_api", api.url, "--port", "0", *given])
    query = {name: values[0] for name, values in api.queries[0].items()}
    url = query.pop("url")
    assert query == options
    assert url.rpartition("/")[2].startswith("tiny-model-1_")
    assert api.models == [MODEL]


def test_models_come_from_any_file_system(api):
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe("/serve/m.mar", MODEL)
    try:
        argv = ["--model_path", "memory://serve/m.mar", "--management_api", api.url]
        main([*argv, "--port", "0"])
    finally:
        fs.rm("/serve", recursive=True)
    assert api.models == [MODEL]


def test_it_serves_on_the_port_that_was_named(api, model):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    main(["--model_path", model, "--management_api", api.url, "--port", str(port)])
    assert urllib.parse.urlsplit(api.queries[0]["url"][0]).port == port


@pytest.mark.parametrize(("status", "error"), [(409, TorchXError), (500, BackendUnavailable)])
def test_a_refusal_raises_and_stops_the_server(api, model, temp_dir, status, error):
    api.status = status
    threads = threading.active_count()
    with pytest.raises(error, match=rf"did not register the model: {status} .*the answer"):
        main(["--model_path", model, "--management_api", api.url, "--port", "0"])
    assert len(api.queries) == 1  # never asked twice
    assert threading.active_count() == threads
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(api.queries[0]["url"][0], timeout=30)
    assert list(temp_dir.iterdir()) == []


def test_no_answer_raises_and_stops_the_server(model, temp_dir):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        threads = threading.active_count()
        argv = ["--model_path", model, "--management_api", url, "--port", "0"]
        with pytest.raises(BackendUnavailable, match=r"did not answer within 0\.2 s"):
            main([*argv, "--timeout", "0.2"])
    with pytest.raises(BackendUnavailable, match="did not answer"):
        main(argv)  # nobody listens any more
    assert threading.active_count() == threads
    assert list(temp_dir.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["torchserve:8081", "ftp://torchserve", "http://", "http://h:port", "http://u:p@h:1"]
)
def test_what_is_no_management_api_is_refused(model, url):
    with pytest.raises(InvalidInput, match="is not the URL of a management API") as caught:
        main(["--model_path", model, "--management_api", url])
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("gone.mar", "there is no file `gone.mar`"),
        (".", "there is no file `.`"),
        ("nosuchfs://m.mar", "`nosuchfs://m.mar` is not a path or a URL"),
    ],
)
def test_a_model_that_cannot_be_read_is_told_and_nothing_registered(api, path, text, temp_dir):
    with pytest.raises(InvalidInput, match=re.escape(text)):
        main(["--model_path", path, "--management_api", api.url, "--port", "0"])
    assert api.queries == []
    assert list(temp_dir.iterdir()) == []


def test_a_port_in_use_is_told(api, model):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"cannot serve the model on port {port}"):
            main(["--model_path", model, "--management_api", api.url, "--port", str(port)])
    assert api.queries == []


def test_an_address_of_version_6_stands_in_brackets(api, model):
    class Api6(ManagementApi):
        address_family = socket.AF_INET6

        def __init__(self) -> None:
            http.server.HTTPServer.__init__(self, ("::1", 0), Handler)
            self.paths, self.queries, self.models = [], [], []

    try:
        server = Api6()
    except OSError as err:
        pytest.skip(f"this machine has no IPv6: {err}")
    with server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://[::1]:{server.server_port}"
        main(["--model_path", model, "--management_api", url, "--port", "0"])
        thread.join()
    assert server.queries[0]["url"][0].startswith("http://[::1]:")
    assert server.models == [MODEL]


def test_a_dry_run_does_nothing(capsys):
    main(["--model_path", "gone", "--management_api", "http://gone", "--dryrun"])
    assert "success" in capsys.readouterr().out


def test_the_options_have_the_documented_defaults(capsys):
    args = parse_args(["--model_path", "m", "--management_api", "a"])
    assert (args.timeout, args.port, args.dryrun) == (60, 8222, False)
    assert {getattr(args, name) for name in serve.MODEL_OPTIONS} == {None}
    with pytest.raises(SystemExit):
        parse_args(["--help"])
    assert "dryrun" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "more", [["--timeout", "0"], ["--timeout", "nan"], ["--port", "65536"], ["--port", "x"]]
)
def test_a_wrong_option_ends_with_2(more):
    with pytest.raises(SystemExit) as ended:
        parse_args(["--model_path", "m", "--management_api", "a", *more])
    assert ended.value.code == 2


def test_as_a_program_it_tells_errors_without_a_traceback():
    command = [sys.executable, "-m", serve.__name__, "--model_path", "m", "--management_api", "a"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("serve: `a` is not the URL")
    assert "Traceback" not in done.stderr


def test_a_signal_stops_it_and_removes_the_download(model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        program = [sys.executable, "-m", serve.__name__]
        process = subprocess.Popen(
            [*program, "--model_path", model, "--management_api", url, "--port", "0"],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
        )
        connection, _ = silent.accept()
        assert len(list(tmp_path.glob("torchx-serve-*"))) == 1
        process.terminate()
        process.communicate(timeout=60)
        connection.close()
    assert process.returncode == 128 + 15
    assert list(tmp_path.glob("torchx-serve-*")) == []
