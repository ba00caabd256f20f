"""Notes about submissions below TORCHX_HOME."""

import os
from pathlib import Path

from torchx.schedulers._core.records import recall, remember


def test_what_was_noted_last_is_recalled():
    assert recall("acme", "7") is None
    remember("acme", "7", {"dir": "/a", "roles": [1]})
    remember("acme", "7", {"dir": "/b"})
    remember("other", "7", {"dir": "/c"})
    assert recall("acme", "7") == {"dir": "/b"}
    assert recall("acme", "8") is None


def test_notes_can_be_read_by_their_owner_only():
    remember("acme", "7", {})
    (path,) = Path(os.environ["TORCHX_HOME"], "acme").iterdir()
    assert path.stat().st_mode & 0o77 == 0


def test_what_cannot_be_written_or_read_is_no_note(monkeypatch):
    Path("file").write_text("")
    monkeypatch.setenv("TORCHX_HOME", "file")
    remember("acme", "7", {})
    assert recall("acme", "7") is None
    monkeypatch.setenv("TORCHX_HOME", "home")
    remember("acme", "../7", {})
    assert not Path("home").exists()
    for text in ("{", "[]", ""):
        Path("home/acme").mkdir(parents=True, exist_ok=True)
        Path("home/acme/7.json").write_text(text)
        assert recall("acme", "7") is None
