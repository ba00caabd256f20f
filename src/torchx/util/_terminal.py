"""The size of the terminal, without what `shutil` costs at the start."""

import os


def help_width() -> int:
    """Columns for help texts, as argparse chooses them."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns) - 2
    try:
        return (os.get_terminal_size(1).columns or 80) - 2
    except (OSError, ValueError):  # not a terminal
        return 78


def help_lines(text: str, width: int) -> list[str]:
    """Lines of whole words, as they are typed, where argparse itself breaks long ones.

    >>> help_lines("one of kubernetes_mcad, lsf", 10)
    ['one of', 'kubernetes_mcad,', 'lsf']
    """
    import textwrap

    words = " ".join(text.split())
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False)
