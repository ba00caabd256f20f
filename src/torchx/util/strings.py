"""Names that backends accept."""


def normalize_str(data: str) -> str:
    """Lower case, nothing but ``[a-z0-9-]``, no leading ``-``. May be empty.

    >>> normalize_str("-/_a/b/CD!123!")
    'abcd123'
    """
    kept = (c for c in data.lower() if c.isascii() and (c.isalnum() or c == "-"))
    return "".join(kept).lstrip("-")
