"""Frames of pandas, which is optional: metrics and tables for those who work with it."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from adabest.extras import require


def as_frame(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any], what: str = "to_pandas") -> Any:
    """A ``pandas.DataFrame``.

    Args:
        rows: Rows by name of column, or columns by name.
        what: What makes the frame, for the message.

    Raises:
        InputError: If pandas isn't installed.
    """
    require(what, "pandas", "pandas")
    return importlib.import_module("pandas").DataFrame(rows)
