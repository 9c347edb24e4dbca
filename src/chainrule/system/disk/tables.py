"""Results as pandas data frames and CSV files. Pandas is imported only when a frame is made."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.errors import MissingExtraError, importing
from chainrule.system.disk.atomic import replaced_file
from chainrule.system.display import ResultTable, cell, scrolled, to_html
from chainrule.system.plugins import import_object

if TYPE_CHECKING:
    import pandas


def frame(**columns: Any) -> pandas.DataFrame:
    """Return a pandas table of these columns."""
    with importing("pandas", "tables", "a table of pandas"):
        import pandas
    return pandas.DataFrame(columns)


_PICTURE = "chainrule.report.write:loss_picture"
_MOST_ROWS = 12


@dataclass(frozen=True)
class Curves:
    """The measurements of a training, in the order they were taken; a notebook shows the losses."""

    records: Sequence[dict[str, Any]]
    """Each record has the step, the tokens read, and losses in nats: of training, of validation, or both."""

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<Curves of {len(self):,} measurements: {', '.join(self.columns())}>"

    def _repr_html_(self) -> str:
        """Return the losses, as the report draws them; as a table where its libraries are not installed."""
        try:
            picture = import_object(_PICTURE)(self.records)
        except MissingExtraError as error:
            return to_html([self._table(), f"A picture of the losses: {error}"])
        return to_html([self._table() if picture is None else scrolled(picture)])

    def _table(self) -> ResultTable:
        """Return a row for some of the measurements, at equal distances; the last is one of them."""
        every = -(-len(self) // _MOST_ROWS) if len(self) else 1
        some = list(self.records)[::-1][::every][::-1]
        columns = Curves(some).columns()
        rows = zip(*(map(cell, values) for values in columns.values()), strict=True)
        return ResultTable([*columns], [list(row) for row in rows])

    def columns(self) -> dict[str, list[Any]]:
        """Return the values of each name; None for records without it."""
        names = dict.fromkeys(name for record in self.records for name in record)
        return {name: [record.get(name) for record in self.records] for name in names}

    def to_frame(self) -> pandas.DataFrame:
        """Return a pandas table with a row for each measurement."""
        return frame(**self.columns())

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file with a row for each measurement."""
        columns, text = self.columns(), io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        with replaced_file(Path(path)) as file:
            file.write(text.getvalue().encode())
