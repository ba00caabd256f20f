"""Stand-ins for the container programs, which record what they get."""

import os
import sys

import pytest

from tests.lsf_programs import lsf_programs  # noqa: F401 - a fixture

DOCKER = """
import json, os, sys
assert sys.argv[1] == "run", sys.argv
words, env, image = sys.argv[2:], {}, None
entrypoint = None
while image is None:
    word = words.pop(0)
    if word == "-e":
        name, equals, value = words.pop(0).partition("=")
        if equals or name in os.environ:
            env[name] = value if equals else os.environ[name]
    elif word == "--entrypoint":
        entrypoint = words.pop(0)
    elif word in ("-v", "-w", "-p", "--mount", "--gpus"):
        words.pop(0)
    elif not word.startswith("--"):
        image = word
with open(os.environ["RECORD"], "w") as f:
    json.dump({"argv": sys.argv[1:], "image": image}, f)
os.execvpe(entrypoint, [entrypoint, *words], {"PATH": os.environ["PATH"], **env})
"""
APPTAINER = """
import json, os, sys
assert sys.argv[1] == "exec", sys.argv
words = sys.argv[2:]
while words[0].startswith("--"):
    del words[: 1 if words[0] == "--nv" else 2]
with open(os.environ["RECORD"], "w") as f:
    json.dump({"argv": sys.argv[1:], "image": words[0]}, f)
os.execvp(words[1], words[1:])
"""


@pytest.fixture
def containers(tmp_path, monkeypatch):
    """Docker and apptainer on PATH; the path of the file in which a call of them is recorded."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, code in (("docker", DOCKER), ("apptainer", APPTAINER)):
        program = folder / name
        program.write_text(f"#!{sys.executable} -IS\n{code}")  # a shell would change variables
        program.chmod(0o755)
    record = tmp_path / "record.json"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(record))
    return record
