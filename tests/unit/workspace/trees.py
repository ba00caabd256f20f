"""Small trees on disk for the tests of this folder."""

from pathlib import Path

from torchx._projects.entry import Entry


def make(root: Path, *paths: str, **contents: str) -> Path:
    """Makes files that hold their own path; a path with ``/`` at its end is a folder."""
    root.mkdir(parents=True, exist_ok=True)
    for path in paths:
        place = root / path
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(path)
    for name, text in contents.items():
        (root / name).write_text(text)
    return root


def ignore(root: Path, text: str, name: str = ".torchxignore") -> None:
    (root / name).write_text(text)


def paths(entries: list[Entry]) -> list[str]:
    """Paths of entries, folders with ``/``, links with their target."""
    marks = {"dir": "/", "file": ""}
    return [e.path + marks.get(e.kind, f" -> {e.target}") for e in entries]


def on_disk(root: Path) -> dict[str, object]:
    """What a folder holds: content and mode of files, targets of links, modes of folders."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = oct(path.stat().st_mode & 0o7777)
        else:
            found[name] = (path.read_text(), oct(path.stat().st_mode & 0o7777))
    return found
