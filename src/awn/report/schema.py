"""The schema of report.json, the data behind a report."""

from __future__ import annotations

from awn.basics.schema import Schema, anything, either, entries, flag, items, maybe, number, one_of, record, row, text
from awn.basics.schema import whole as whole_number

# JSON has no NaN and no infinity, so `to_plain` writes them as text.
_NUMBER = either(number(), one_of("nan", "inf", "-inf"))
_SOME = maybe(_NUMBER)
_COUNT = whole_number(0)
_VALUE = either(text(), number(), flag(), one_of(None))

_EPOCH = record(
    {"epoch": _COUNT},
    {
        **dict.fromkeys(("score", "train_score", "total", "data", "weights", "width", "budget"), _SOME),
        "widths": maybe(entries(_NUMBER)),
        "nu": maybe(entries(_NUMBER)),
        "best": flag(),
        "path": text(),
    },
    others=anything(),
)
_LAYER = record(
    {"name": text(), "importance": items(_NUMBER), "units": _COUNT, "quantile": number(), "nu": _NUMBER},
)
_POINT = record(
    {
        "keep": number(above=0),
        "units": entries(_COUNT),
        "parameters": _COUNT,
        "score": _NUMBER,
        "latency_ms": _NUMBER,
    }
)
_LEADER = record(
    {"name": text(), "score": _NUMBER, "low": _NUMBER, "high": _NUMBER},
    {
        **dict.fromkeys(("loss", "loss_low", "loss_high", "seconds"), _SOME),
        **dict.fromkeys(("units", "parameters"), maybe(_COUNT)),
    },
)
_SIZE_CURVE = record(
    {"points": items(_LEADER, 1), "chosen": _COUNT, "rows": text()},
    {"final": maybe(_LEADER), "others": items(_LEADER)},
)
_COLUMN = record(
    {"name": text(), "kind": text(), "missing": _NUMBER, "levels": _COUNT},
    {"counts": items(_COUNT), "labels": items(text()), "importance": _SOME, "spread": _SOME},
)
_DEPENDENCE = record({"column": text(), "values": items(_VALUE), "curves": entries(items(_NUMBER))})
_HARD_ROWS = record({"head": items(text()), "rows": items(items(_VALUE))})
_CALIBRATION = record(
    {},
    {
        **dict.fromkeys(("confidence", "accuracy", "rows"), items(_NUMBER)),
        **dict.fromkeys(("error", "temperature", "wanted", "covered", "width"), _NUMBER),
    },
)
_MEASURES = entries(entries(record(dict.fromkeys(("value", "low", "high"), _NUMBER))))

#: The content of report.json. Entries that a report does not know are ignored.
REPORT: Schema = record(
    {"title": text(), "task": text(), "score_name": text()},
    {
        "headline": items(row(text(), _VALUE)),
        "history": items(_EPOCH),
        "layers": items(_LAYER),
        "truncation": items(_POINT),
        "activations": entries(entries(items(_NUMBER))),
        "confusion": maybe(record({"labels": items(text()), "counts": items(items(_NUMBER))})),
        "residuals": maybe(record({"actual": items(_NUMBER), "predicted": items(_NUMBER)})),
        "settings": entries(anything()),
        "environment": entries(anything()),
        "notes": items(text()),
        **dict.fromkeys(("answer", "leader_rows", "importance_name", "truncation_rows", "kept_because"), text()),
        "size_curve": maybe(_SIZE_CURVE),
        "leaders": items(_LEADER),
        "columns": items(_COLUMN),
        "dependences": items(_DEPENDENCE),
        "hard_rows": maybe(_HARD_ROWS),
        "max_units": maybe(_COUNT),
        "column_count": _COUNT,
        "calibration": maybe(_CALIBRATION),
        "measures": _MEASURES,
    },
    others=anything(),
)
