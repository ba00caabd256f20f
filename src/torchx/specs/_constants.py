"""Placeholders for missing values."""

ALL = "all"
"""The pseudo backend that stands for every scheduler."""
MISSING = "<MISSING>"
"""A required text that was not given."""
NONE = "<NONE>"
"""An optional text that was not given."""
UNKNOWN = "<UNKNOWN>"
"""An attribute that a scheduler could not recover."""
GiB = 1024
"""MB in one GiB."""
