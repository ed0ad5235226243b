"""The description of a saved estimator: its schema, and the formats before it."""

from __future__ import annotations

import re
from typing import Any

from awn.basics.limits import limits
from awn.basics.schema import Schema, anything, either, entries, flag, items, maybe, number, one_of, record, text, whole
from awn.errors import CheckpointError
from awn.files.model_schema import FORMAT, network_options
from awn.files.read import check_content

# The types of labels: booleans, numbers, strings and objects. Others, such as 'V1000000000', could be of any size.
_LABEL_TYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|U\d{1,4}|O)")
_MOST_MEMBERS = 1000
_ABOUT = record(
    {},
    {
        "table": text(),
        "target": either(text(), number()),
        "task": text(),
        "score_name": text(),
        "scores": entries(maybe(number())),
        "scored_on": maybe(text()),
        "table_sha256": text(),
    },
    others=anything(),
)


def read_content(folder: str, content: Any, estimators: list[str]) -> dict[str, Any]:
    """The description of an estimator in the present format, checked; `estimators` are the known classes."""
    if not isinstance(content, dict) or content.get("type") not in estimators:
        raise CheckpointError(f"{folder} holds a network without an estimator. Load it with awn.load.")
    if type(content.get("format")) is not int or not 1 <= content["format"] <= FORMAT:
        raise CheckpointError(
            f"{folder} has format {content.get('format')!r}; this version of awn reads formats 1 to {FORMAT}."
        )
    check_content(content, _content(), folder, "estimator")
    return dict(content)


def _content() -> Schema:
    columns, rows = limits().table_columns, limits().layers
    fitted = record(
        {
            "preprocessor": entries(anything()),
            "n_features_in": whole(1, columns),
            "feature_names_in": maybe(items(text(), 0, columns)),
            "history": items(record({"epoch": whole(1)}, {"best": flag(), "path": text()}, others=anything())),
        },
        {
            "members": maybe(record({"number": whole(2, _MOST_MEMBERS), "options": network_options()})),
            "classes": record(
                {
                    "dtype": Schema("the type of labels", lambda value: _is_label_type(value)),
                    "labels": items(either(text(), number(), flag()), 2, columns),
                }
            ),
            "temperature": number(above=0),
            "errors": maybe(record({"sizes": items(items(number(low=0), 1), 1, rows), "rows": whole(1)})),
            "target": record(
                {"mean": items(number(), 1, rows), "scale": items(number(above=0), 1, rows), "one": flag()}
            ),
        },
    )
    return record(
        {
            "format": whole(1, FORMAT),
            "type": text(),
            "options": record(
                {"fixed_widths": one_of(None), "random_state": maybe(whole(0, 2**32))}, others=anything()
            ),
            "fitted": fitted,
            "about": _ABOUT,
            "checksum": whole(0, 2**32),
        }
    )


def _is_label_type(value: Any) -> bool:
    return isinstance(value, str) and _LABEL_TYPE.fullmatch(value) is not None
