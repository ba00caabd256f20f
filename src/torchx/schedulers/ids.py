"""Short random ids that are valid inside names of jobs, pods and hosts."""

import os

START_CANDIDATES: str = "bcdfghjklmnpqrstvwxz"
END_CANDIDATES: str = START_CANDIDATES + "012345679"


def make_unique(name: str, string_length: int = 0) -> str:
    """Returns ``<name>-<random id>``; a length of 0 means an id of full length.

    >>> make_unique("trainer").startswith("trainer-")
    True
    """
    return f"{name}-{random_id(None if string_length == 0 else string_length)}"


def random_id(max_length: int | None = None) -> str:
    """Returns at most ``max_length`` symbols, first a consonant; about 13 without a limit.

    >>> len(random_id(4)) <= 4
    True
    """
    if max_length is not None and max_length <= 0:
        return ""
    value = random_uint64()
    symbols = ""
    candidates = START_CANDIDATES
    while value or not symbols:  # 0 is an id of one symbol, not an empty one
        value, digit = divmod(value, len(candidates))
        symbols += candidates[digit]
        if len(symbols) == max_length:
            break
        candidates = END_CANDIDATES
    return symbols


def get_len_random_id(string_length: int) -> str:
    """Returns an id of exactly that many symbols, as in release 0.7.

    >>> len(get_len_random_id(4))
    4
    """
    symbols = ""
    while len(symbols) < string_length:
        # the first symbol of every piece is one that may begin a name
        symbols += random_id(string_length - len(symbols))
    return symbols


def random_uint64() -> int:
    """Returns a number from the system's entropy: seeding ``random`` must not repeat ids."""
    return int.from_bytes(os.urandom(8), "big")
