"""Turns text from command lines and config files into typed values."""

import inspect
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

T = TypeVar("T")

_PRIMITIVES = (int, str, float)
_DELIMITERS = (",", ";")


def to_list(arg: str) -> list[str]:
    """Elements between commas, trimmed; blank text is the empty list."""
    return [part.strip() for part in arg.split(",")] if arg.strip() else []


def to_dict(arg: str) -> dict[str, str]:
    """``key=value`` pairs, separated by ``,`` or ``;``, which may also stand inside values.

    The last of them before a key ends the value before it. Quotes protect ``=``, ``,`` and ``;``.

    >>> to_dict("FOO=v1,v2,BAR=v3")
    {'FOO': 'v1,v2', 'BAR': 'v3'}

    Raises:
        ValueError: if the text is not of this form.
    """
    if not arg:
        return {}
    pieces = [stripped for piece in _split_unquoted(arg) if (stripped := piece.strip())]
    if len(pieces) < 2:
        msg = f"`{arg}` does not have at least one `key=value` pair"
        raise ValueError(msg)
    key = pieces[0]
    pairs = {}
    for piece in pieces[1:-1]:
        cut = _last_delimiter(piece)
        value, following = piece[:cut].strip(), piece[cut + 1 :].strip()
        if cut <= 0 or not following:
            delims = list(_DELIMITERS)
            msg = f"`{piece}` cannot be split into `val<delim>key` with delims={delims}"
            raise ValueError(msg)
        pairs[key] = _unquote(value)
        key = following
    pairs[key] = _unquote(pieces[-1])
    return pairs


def _quoted(text: str) -> list[bool]:
    """For each character, whether it is inside quotes (or one of them)."""
    marks = []
    quote = ""
    escaped = False
    for at, char in enumerate(text):
        if quote:
            marks.append(True)
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "'\"" and _closes(text, at):
            quote = char
            marks.append(True)
        else:
            marks.append(False)
    return marks


def _closes(text: str, at: int) -> bool:
    """Whether the quote at that place has a partner; an apostrophe alone is just a character."""
    end = at + 1
    while end < len(text):
        if text[end] == "\\":
            end += 1
        elif text[end] == text[at]:
            return True
        end += 1
    return False


def _split_unquoted(text: str) -> list[str]:
    pieces, start = [], 0
    for at, (char, quoted) in enumerate(zip(text, _quoted(text), strict=True)):
        if char == "=" and not quoted:
            pieces.append(text[start:at])
            start = at + 1
    return [*pieces, text[start:]]


def _last_delimiter(piece: str) -> int:
    marks = _quoted(piece)
    return max((i for i, c in enumerate(piece) if c in _DELIMITERS and not marks[i]), default=-1)


def _unquote(value: str) -> str:
    wrapped = len(value) >= 2 and value[0] in "'\"" and value[-1] == value[0]
    return value[1:-1] if wrapped and value[0] not in value[1:-1] else value


def decode_optional(param_type: Any) -> Any:
    """``T`` for ``Optional[T]``, ``T | None`` and ``None | T``; any other type as it is."""
    if not _is_union(param_type):
        return param_type
    members = [m for m in get_args(param_type) if m is not type(None)]
    optional = len(members) == 1 and len(get_args(param_type)) == 2
    return members[0] if optional else param_type


def _is_union(tp: Any) -> bool:
    import types

    return get_origin(tp) in (Union, types.UnionType)


def strip_annotated(tp: Any) -> Any:
    """``T`` for ``Annotated[T, ...]``; any other type as it is."""
    return get_args(tp)[0] if get_origin(tp) is Annotated else tp


def is_bool(param_type: Any) -> bool:
    """Whether the type is ``bool``."""
    return param_type is bool


def is_primitive(param_type: Any) -> bool:
    """Whether the type is ``int``, ``str`` or ``float``; ``bool`` is not."""
    return param_type in _PRIMITIVES


def decode(encoded_value: Any, annotation: Any) -> Any:
    """The value that a text stands for; what is typed already comes back as it is."""
    annotation = strip_annotated(annotation)
    if encoded_value is None:
        return None
    if is_bool(annotation):
        return encoded_value and encoded_value.lower() == "true"
    if not is_primitive(annotation) and isinstance(encoded_value, str):
        return decode_from_string(encoded_value, annotation)
    return encoded_value


def decode_from_string(encoded_value: str, annotation: Any) -> dict[Any, Any] | list[Any] | None:
    """A list or dict from its text; ``None`` for empty text.

    Raises:
        ValueError: for other annotations, or elements that cannot be read.
    """
    if not encoded_value:
        return None
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is list:
        if not is_primitive(args[0]):
            msg = "List types support only primitives: int, str, float"
            raise ValueError(msg)
        return [args[0](element) for element in to_list(encoded_value)]
    if origin is dict:
        return {args[0](k): args[1](v) for k, v in to_dict(encoded_value).items()}
    msg = f"unsupported argument annotation `{annotation}`, expected dict or list"
    raise ValueError(msg)


def get_argparse_param_type(parameter: inspect.Parameter) -> type:
    """What argparse is to convert to: ``int``, ``float`` or ``str``."""
    annotation = strip_annotated(parameter.annotation)
    return annotation if is_primitive(annotation) else str


def none_throws(optional: T | None, message: str = "Unexpected `None`") -> T:
    """The value, which must not be ``None``.

    Raises:
        AssertionError: if it is.
    """
    if optional is None:
        raise AssertionError(message)
    return optional
