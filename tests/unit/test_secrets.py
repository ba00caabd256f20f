"""What looks secret is masked, whatever it is called and wherever it stands."""

import json
import shlex
import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx._secrets import (
    looks_secret,
    mask_app,
    mask_args,
    mask_data,
    mask_message,
    mask_request,
    mask_string,
    mask_text,
)
from torchx.errors import InvalidRunConfigException

WORDS = ["MY", "DB", "PROD", "APP1", "HF", "wandb", "Git"]
SECRET_WORDS = ["TOKEN", "PAT", "PASS", "PGPASS", "SECRET", "password", "AUTH", "API_KEY", "JWT"]
NAMES = st.builds(
    lambda before, word: "_".join([*before, word]),
    st.lists(st.sampled_from(WORDS), max_size=2),
    st.sampled_from(SECRET_WORDS),
)
VALUES = st.text("abcXYZ0189-_.+!@#", min_size=8, max_size=30).map(lambda v: f"q{v}q")
"""No word that stands anywhere else."""
SCHEMES = st.sampled_from(["postgres", "https", "redis", "mysql+pymysql", "s3"])
PASSWORDS = st.text("abcXYZ019-_.~!$*@:", min_size=1, max_size=20).map(lambda p: f"zq{p}qz")


@pytest.mark.parametrize(
    "name",
    ["GH_PAT", "PGPASS", "AUTH", "MYPASS", "PASS", "DB_PWD", "SIGNING_KEY", "oauth", "SENTRY_DSN",
     "DOCKER_AUTH_CONFIG", "USERPASS2", "ssh-passphrase", "npm.auth"],
)  # fmt: skip
def test_names_that_are_secret(name):
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "PWD", "OLDPWD", "PATTERN", "COMPASS_DIR", "BYPASS", "GIT_AUTHOR_NAME", "KEY",
     "SSH_AUTH_SOCK", "AUTH_MODE", "PUBLIC_KEY", "CACHE_KEY", "KEYBOARD", "COMPAT", "name", ""],
)  # fmt: skip
def test_names_that_are_not(name):
    assert not looks_secret(name)


@pytest.mark.parametrize(
    "text",
    ["http://host:8080/a@b", "https://example.com/?mail=a@b.c", "ssh://git@github.com/x",
     "tcp://[::1]:29400", "c10d://node-1:29500", "key=value", "--epochs=3", "a@b", "KEY=x",
     "export TOKEN=$TOKEN", "name: worker", "s3://bucket/key", "docker://img:1@sha256:00"],
)  # fmt: skip
def test_text_without_secrets_stays_as_it_is(text):
    assert mask_string(text) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://u:p/w@h/d", "postgres://u:***@h/d"),
        ("a=http://u:p@h,b=http://u:q@h", "a=http://u:***@h,b=http://u:***@h"),
        ("https://0123456789abcdef0123@o1.ingest/4", "https://***@o1.ingest/4"),
        ("https://x/y?sig=ab%2F&v=1", "https://x/y?sig=***&v=1"),
        ("x?X-Amz-Signature=abc&X-Amz-Date=1", "x?X-Amz-Signature=***&X-Amz-Date=1"),
        ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: Bearer ***' x"),
        ('{"password": "a b", "user": "c"}', '{"password": "***", "user": "c"}'),
        ("AccountName=n;AccountKey=k==;x", "AccountName=n;AccountKey=***;x"),
        ("run --password hunter2 --n 3", "run --password *** --n 3"),
        ("ghp_" + "a1" * 18, "***"),
    ],
)
def test_text_with_secrets(text, masked):
    assert mask_string(text) == masked


@given(NAMES, VALUES)
def test_no_value_of_a_secret_name_is_shown(name, value):
    app = {
        "name": "a",
        "roles": [{"env": {name: value}, "args": [f"--{name}={value}", f"--{name}", value, "x"]}],
        "metadata": {name: value, "nested": {"env": [{"name": name, "value": value}]}},
    }
    shown = [
        str(mask_app(app)),
        json.dumps(mask_data(app)),
        mask_text(f"export {name}={shlex.quote(value)}\n'{value}'", app),
        mask_text(json.dumps(app), app, app),
        str(mask_request({"script": f"a {shlex.quote(value)}"}, app)),
        " ".join(mask_args(["-x", f"{name}={value}"])),
        str(InvalidRunConfigException("no", "k", {name: value})),
    ]
    assert [text for text in shown if value in text] == []
    assert name in shown[0]


@given(SCHEMES, PASSWORDS, st.booleans(), st.sampled_from(["{}", "x={}", '"{}"', "a {} b", "'{}'"]))
def test_no_password_of_a_url_is_shown(scheme, password, quoted, form):
    password = quote(password, safe="") if quoted else password
    url = form.format(f"{scheme}://user:{password}@host:5432/db?x=1")
    app = {"name": "a", "roles": [{"env": {"DATABASE": url}, "args": [url]}], "metadata": {}}
    shown = [mask_string(url), str(mask_app(app)), mask_text(str(app), app), mask_message(url)]
    assert [text for text in shown if password in text] == []
    assert all("host:5432/db?x=1" in text for text in shown)


@given(st.text(max_size=60))
def test_any_text_can_be_masked_again(text):
    once = mask_string(text)
    assert mask_string(once) == once


PIECES = [
    *("TOKEN", "passenv", "pat", "Auth", "Authorization", "AccountKey", "sig", "PATH", "v1secret"),
    *(
        "--",
        "-",
        "=",
        "+=",
        ": ",
        ",",
        "'",
        '"',
        " ",
        "\n",
        "x",
        "9",
        "_",
        ".",
        "é",
        "…",
        "Bearer ",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_look_at_names_before_the_pattern_overlooks_none(text):
    longer = text + " " * 600  # too long for that look
    assert mask_string(longer).rstrip() == mask_string(text).rstrip()


def test_a_name_that_only_contains_a_part_needs_no_pattern():
    script = """
from torchx import _secrets
text = "testenv.passenv+=#,OPENBLAS_*;tool.tox.passenv+=X"
print(_secrets.mask_string(text) == text, "named" in vars(_secrets._PATTERNS))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]
