"""Formats components and options for a terminal."""

from collections.abc import Mapping

from torchx.cli._look import Look
from torchx.specs import get_type_name, runopts

_INDENT = "      "


def components_text(described: Mapping[str, str]) -> str:
    """Returns names, each with the first sentence of its description."""
    look = Look()
    width = max(map(len, described), default=0)
    lines: list[str] = []
    for name, description in described.items():
        first = description.strip().partition("\n")[0]
        if look.width < 2 * width:  # in a narrow window the description goes below the name
            lines += [look.bold(name), *look.wrap(f"  {first}", "  ")]
            continue
        head, *rest = look.wrap(f"{' ' * (width + 2)}{first}", " " * (width + 2))
        lines += [look.bold(name.ljust(width)) + head[width:], *rest]
    lines += ["", look.dim("torchx run COMPONENT --help shows its arguments")]
    return "\n".join(lines)


def options_text(name: str, opts: runopts) -> str:
    """Returns the options of a scheduler, required ones first."""
    look = Look()
    lines = [look.bold(name)]
    for key, opt in sorted(opts, key=lambda item: not item[1].is_required):
        kind = get_type_name(opt.opt_type) if opt.opt_type else "any"
        if opt.is_required:
            about = f"{kind}, {look.paint('required', 'yellow')}"
        elif opt.default in (None, ""):
            about = kind
        else:
            about = f"{kind}, default {opt.default}"
        lines += look.wrap(f"  {look.paint(key, 'green')} {look.dim(f'({about})')}", _INDENT)
        lines += look.wrap(f"{_INDENT}{' '.join(str(opt.help).split())}", _INDENT)
    return "\n".join(lines)
