"""Keeps secrets out of what is shown: values whose name says so, passwords in URLs, known tokens.

Secrets that cannot be recognized by their name, place or form are shown.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from typing import Any

MASK = "***"

_ANYWHERE = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASSCODE",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "PRIVATE_KEY",
    "ACCESS_KEY",
    "SIGNATURE",
    "WEBHOOK",
    "CONNECTION_STRING",
)
"""Parts of names, wherever they stand."""
_WORDS = frozenset(
    "AUTHORIZATION BEARER COOKIE CRED CREDS DSN JWT PAT PSK SAS".split()  # noqa: SIM905 - read as a line
)
"""Parts of names, as whole words."""
_ENDS = ("PASS", "PWD", "AUTH")
"""How a word may end: ``PGPASS``, ``DBPWD``, ``OAUTH``."""
_OTHER_WORDS = frozenset(("BYPASS", "COMPASS", "ENCOMPASS", "OLDPWD", "SURPASS", "TRESPASS"))
_ABOUT_AUTH = frozenset(
    "ENABLED FILE HOST METHOD MODE PATH PORT PROVIDER SCHEME SOCK TIMEOUT TYPE URI URL".split()  # noqa: SIM905 - read as a line
)
"""Last words of names that tell how somebody authenticates, and hold no secret."""
_OTHER_KEYS = frozenset(("CACHE", "FOREIGN", "PARTITION", "PRIMARY", "PUBLIC", "ROUTING", "SORT"))

# shorter values are masked only behind their name: `1` would hide every digit of a request
_MIN_LENGTH_ANYWHERE = 8
_MIN_LENGTH_OF_USER = 16
"""A longer user name in an ``https`` URL without a password is taken for a token."""


@functools.cache  # few names stand in many requests
def looks_secret(name: str) -> bool:
    """Returns True if the name suggests that its value is a secret.

    >>> looks_secret("HF_TOKEN"), looks_secret("TOKENIZERS_PARALLELISM")
    (True, False)
    >>> looks_secret("GH_PAT"), looks_secret("PATH"), looks_secret("PGPASS"), looks_secret("PWD")
    (True, False, True, False)
    """
    plain = name.upper().replace("-", "_").replace(".", "_").replace("TOKENIZER", "")
    if _has_any(_ANYWHERE, plain):
        return True
    words = [word for part in plain.split("_") if (word := part.rstrip("0123456789"))]
    if not words or plain in ("PWD", "_PWD"):
        return False
    if words[-1] == "KEY" and len(words) > 1:
        return words[-2] not in _OTHER_KEYS
    return any(_is_secret_word(word, words[-1]) for word in words)


def _is_secret_word(word: str, last: str) -> bool:
    if word in _WORDS:
        return True
    if not word.endswith(_ENDS) or word in _OTHER_WORDS:
        return False
    return not (word.endswith("AUTH") and last in _ABOUT_AUTH)


# -- text ----------------------------------------------------------------------------------------


def mask_string(text: str) -> str:
    """Returns the text with secrets masked: values of secret names, passwords in URLs, known
    tokens.

    >>> mask_string("postgres://me:pw@db/x --api-key=k1 TOKEN='a b'")
    'postgres://me:***@db/x --api-key=*** TOKEN=***'
    """
    return _replaced(text, lambda secret: MASK)


def secrets_of(text: str) -> list[str]:
    """Returns the secrets that ``mask_string`` would mask in the text."""
    found: list[str] = []

    def note(secret: str) -> str:
        found.append(secret)
        return MASK

    _replaced(text, note)
    return found


_PARTS_OF_NAMES = (
    "TOKEN",
    "SECRET",
    "PASS",
    "PWD",
    "KEY",
    "CRED",
    "AUTH",
    "SIG",
    "WEBHOOK",
    "CONNECTION",
    "BEARER",
    "COOKIE",
    "DSN",
    "JWT",
    "PAT",
    "PSK",
    "SAS",
)
"""Every secret-looking name contains one of these."""
_PARTS_OF_FORMS = (
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "eyJ",
    "PRIVATE",
)
"""Every secret recognized by its form contains one of these."""
_MIN_LENGTH_OF_FORMS = 15
"""``xoxb-`` and ten characters; the others are longer."""


def _replaced(text: str, replace: "Callable[[str], str]") -> str:
    # compiling the patterns takes 2 ms, which the dry run of a job without secrets does not need
    if "://" in text and "@" in text:
        text = _PATTERNS.url.sub(lambda found: _masked_url(found, replace), text)
    if ("=" in text or ":" in text or "--" in text) and _may_name_secret(text):
        text = _PATTERNS.named.sub(lambda found: _masked_pair(found, replace), text)
    if len(text) >= _MIN_LENGTH_OF_FORMS and _has_any(_PARTS_OF_FORMS, text):
        text = _PATTERNS.form.sub(lambda found: replace(found[0]), text)
    return text


def _may_name_secret(text: str) -> bool:
    """Returns False if no name in the text can be one that looks secret."""
    if not _has_any(_PARTS_OF_NAMES, text.upper().replace("PATH", "")):
        return False
    if len(text) > _SHORT or not text.isascii():
        return True
    words = text.translate(_BETWEEN_NAMES).split()
    return any(_names_secret(word) for word in words)


_SHORT = 500
"""Up to so many characters, looking at each name takes less time than compiling the pattern."""
_BETWEEN_NAMES = {ord(c): " " for c in map(chr, range(128)) if not (c.isalnum() or c in "_.-")}


def _has_any(parts: "tuple[str, ...]", text: str) -> bool:
    for part in parts:  # noqa: SIM110 - a generator takes twice as long, here for each text shown
        if part in text:
            return True
    return False


class _Patterns:
    """The patterns that find secrets in text; each is compiled on first use."""

    @functools.cached_property
    def url(self) -> "re.Pattern[str]":
        """The beginning of a URL, up to an ``@``."""
        import re

        return re.compile(
            r"""(?<![\w+.-])([A-Za-z][\w+.-]*://)((?:(?!://)[^\s"'`<>\\])+)@(?!sha256:)"""
        )

    @functools.cached_property
    def named(self) -> "re.Pattern[str]":
        """A name with its value: ``NAME=value``, ``"name": "value"``, ``--name value``."""
        import re

        value = r"""("(?:\\.|[^"\\])*"|'[^']*'|(?:[^\s"'`;&|)#,\\]|,(?!\s*[\w.-]+=))+)"""
        return re.compile(
            rf"(?<![\w.-])(-{{0,2}}[A-Za-z_][\w.-]*)(=){value}"
            rf"""|(["'])([A-Za-z_][\w.-]*)\4(\s*:\s*)("(?:\\.|[^"\\])*"|'[^']*')"""
            rf"|(?<![\w.-])(--[A-Za-z][\w.-]*)(\s+)(?!-){value}"
            r"|(?<![\w.-])((?i:authorization)):(\s*(?i:bearer |basic |token )?\s*)([^\s\"']+)"
        )

    @functools.cached_property
    def form(self) -> "re.Pattern[str]":
        """Tokens of well-known services, and private keys."""
        import re

        return re.compile(
            r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}"
            r"|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{5,})"
            r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
            re.DOTALL,
        )


_PATTERNS = _Patterns()


def _masked_url(found: "re.Match[str]", replace: "Callable[[str], str]") -> str:
    """Returns the start of a URL up to ``@`` with its password, if any, masked."""
    scheme, info = found[1], found[2]
    user, colon, password = info.partition(":")
    in_path = any(char in user for char in "/?#[")
    if in_path:
        return found[0]
    if not colon:
        is_token = scheme.startswith("http") and len(user) >= _MIN_LENGTH_OF_USER
        return f"{scheme}{replace(user)}@" if is_token else found[0]
    port = password.replace("?", "/").replace("#", "/").partition("/")
    if port[1] and (not port[0] or port[0].isdigit()):  # host:80/path@more
        return found[0]
    return f"{scheme}{user}:{replace(password)}@" if password else found[0]


def _masked_pair(found: "re.Match[str]", replace: "Callable[[str], str]") -> str:
    groups = found.groups()
    for name_at, value_at in ((0, 2), (4, 6), (7, 9), (10, 12)):
        name, value = groups[name_at], groups[value_at]
        if name is None:
            continue
        bare = value.strip("\"'")
        if not bare or bare.startswith(("$", MASK)) or not _names_secret(name):
            break
        quote = value[0] if value_at == 6 else ""
        head = found.string[found.start() : found.start(value_at + 1)]
        return f"{head}{quote}{replace(bare)}{quote}"
    return found[0]


def _names_secret(name: str) -> bool:
    """Like ``looks_secret``, but also for options and for names like ``AccountKey``."""
    plain = name.lstrip("-")
    spread = "".join(
        f"_{char}" if char.isupper() and before.islower() else char
        for before, char in zip(f" {plain}", plain, strict=False)
    )
    return looks_secret(spread) or plain.lower() == "sig"


# -- data ----------------------------------------------------------------------------------------


def mask_app(app: "dict[str, Any]") -> "dict[str, Any]":
    """The app, as plain data, with the secrets in its roles masked."""
    masked: dict[str, Any] = mask_data({**app, "roles": []})
    return {**masked, "roles": [mask_data(role) for role in app.get("roles", ())]}


def mask_data(value: "Any", mask: "Callable[[str], str]" = mask_string) -> "Any":
    """Returns plain data with the values of secret-looking keys masked, also in ``{"name",
    "value"}`` pairs.

    Other texts and argument lists are searched for secrets, which are masked.

    Args:
        mask: masks all other text.
    """
    if isinstance(value, str):
        return mask(value) if type(value) is str else value
    if isinstance(value, Mapping):
        masked = {key: _mask_entry(key, entry, mask) for key, entry in value.items()}
        name = value.get("name")
        if isinstance(name, str) and looks_secret(name) and value.get("value"):
            masked["value"] = MASK
        return masked
    if isinstance(value, list | tuple):
        texts = mask_args([entry if isinstance(entry, str) else "" for entry in value])
        return [
            mask(text) if isinstance(entry, str) else mask_data(entry, mask)
            for entry, text in zip(value, texts, strict=True)
        ]
    return value


def mask_args(args: "list[str]") -> "list[str]":
    """Arguments of a program, masked: ``--token=x``, ``--token x``, URLs.

    >>> mask_args(["--api-key", "k1", "--epochs", "3", "PASSWORD=a,b"])
    ['--api-key', '***', '--epochs', '3', 'PASSWORD=***']
    """
    return [MASK if secret == arg else _mask_arg(arg, secret) for arg, secret in _secret_args(args)]


def _secret_args(args: "list[str]") -> "Iterator[tuple[str, str]]":
    """Yields each argument with its secret suffix; an empty suffix if there is no secret."""
    before = ""
    for arg in args:
        name, equals, value = arg.partition("=")
        if before.startswith("-") and "=" not in before and _names_secret(before):
            yield arg, "" if arg.startswith("-") else arg
        elif equals and value and _is_name(name) and _names_secret(name):
            yield arg, value
        else:
            yield arg, ""
        before = arg


def _is_name(text: str) -> bool:
    return text.lstrip("-").replace("-", "_").replace(".", "_").isidentifier()


def _mask_arg(arg: str, secret: str) -> str:
    return arg.removesuffix(secret) + MASK if secret else mask_string(arg)


def _mask_entry(key: object, entry: "Any", mask: "Callable[[str], str]") -> "Any":
    if isinstance(key, str) and isinstance(entry, str) and entry and looks_secret(key):
        return MASK
    return mask_data(entry, mask)


# -- requests and messages -----------------------------------------------------------------------


def mask_text(text: str, app: "dict[str, Any]", request: "Any" = None) -> str:
    """Returns a rendered request with the secrets of the (unmasked) app masked where they are
    found.

    Args:
        request: the request, of mappings, lists and dataclasses, for secrets that come from
            elsewhere than the app.
    """
    return _mask_known(text, {*_secrets_in(request), *_secrets_in(app)})


def mask_request(request: "Any", app: "dict[str, Any]") -> "Any":
    """Like ``mask_text``, for a request that is plain data."""
    secrets = {*_secrets_in(request), *_secrets_in(app)}
    return mask_data(request, lambda text: _mask_known(text, secrets))


def _mask_known(text: str, secrets: "set[tuple[str, str]]") -> str:
    for name, value in sorted(secrets, key=lambda secret: -len(secret[1])):
        text = _mask_value(text, name, value)
    return mask_string(text)


def mask_message(text: str) -> str:
    """Returns a message with secrets masked, also those of the environment and our arguments."""
    for secret in _known_secrets():
        text = text.replace(secret, MASK)
    return mask_string(text)


@functools.cache
def _known_secrets() -> "tuple[str, ...]":
    """Returns the long secrets in this process's environment and command line."""
    import os
    import sys

    found = {value for name, value in os.environ.items() if looks_secret(name)}
    for text in (*os.environ.values(), *sys.argv):
        found.update(secrets_of(text))
    found.update(secret for _, secret in _secret_args(sys.argv))
    return tuple(sorted((s for s in found if len(s) >= _MIN_LENGTH_ANYWHERE), key=len)[::-1])


def _secrets_in(value: "Any") -> "Iterator[tuple[str, str]]":
    """Names and values of the secrets in plain data and dataclasses."""
    if isinstance(value, str):
        for secret in secrets_of(value):
            if len(secret) >= _MIN_LENGTH_ANYWHERE:
                yield "", secret
        return
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        value = {name: getattr(value, name) for name in fields}
    if isinstance(value, Mapping):
        yield from _secrets_in_mapping(value)
    elif isinstance(value, list | tuple):
        texts = [entry if isinstance(entry, str) else "" for entry in value]
        for before, (arg, secret) in zip(["", *texts], _secret_args(texts), strict=False):
            if secret:
                yield arg.removesuffix(secret) or before, secret
        for entry in value:
            yield from _secrets_in(entry)


def _secrets_in_mapping(value: "Mapping[Any, Any]") -> "Iterator[tuple[str, str]]":
    for key, entry in value.items():
        if isinstance(key, str) and isinstance(entry, str) and entry and looks_secret(key):
            yield key, entry
        else:
            yield from _secrets_in(entry)


def _mask_value(text: str, name: str, value: str) -> str:
    import re

    for spelling in _spellings(value):
        if len(spelling) >= _MIN_LENGTH_ANYWHERE:
            text = text.replace(spelling, MASK)
        elif name:
            behind_name = rf"({re.escape(name)}\W+(?:value\W+)?){re.escape(spelling)}(?!\w)"
            text = re.sub(behind_name, rf"\g<1>{MASK}", text)
    return text


_SHELL_QUOTE = "'\"'\"'"


def _spellings(value: str) -> list[str]:
    """Returns the spellings of a value, longest first: plain, quoted for a shell (once or within a
    quoted script), and escaped for Python or JSON.
    """
    import json

    in_quotes = value.replace("'", _SHELL_QUOTE)  # how `shlex.quote` writes a quote inside quotes
    found = {value, in_quotes, in_quotes.replace("'", _SHELL_QUOTE)}
    found |= {escaped for text in found for escaped in (repr(text)[1:-1], json.dumps(text)[1:-1])}
    return sorted(found, key=len, reverse=True)
