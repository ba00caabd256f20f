"""Help text of a scheduler's options."""

from typing import TYPE_CHECKING

from torchx.specs._options import get_type_name

if TYPE_CHECKING:
    from torchx.specs._options import runopts


def format_options(opts: "runopts") -> str:
    """Returns the usage, then the required and the optional options with their help."""
    required = [(key, opt) for key, opt in opts if opt.is_required]
    optional = [(key, opt) for key, opt in opts if not opt.is_required]
    usage = [f"{k}={k.upper()}" for k, _ in required] + [f"[{k}={k.upper()}]" for k, _ in optional]
    lines = ["    usage:", f"        {','.join(usage)}"]
    if required:
        lines += ["", "    required arguments:"]
        for key, opt in required:
            lines.append(f"        {key}={key.upper()} ({get_type_name(opt.opt_type)})")
            lines.append(f"            {opt.help}")
    if optional:
        lines += ["", "    optional arguments:"]
        for key, opt in optional:
            kind = get_type_name(opt.opt_type)
            lines.append(f"        {key}={key.upper()} ({kind}, {opt.default})")
            lines.append(f"            {opt.help}")
    return "\n".join(lines)
