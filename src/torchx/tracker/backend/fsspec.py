"""Tracks runs in small files, on any file system that fsspec knows.

Below the root, with ``enc`` for Base32 of the ASCII text:

    {enc(run_id)}/metadata/{time_ns}          {"metadata": {...}}                   per call
    {enc(run_id)}/artifacts/{time_ns}         {"name", "path", "metadata"}          per call
    {enc(run_id)}/sources/{enc(source_id)}    names of artifacts, one a line; a blank one for none
    {enc(run_id)}/descendants/{enc(child)}    as for sources, written by the child

File systems other than local ones have no locks; writers there store each line once more:

    {enc(run_id)}/sources.lines/{enc(source_id)}/{hash}    also descendants.lines; readers skip it

Several processes may write at once. A file that cannot be read is named in a warning.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import ConfigMissing as ConfigMissing
from torchx.errors import InvalidInput, NotInstalled
from torchx.errors import RootMissing as RootMissing
from torchx.tracker.api import Lineage, TrackerArtifact, TrackerBase, TrackerSource
from torchx.tracker.backend._files import Files, files_of, generate_filename

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["FsspecTracker", "create", "generate_filename"]

logger = get_logger(__name__)

_METADATA = "metadata"
_ARTIFACTS = "artifacts"
_SOURCES = "sources"
_DESCENDANTS = "descendants"

_REQUIRED = ("protocol", "root_path")


@lru_cache(maxsize=1024)  # a process writes about few runs
def _encode(text: str) -> str:
    """
    >>> _encode("run1")
    'OJ2W4MI='
    """
    return base64.b32encode(text.encode("ascii")).decode("ascii")


def _decode(name: str) -> str:
    """
    >>> _decode("OJ2W4MI=")
    'run1'

    Raises:
        ValueError: if the name is not of this form.
    """
    text = base64.b32decode(name).decode("ascii")  # binascii.Error is a ValueError
    if _encode(text) != name:
        raise binascii.Error("not in its one form")
    return text


class _PathBuilder:
    """Builds the paths of a run's files.

    Args:
        root_dir: as it was given.
    """

    def __init__(self, root_dir: str, base: str) -> None:
        self.root_dir = root_dir
        self._base = base.rstrip("/")

    def root(self) -> str:
        return self._base or "/"

    def run(self, run_id: str) -> str:
        return f"{self._base}/{_encode(run_id)}"

    def part(self, run_id: str, part: str) -> str:
        return f"{self._base}/{_encode(run_id)}/{part}"


class FsspecTracker(TrackerBase):
    """Tracks runs below a folder that exists.

    Args:
        root_dir: path or URL on the file system.

    Raises:
        AssertionError: if it does not exist.
    """

    def __init__(self, fs: "AbstractFileSystem", root_dir: str) -> None:
        if not fs.exists(root_dir):
            msg = (
                f"the folder to track runs in, `{root_dir}`, does not exist on the"
                f" {type(fs).__name__}; create it, or correct `root_path` in the config"
            )
            raise RootMissing(msg)
        self._fs = fs
        self._path_builder = _PathBuilder(root_dir, fs._strip_protocol(root_dir))
        self._files: Files = files_of(fs)

    def __repr__(self) -> str:
        return f"<FsspecTracker: root_path={self._path_builder.root_dir}>"

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Records values by name.

        Raises:
            TypeError: for a value that JSON has no form for.
        """
        self._add(run_id, _METADATA, {"metadata": kwargs})

    def metadata(self, run_id: str) -> Mapping[str, object]:
        found: dict[str, object] = {}
        for entry in self._entries(run_id, _METADATA, _metadata_of):
            found.update(entry)
        return found

    def add_artifact(
        self,
        run_id: str,
        name: str,
        path: str,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        plain = dict(metadata) if metadata is not None else None
        self._add(run_id, _ARTIFACTS, {"name": name, "path": path, "metadata": plain})

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        entries = self._entries(run_id, _ARTIFACTS, _artifact_of)
        return {artifact.name: artifact for artifact in entries}

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Records a source, also at the source itself if it is a run tracked here.

        Blanks around the name of the artifact are left out.

        Raises:
            ValueError: for a name of an artifact with a line break.
        """
        if artifact_name and ("\n" in artifact_name or "\r" in artifact_name):
            msg = f"the name of an artifact must be one line, given: {artifact_name!r}"
            raise InvalidInput(msg)
        line = (artifact_name or "").strip()
        paths = self._path_builder
        self._files.add_line(paths.part(run_id, _SOURCES), _encode(source_id), line)
        if self._files.exists(paths.run(source_id)):
            self._files.add_line(paths.part(source_id, _DESCENDANTS), _encode(run_id), line)

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        wanted = artifact_name.strip() if artifact_name is not None else None
        return [
            source
            for source in self._links(run_id, _SOURCES)
            if wanted is None or source.artifact_name == wanted
        ]

    def lineage(self, run_id: str) -> Lineage:
        """Sources and descendants; in the latter the id is that of the descendant."""
        return Lineage(
            sources=list(self._links(run_id, _SOURCES)),
            descendants=list(self._links(run_id, _DESCENDANTS)),
        )

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        parent = kwargs.get("parent_run_id")
        found = []
        for name in self._files.folders(self._path_builder.root()):
            run_id = _decoded(name, self._path_builder.root_dir)
            if run_id is None:
                continue
            if parent is None or self._has_source(run_id, parent):
                found.append(run_id)
        return found

    def _has_source(self, run_id: str, parent: str) -> bool:
        folder = self._path_builder.part(run_id, _SOURCES)
        return self._files.exists(f"{folder}/{_encode(parent)}")

    def _add(self, run_id: str, part: str, entry: dict[str, Any]) -> None:
        data = json.dumps(entry).encode()
        self._files.create(self._path_builder.part(run_id, part), data)

    def _entries(self, run_id: str, part: str, parse: Callable[[Any], Any]) -> Iterator[Any]:
        """Parsed files in the order in which they were written."""
        folder = self._path_builder.part(run_id, part)
        for name, data in self._files.read_all(folder):
            try:
                yield parse(json.loads(data))
            except (ValueError, TypeError, KeyError, RecursionError) as err:
                _report(f"{folder}/{name}", f"{type(err).__name__}: {err}")

    def _links(self, run_id: str, part: str) -> Iterator[TrackerSource]:
        folder = self._path_builder.part(run_id, part)
        for name, data in self._files.read_all(folder):
            linked = _decoded(name, folder)
            if linked is None:
                continue
            lines = data.decode("utf-8", errors="replace").split("\n")
            if len(lines) > 1 and not lines[-1]:
                del lines[-1]  # the text after the last line break
            for line in dict.fromkeys(line.strip() for line in lines):
                yield TrackerSource(linked, line or None)


def _metadata_of(entry: Any) -> dict[str, object]:
    values = entry["metadata"]
    if not isinstance(values, dict):
        raise TypeError("`metadata` is not an object")
    return values


def _artifact_of(entry: Any) -> TrackerArtifact:
    name, path, metadata = entry["name"], entry["path"], entry["metadata"]
    if not isinstance(name, str) or not isinstance(path, str):
        raise TypeError("`name` and `path` are not text")
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError("`metadata` is not an object")
    return TrackerArtifact(name, path, metadata)


def _decoded(name: str, where: str) -> str | None:
    try:
        return _decode(name)
    except ValueError:
        if not name.startswith("."):
            _report(f"{where}/{name}", "the name is not Base32 of an id")
        return None


def _report(path: str, why: str) -> None:
    logger.warning("`%s` is left out, it was not written by this tracker: %s", path, why)


def _read_config(path: str) -> Mapping[str, Any]:
    """Reads ``key=value`` lines; dotted keys give nested dicts. All values are text."""
    import fsspec

    config: dict[str, Any] = {}
    try:
        with fsspec.open(path, "r", encoding="utf-8", newline="\n") as f:
            lines = list(f)
    except FileNotFoundError:
        msg = f"the tracker's config file `{path}` does not exist"
        raise ConfigMissing(msg) from None
    except IsADirectoryError:
        msg = f"the tracker's config must be a file with `key=value` lines, `{path}` is a folder"
        raise InvalidInput(msg) from None
    for line in lines:
        key, equals, value = line.partition("=")
        key = key.strip()
        if line.startswith("#") or not equals or not key or not value:
            continue
        _insert(config, key, value.strip(), path)
    return config


def _insert(config: dict[str, Any], key: str, value: str, path: str) -> None:
    *parents, last = key.split(".")
    if not last or not all(parents):
        msg = f"`{key}` in `{path}` has an empty part: write names with single dots between them"
        raise InvalidInput(msg)
    level = config
    for part in parents:
        level = level.setdefault(part, {})
        if not isinstance(level, dict):
            msg = f"`{key}` in `{path}`: `{part}` has a value already and cannot have parts"
            raise InvalidInput(msg)
    level[last] = value


def create(config_file: str | None) -> TrackerBase:
    """Creates the tracker that a config file describes.

    ``protocol`` and ``root_path`` are required; all other keys are passed to the file system.

    Args:
        config_file: path or URL.

    Raises:
        ValueError: if the file lacks a required key.
        AssertionError: if ``root_path`` does not exist.
    """
    if not config_file:
        msg = (
            "the fsspec tracker needs a config file with `protocol=` and `root_path=`: name it by"
            " `config = FILE` in section `[tracker:fsspec]` of .torchxconfig, or in"
            " TORCHX_TRACKER_FSSPEC_CONFIG"
        )
        raise InvalidInput(msg)
    try:
        import fsspec
    except ModuleNotFoundError as err:
        msg = "the fsspec tracker needs fsspec"
        raise NotInstalled(msg, name=err.name, extra="fsspec") from None
    config = dict(_read_config(config_file))
    missing = [key for key in _REQUIRED if not config.get(key)]
    if missing:
        msg = f"config file `{config_file}` lacks {', '.join(missing)}"
        raise InvalidInput(msg)
    protocol, root = config.pop("protocol"), config.pop("root_path")
    try:
        fs = fsspec.filesystem(protocol, **config)
    except (ImportError, TypeError, ValueError) as err:
        msg = f"config file `{config_file}`: the file system `{protocol}` cannot be used: {err}"
        raise InvalidInput(msg) from err
    return FsspecTracker(fs, root)
