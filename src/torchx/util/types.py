"""Turns text from command lines and config files into typed values."""

import itertools
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

if TYPE_CHECKING:
    import inspect

    from torchx._startup.signatures import Parameter

T = TypeVar("T")

_PRIMITIVES = (int, str, float)
_DELIMITERS = (",", ";")


def to_list(arg: str) -> list[str]:
    """Splits text at commas and trims the elements; blank text gives an empty list."""
    return [part.strip() for part in arg.split(",")] if arg.strip() else []


def to_dict(arg: str) -> dict[str, str]:
    """Parses ``key=value`` pairs, separated by ``,`` or ``;``, which may also occur inside values.

    The last separator before a key ends the preceding value. Quotes protect ``=``, ``,`` and ``;``.
    A value that begins with ``-`` may hold ``=`` as well: it ends only before a ``,key=`` whose
    key is one word that does not begin with ``-``.

    >>> to_dict("FOO=v1,v2,BAR=v3")
    {'FOO': 'v1,v2', 'BAR': 'v3'}
    >>> to_dict("FOO=--x=1 --y=2,3,BAR=v3")
    {'FOO': '--x=1 --y=2,3', 'BAR': 'v3'}

    Raises:
        ValueError: if the text is not of this form.
    """
    if not arg:
        return {}
    spans = _split_unquoted(arg)
    if len(spans) < 2:
        msg = f"`{arg}` does not have at least one `key=value` pair (empty values: `key=''`)"
        raise ValueError(msg)
    key = arg[slice(*spans[0])]
    pairs = {}
    value_at = spans[1][0]
    for (start, end), (following_at, _) in itertools.pairwise(spans[1:]):
        piece = arg[start:end]
        cut = _last_delimiter(piece)
        following = piece[cut + 1 :].strip()
        goes_on = value_at < start  # the value holds a `=` already
        if arg[value_at] == "-" and (cut < 0 or (goes_on and not _is_word(following))):
            continue
        value = arg[value_at : start + max(cut, 0)].strip()
        if not value or not following:
            delims = list(_DELIMITERS)
            msg = f"`{piece}` cannot be split into `val<delim>key` with delims={delims}"
            raise ValueError(msg)
        pairs[key] = _unquote(value)
        key, value_at = following, following_at
    pairs[key] = _unquote(arg[value_at : spans[-1][1]])
    return pairs


def _is_word(text: str) -> bool:
    return len(text.split()) == 1 and not text.startswith("-")


def _quoted(text: str) -> list[bool]:
    """Returns, for each character, whether it is a quote or inside quotes."""
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
    """Returns True if the quote at that index is closed; an apostrophe alone is no quote."""
    end = at + 1
    while end < len(text):
        if text[end] == "\\":
            end += 1
        elif text[end] == text[at]:
            return True
        end += 1
    return False


def _split_unquoted(text: str) -> list[tuple[int, int]]:
    """Returns start and end of each piece between unquoted ``=``, without surrounding blanks."""
    ends = [at for at, quoted in enumerate(_quoted(text)) if text[at] == "=" and not quoted]
    spans = []
    for start, end in itertools.pairwise([-1, *ends, len(text)]):
        piece = text[start + 1 : end].strip()
        if piece:
            start = text.index(piece, start + 1)
            spans.append((start, start + len(piece)))
    return spans


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
    """Returns True if the type is ``bool``."""
    return param_type is bool


def is_primitive(param_type: Any) -> bool:
    """Returns True if the type is ``int``, ``str`` or ``float``; False for ``bool``."""
    return param_type in _PRIMITIVES


def decode(encoded_value: Any, annotation: Any) -> Any:
    """Converts a text to a value of the annotated type; a typed value is returned unchanged."""
    annotation = strip_annotated(annotation)
    if encoded_value is None:
        return None
    if is_bool(annotation):
        return encoded_value and encoded_value.lower() == "true"
    if not is_primitive(annotation) and isinstance(encoded_value, str):
        return decode_from_string(encoded_value, annotation)
    return encoded_value


def decode_from_string(encoded_value: str, annotation: Any) -> dict[Any, Any] | list[Any] | None:
    """Parses a list or dict from text; ``None`` for empty text.

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


def get_argparse_param_type(parameter: "inspect.Parameter | Parameter") -> type:
    """Returns the type that argparse converts to: ``int``, ``float`` or ``str``."""
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
