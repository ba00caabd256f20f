"""Reads the descriptions of a component and its parameters from its docstring."""

from collections.abc import Callable


def get_fn_docstring(fn: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Returns the description of a function and of each parameter, from its Google-style docstring.

    The description of an undocumented parameter is a single space. Works for classes, too.
    """
    default = (
        f"{getattr(fn, '__name__', 'component')} TIP: improve this help string by adding a"
        " docstring\nto your component; `torchx builtins --print utils.echo` shows one"
    )
    import inspect

    descriptions = dict.fromkeys(inspect.signature(fn).parameters, " ")
    text = inspect.getdoc(fn)
    if not text:
        return default, descriptions
    from docstring_parser import parse
    from docstring_parser.common import DocstringStyle

    docstring = parse(text, style=DocstringStyle.GOOGLE)
    for param in docstring.params:
        descriptions[param.arg_name] = param.description or " "
    description = docstring.short_description or default
    if docstring.long_description:
        description += f"\n{docstring.long_description}"
    return description, descriptions
