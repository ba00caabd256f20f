"""Runs the credential plugin of a kubeconfig, as client-go does.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any

from .config import Cluster, Credential, ExecPlugin
from .errors import PluginFailed

TIMEOUT_S = 60
"""Timeout in seconds of a plugin that cannot prompt the user."""
_LAST_WORDS = 2000


def run_plugin(plugin: ExecPlugin, cluster: Cluster) -> Credential:
    """Runs the program once; on a terminal, its standard error is shown to the user.

    Raises:
        PluginFailed: if it is missing, fails, or does not print a credential.
    """
    interactive = _interactive(plugin)
    info = exec_info(plugin, cluster, interactive)
    environ = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        process = subprocess.Popen(
            [plugin.command, *plugin.args],
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
        )
    except OSError as err:
        missing = isinstance(err, FileNotFoundError)
        reason = "is not installed or not on PATH" if missing else f"does not start: {err.strerror}"
        raise PluginFailed(_message(plugin, reason)) from None
    return _credential_of(process, plugin, interactive)


def _credential_of(
    process: "subprocess.Popen[bytes]", plugin: ExecPlugin, interactive: bool
) -> Credential:
    assert process.stdout is not None  # both are pipes
    assert process.stderr is not None
    words = bytearray()
    # a thread: a plugin may fill either pipe first
    reader = threading.Thread(target=_copy_words, args=(process.stderr, words, interactive))
    reader.start()
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    if not interactive:
        watchdog.start()
    try:
        with process.stdout as stdout:
            answer = stdout.read()
        code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        watchdog.cancel()
        reader.join()
        process.stderr.close()
    if code != 0:
        said = " ".join(words.decode(errors="replace").split())
        raise PluginFailed(_message(plugin, f"failed with exit code {code}: {said or 'no word'}"))
    return parse_credential(answer, plugin)


def _copy_words(source: IO[bytes], words: bytearray, show: bool) -> None:
    while chunk := os.read(source.fileno(), 4096):
        words += chunk
        del words[:-_LAST_WORDS]
        if show:
            sys.stderr.write(chunk.decode(errors="replace"))
            sys.stderr.flush()


def _interactive(plugin: ExecPlugin) -> bool:
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not terminal:
        raise PluginFailed(_message(plugin, "asks questions, but there is no terminal"))
    return terminal and plugin.interactive != "Never"


def exec_info(plugin: ExecPlugin, cluster: Cluster, interactive: bool) -> dict[str, Any]:
    """Returns the ``ExecCredential`` that describes the request to the plugin."""
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster_info:
        ca = cluster.ca.data or _file(cluster.ca.path) if cluster.ca else b""
        optional = {
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure,
            "certificate-authority-data": base64.b64encode(ca).decode(),
            "proxy-url": cluster.proxy_url,
            "config": cluster.plugin_config,
        }
        given = {key: value for key, value in optional.items() if value}
        spec["cluster"] = {"server": cluster.server, **given}
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}


def _file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def parse_credential(answer: bytes, plugin: ExecPlugin) -> Credential:
    """Parses the output of a plugin."""
    try:
        document = json.loads(answer)
        status = document["status"]
        version = document.get("apiVersion")
        credential = Credential(
            token=str(status.get("token") or ""),
            certificate=str(status.get("clientCertificateData") or "").encode(),
            key=str(status.get("clientKeyData") or "").encode(),
            expires_s=_epoch_s(status.get("expirationTimestamp")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PluginFailed(_message(plugin, "printed something else than a credential")) from None
    if version != plugin.api_version:
        msg = f"answered with apiVersion `{version}`, the kubeconfig expects `{plugin.api_version}`"
        raise PluginFailed(_message(plugin, msg))
    if bool(credential.certificate) != bool(credential.key):
        raise PluginFailed(_message(plugin, "printed a certificate or key without the other"))
    if not credential.token and not credential.certificate:
        raise PluginFailed(_message(plugin, "printed neither a token nor a certificate"))
    return credential


def _epoch_s(stamp: Mapping[str, Any] | str | None) -> float | None:
    if not stamp:
        return None
    text = str(stamp)
    if text.endswith(("Z", "z")):
        text = text[:-1] + "+00:00"
    whole, dot, rest = text.partition(".")
    if dot:  # Python 3.10 reads 3 or 6 digits only
        zone = rest.lstrip("0123456789")
        text = whole + zone
    return datetime.fromisoformat(text).timestamp()


def _message(plugin: ExecPlugin, reason: str) -> str:
    hint = " ".join(plugin.install_hint.split())
    return f"the credential plugin `{plugin.command}` {reason}{'; ' + hint if hint else ''}"
