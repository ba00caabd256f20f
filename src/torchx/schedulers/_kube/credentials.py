"""Keeps the credentials of a user: tokens in files rotate, those of plugins expire."""

import base64
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .config import Cluster, Config, Credential, ExecPlugin, Pem
from .errors import ConfigError

_TOKEN_FILE_S = 10.0
"""Seconds for which a token from a file is used before the file is read again."""
_EXPIRY_MARGIN_S = 5.0


def _run_plugin(plugin: ExecPlugin, cluster: Cluster) -> Credential:
    from .plugin import run_plugin  # few users have a plugin, and it loads `subprocess`

    return run_plugin(plugin, cluster)


class Credentials:
    """The current headers and certificate for requests; safe to share among threads.

    Args:
        run: returns the credential of a plugin.
        now_s: seconds since the epoch.
    """

    def __init__(
        self,
        config: Config,
        run: Callable[[ExecPlugin, Cluster], Credential] = _run_plugin,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._run = run
        self._now_s = now_s
        self._lock = threading.Lock()
        self._credential: Credential | None = None
        self._file_token = ""
        self._file_read_s = float("-inf")

    def headers(self) -> list[tuple[str, str]]:
        """Returns ``Authorization`` and the headers of impersonation."""
        user = self._config.user
        headers = [*user.impersonate]
        if token := self._token():
            headers.append(("Authorization", f"Bearer {token}"))
        elif user.basic:
            pair = ":".join(user.basic).encode()
            headers.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        return headers

    def certificate(self) -> tuple[Pem, Pem] | None:
        """Returns the client's certificate and key, if it has one."""
        user = self._config.user
        if user.certificate and user.key:
            return user.certificate, user.key
        credential = self._from_plugin()
        if credential and credential.certificate:
            return Pem(data=credential.certificate), Pem(data=credential.key)
        return None

    def refresh(self, rejected: list[tuple[str, str]]) -> bool:
        """Drops rejected credentials; returns ``False`` if renewing would give the same.

        Args:
            rejected: the headers that were sent. A request sent before another thread's refresh
                must not drop the new credentials.
        """
        user = self._config.user
        if not user.plugin and not user.token_file:
            return False
        if self.headers() != rejected:
            return True
        with self._lock:
            self._credential = None
            self._file_read_s = float("-inf")
        return bool(user.plugin) or self.headers() != rejected

    def _token(self) -> str:
        user = self._config.user
        if user.token_file:
            return self._token_of_file(user.token_file)
        if user.token:
            return user.token
        credential = self._from_plugin()
        return credential.token if credential else ""

    def _token_of_file(self, path: str) -> str:
        with self._lock:
            if self._now_s() - self._file_read_s < _TOKEN_FILE_S:
                return self._file_token
            try:
                self._file_token = Path(path).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as err:
                self._file_token = self._file_token or self._config.user.token
                if not self._file_token:
                    msg = f"the token file `{path}` of user `{self._config.user.name}`"
                    raise ConfigError(f"{msg} cannot be read: {err}") from None
            self._file_read_s = self._now_s()
            return self._file_token

    def _from_plugin(self) -> Credential | None:
        plugin = self._config.user.plugin
        if plugin is None:
            return None
        with self._lock:  # held while the plugin runs: several threads need one answer
            known = self._credential
            if known is None or self._expired(known):
                known = self._credential = self._run(plugin, self._config.cluster)
            return known

    def _expired(self, credential: Credential) -> bool:
        expires_s = credential.expires_s
        return expires_s is not None and self._now_s() >= expires_s - _EXPIRY_MARGIN_S
