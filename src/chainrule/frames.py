"""Tables of pandas, which is imported only when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainrule.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas


def frame(**columns: Any) -> pandas.DataFrame:
    """A pandas table of these columns."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "tables", "a table of pandas") from None
    return pandas.DataFrame(columns)
