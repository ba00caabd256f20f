"""Describes the installed plugins, for diagnostics."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx.plugins._types import PluginType, RegistrationError

if TYPE_CHECKING:
    from torchx.plugins._registry import PluginRegistry

Entry = dict[str, Any]


def describe(registry: "PluginRegistry") -> dict[str, list[Entry]]:
    """Returns sections by kind, and ``errors`` of no kind; aliases and fractions are folded."""
    errors = registry.check()
    described = {kind.label: _section(kind, registry, errors) for kind in PluginType}
    described["errors"] = [
        {"module": error.module, "error": error.error}
        for error in errors
        if error.plugin_type is None
    ]
    return described


def _section(
    kind: PluginType, registry: "PluginRegistry", errors: Iterable[RegistrationError]
) -> list[Entry]:
    mine = [error for error in errors if error.plugin_type == kind.label]
    failed = {(error.module, error.name) for error in mine}
    entries: dict[str, Entry] = {}
    folded: list[tuple[str, Any]] = []
    plugins = registry.get(kind)
    for name, factory in plugins.items():
        if getattr(factory, "_plugin_base_name", name) in plugins.keys() - {name}:
            folded.append((name, factory))
        elif (module_of(factory), name) not in failed:
            entries[name] = entry(name, factory)
    for name, factory in folded:
        base = entries.get(factory._plugin_base_name)
        if base is None:
            entries[name] = entry(name, factory)
            continue
        key = "aliases" if getattr(factory, "_plugin_is_alias", False) else "fractionals"
        base.setdefault(key, []).append(name)
    shown = [_in_order(item) for item in entries.values()]
    return shown + [
        {"name": error.name, "module": error.module, "error": error.error} for error in mine
    ]


def _in_order(item: Entry) -> Entry:
    keys = ("name", "module", "distribution", "aliases", "fractionals")
    return {key: item[key] for key in keys if key in item}


def entry(name: str, factory: Callable[..., Any]) -> Entry:
    """Name, module and, where it is known, distribution of one plugin."""
    described: Entry = {"name": name, "module": module_of(factory)}
    distribution = distribution_of(factory)
    if distribution:
        described["distribution"] = distribution
    return described


def module_of(factory: Any) -> str:
    """Module that defines the plugin."""
    from torchx.util.entrypoints import EntryPointLoader

    if isinstance(factory, EntryPointLoader):
        return factory.module
    return str(factory.__module__)


def distribution_of(factory: Any) -> str | None:
    """Name and version of the distribution that a plugin comes from; ``None`` if not found."""
    from torchx.util.entrypoints import EntryPointLoader

    if isinstance(factory, EntryPointLoader):
        return factory.distribution
    import sys

    module = sys.modules.get(factory.__module__)
    file = getattr(module, "__file__", None)
    return _owners().find(file) if file else None


class _Owners:
    """Finds the distribution that installed a file."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: list[tuple[str, str]] = []
        from importlib.metadata import distributions

        for dist in distributions():
            self._add(dist)

    def _add(self, dist: Any) -> None:
        import json
        import os
        from urllib.parse import unquote, urlsplit

        label = f"{dist.metadata['Name']} {dist.version}"
        for file in dist.files or ():
            if file.parts[:1] == ("torchx_plugins",):
                self._files[os.path.realpath(str(dist.locate_file(file)))] = label
        text = dist.read_text("direct_url.json")
        if text:
            origin = json.loads(text)
            if origin.get("dir_info", {}).get("editable"):
                folder = unquote(urlsplit(origin["url"]).path)
                self._folders.append((os.path.realpath(folder) + os.sep, label))

    def find(self, file: str) -> str | None:
        import os

        path = os.path.realpath(file)
        if path in self._files:
            return self._files[path]
        inside = [(folder, label) for folder, label in self._folders if path.startswith(folder)]
        return max(inside)[1] if inside else None


_cached_owners: list[_Owners] = []


def _owners() -> _Owners:
    if not _cached_owners:
        _cached_owners.append(_Owners())
    return _cached_owners[0]


def to_yaml(described: Mapping[str, list[Entry]]) -> str:
    """Renders data as text that ``yaml.safe_load`` reads back unchanged."""
    lines = []
    for section, entries in described.items():
        if not entries:
            lines.append(f"{section}: []")
            continue
        lines.append(f"{section}:")
        for item in entries:
            mark = "-"
            for key, value in item.items():
                lines.append(f"  {mark} {key}: {_value(key, value)}")
                mark = " "
    return "\n".join(lines) + "\n"


def _value(key: str, value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_scalar(item) for item in value)}]"
    if key == "error":
        return _quoted(value)
    return _scalar(value)


def _scalar(text: str) -> str:
    """Renders a text bare if YAML reads it back unchanged, quoted otherwise."""
    import yaml

    plain = all(c.isalnum() or c in "._-/ +" for c in text) and text == text.strip()
    if plain and text:
        try:
            if yaml.safe_load(f"[{text}]") == [text]:
                return text
        except yaml.YAMLError:
            pass
    return _quoted(text)


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)
