"""The description of a fitted preprocessor: its schema, its format number, and the format before it."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from awn.basics.limits import limits
from awn.basics.schema import Schema, entries, find_fault, items, maybe, number, one_of, record, text, whole
from awn.errors import CheckpointError
from awn.tabular.encode.columns import ColumnKind
from awn.tabular.encode.dates import PARTS
from awn.tabular.read.written import NumberFormat

#: The format that this version writes.
#:
#: 1. Until 18 November 2026. Numbers were standardised and clipped, without bins; `scales` could be named `deviations`.
#: 2. Numbers have a robust scale with a smooth limit, and bins.
#: 3. Whole numbers that name something have codes.
FORMAT = 3
# A restored encoding is fitted to a table of all levels, with a column for each column of categories.
_MOST_CELLS = 10**8


def read_preprocessing(data: Any) -> dict[str, Any]:
    """The description of a preprocessor in the present format, checked."""
    held = data.get("format") if isinstance(data, dict) else type(data).__name__
    if type(held) is not int or not 1 <= held <= FORMAT:
        raise CheckpointError(
            f"The preprocessing has format {held!r}; this version of awn reads formats 1 to {FORMAT}."
        )
    numbers = data.get("numbers")
    if held == 1:
        if isinstance(numbers, dict) and "deviations" in numbers:
            numbers = {**numbers, "scales": numbers["deviations"]}
            del numbers["deviations"]
        data = {**data, "format": FORMAT, "bins": 0, "numbers": numbers}
        data["edges"] = None if numbers is None else {"columns": [], "lows": [], "widths": []}
    if held <= 2:
        data = {**data, "format": FORMAT, "codes": None if numbers is None else {"columns": [], "values": []}}
    fault = find_fault(data, _preprocessing())
    if fault is None and data["categories"]:
        most = max(len(column["levels"]) + len(column["rare"]) for column in data["categories"])
        cells = 2 * most * len(data["categories"])
        fault = f"categories has {cells:,} levels, more than {_MOST_CELLS:,}" if cells > _MOST_CELLS else None
    if fault is not None:
        raise CheckpointError(f"The preprocessing is damaged or was edited: {fault}. Restore the file from a copy.")
    return dict(data)


def _preprocessing() -> Schema:
    columns = limits().table_columns
    column = {"name": text(), "kind": one_of(*get_args(ColumnKind)), "note": text(), "date_format": maybe(text())}
    written = {"number_format": one_of(None, *get_args(NumberFormat))}
    calendar = {"first": Schema("a date", _is_date), "parts": items(one_of(*PARTS), 0, len(PARTS))}
    scaling = {
        "medians": items(number()),
        "scales": items(number(above=0)),
        **{name: items(whole(0)) for name in ("marked", "marks")},
    }
    bins = {"columns": items(whole(0)), "lows": items(number()), "widths": items(number(above=0))}
    return record(
        {
            "format": whole(1, FORMAT),
            "kinds": entries(text()),
            "max_levels": whole(2),
            "bins": whole(0),
            "edges": maybe(record(bins)),
            "codes": maybe(record({"columns": items(whole(0)), "values": items(number())})),
            "columns": items(record(column, written), 1, columns),
            "dates": entries(record(calendar)),
            "numbers": maybe(record(scaling, {"means": items(number())})),
            "categories": maybe(items(record({"levels": items(text()), "rare": items(text())}), 1, columns)),
        }
    )


def _is_date(value: Any) -> bool:
    try:
        return isinstance(value, str) and not np.isnat(np.datetime64(value))
    except ValueError:
        return False
