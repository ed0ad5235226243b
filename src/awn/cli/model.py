"""Commands for a trained model: predict, inspect, truncate, compress, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from awn.basics.checks import check_number, check_units
from awn.cli.arguments import AsJson, Quiet
from awn.cli.folders import check_free, check_out_file, find_model
from awn.cli.output import out, print_bytes, print_json, print_table, say, score_text
from awn.errors import ArgumentError

ModelFolder = Annotated[Path, typer.Argument(help="Run or model folder, written by `awn fit`.")]
ScoringTable = Annotated[
    Path,
    typer.Option(
        "--data",
        help="Table with the target column: the training table, whose validation rows decide, or another one.",
    ),
]
Repair = Annotated[
    bool,
    typer.Option(help="Refit the weights that read the remaining units to the rows of the table, without its target."),
]
OutFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder of the smaller model. Default: a new folder beside the model.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Overwrite an existing model.")]
_ENDINGS = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}


def predict(
    model: ModelFolder,
    table: Annotated[
        Path, typer.Argument(help="Table with the columns of the training table; the target is optional.")
    ],
    out_file: Annotated[Path | None, typer.Option("--out", help="CSV file. Default: the standard output.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Predict the probability of every class.")] = False,
    interval: Annotated[
        float | None, typer.Option(help="Add prediction intervals that cover this share of the rows, such as 0.9.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the table to write, too. May be repeated.")
    ] = None,
    all_columns: Annotated[bool, typer.Option("--all", help="Write all columns of the table, too.")] = False,
    safe: Annotated[
        bool, typer.Option("--safe", help="Write no text that a spreadsheet takes for a formula: quote it with '.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict the target of every row of a table.

    Example:  awn predict runs/houses/model new_houses.csv --out predictions.csv
    """
    from awn.tabular.predicting import predict_table, without_formulas

    found = find_model(model)
    if out_file is not None:
        if out_file.resolve() == table.resolve():
            raise ArgumentError(f"--out {out_file} is the input table itself. Pass another file.")
        check_out_file(out_file, (".csv", ".txt"), model=found)
    kept = None if all_columns else keep or []
    predicted = predict_table(found, table, proba=proba, keep=kept, interval=interval)
    if safe:
        predicted = without_formulas(predicted)
    if out_file is not None:
        from awn.files.write import write_files

        write_files({out_file: predicted.to_csv(index=False).encode()})
        say(f"Wrote {len(predicted):,} predictions to {out_file}", quiet=quiet)
    if as_json:
        print_json({name: predicted[name].tolist() for name in predicted})
    elif out_file is None:
        print_bytes(predicted.to_csv(index=False).encode())


def inspect(model: ModelFolder, as_json: AsJson = False) -> None:
    """Show a model's target, scores, layers and inputs.

    Example:  awn inspect runs/houses/model
    """
    from awn.core.summary import summary
    from awn.tabular.folder import load_estimator, read_about
    from awn.tabular.outcome import network_name

    estimator, about = load_estimator(find_model(model)), read_about(find_model(model))
    layers = summary(estimator.model_)
    if as_json:
        columns = estimator.preprocessor_.feature_names
        rows = [vars(layer) for layer in layers.layers]
        print_json({**about, "layers": rows, "parameters": layers.parameters, "inputs": list(columns)})
        return
    title = f"{about.get('task', 'model')} of {about.get('target', 'a target')} from {about.get('table', 'a table')}"
    out.print(title, highlight=False, markup=False, soft_wrap=True)
    names = {name: network_name(name, about.get("task", "")) for name in about.get("scores", {})}
    scores = [(name, score_text(about["scores"][score])) for score, name in names.items()]
    # A truncated model was scored on the table that the user passed, which may be the training table.
    scored_on = f"all rows of {about['scored_on']}" if about.get("scored_on") else "the test set"
    print_table(f"Scores on {scored_on}", ["network", about.get("score_name", "score")], scores)
    out.print(str(layers), highlight=False)
    out.print(f"{estimator.n_features_in_} columns, {len(estimator.preprocessor_.feature_names)} inputs")


def truncate(
    model: ModelFolder,
    data: ScoringTable,
    out_folder: OutFolder = None,
    keep: Annotated[float | None, typer.Option(help="Fraction of the units to keep.")] = None,
    units: Annotated[int | None, typer.Option(help="Number of units to keep in each layer.")] = None,
    max_params: Annotated[int | None, typer.Option(help="Maximum number of parameters to keep.")] = None,
    repair: Repair = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Remove the least important units of a model, and show the score before and after.

    Example:  awn truncate runs/houses/model --keep 0.7 --data houses.csv --out small
    """
    from awn.tabular.predicting import truncate_model

    check_cut(keep, units, max_params)
    found = find_model(model)
    out_folder = free_folder(out_folder, found, "truncated", overwrite)
    result = truncate_model(found, data, out_folder, keep=keep, units=units, max_params=max_params, repair=repair)
    show_smaller(result, as_json)


def compress(
    model: ModelFolder,
    data: ScoringTable,
    out_folder: OutFolder = None,
    max_drop: Annotated[float, typer.Option(help="Largest allowed drop of the score.")] = 0.005,
    repair: Repair = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Truncate a model as far as possible while its score drops by at most --max-drop.

    Example:  awn compress runs/houses/model --data houses.csv --max-drop 0.005 --out small
    """
    from awn.tabular.predicting import compress_model

    check_number("max_drop", max_drop, or_equal=True)
    found = find_model(model)
    out_folder = free_folder(out_folder, found, "compressed", overwrite)
    show_smaller(compress_model(found, data, out_folder, max_drop=max_drop, repair=repair), as_json)


def export(
    model: ModelFolder,
    export_format: Annotated[str, typer.Option("--format", help="onnx, torch or safetensors.")] = "onnx",
    out_file: Annotated[Path | None, typer.Option("--out", help="File to write. Default: beside the model.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Export a model for use without awn.

    Example:  awn export runs/houses/model --format onnx --out houses.onnx
    """
    from awn.tabular.exporting import export_model

    found = find_model(model)
    path = out_file or found.with_name(found.resolve().name + _ENDINGS.get(export_format, ""))
    if export_format in _ENDINGS:
        check_out_file(path, tuple(_ENDINGS.values()), model=found)
    description = export_model(found, path, export_format)
    say(f"Wrote {path}. {description}", quiet=quiet)
    if as_json:
        print_json({"file": str(path), "format": export_format, "description": description})


def check_cut(keep: float | None, units: int | None, max_params: int | None) -> None:
    """Refuse a cut that `awn.truncate` would refuse, before anything is read or written."""
    if sum(choice is not None for choice in (keep, units, max_params)) != 1:
        raise ArgumentError("Choose exactly one of --keep, --units and --max-params.")
    if keep is not None and not 0 < keep <= 1:
        raise ArgumentError(f"keep must be a fraction above 0 and at most 1, got {keep}.", argument="keep")
    for name, number in (("units", units), ("max_params", max_params)):
        if number is not None:
            check_units(name, number)


def free_folder(given: Path | None, model: Path, kind: str, overwrite: bool) -> Path:
    """The folder of a smaller model; an existing one is refused unless it may be overwritten."""
    folder = given or model.with_name(f"{model.resolve().name}-{kind}")
    if folder.resolve() == model.resolve():
        raise ArgumentError(f"--out {folder} is the model itself. Pass another folder for the smaller model.")
    check_free(folder, overwrite=overwrite)
    return folder


def show_smaller(result: dict[str, Any], as_json: bool) -> None:
    """Print the score and the size of a model before and after a cut."""
    if as_json:
        print_json(result)
        return
    before, after = result["before"], result["after"]
    rows_of = {"score": result["rows"], "test_score": "the test rows"}
    rows = [
        *(
            (f"{result['score_name']} on {where}", f"{before[name]:.4f}", f"{after[name]:.4f}")
            for name, where in rows_of.items()
            if name in before
        ),
        ("parameters", f"{before['parameters']:,}", f"{after['parameters']:,}"),
        *((layer, units, after["widths"][layer]) for layer, units in before["widths"].items()),
    ]
    print_table("Before and after", ["", "before", "after"], rows)
    out.print(f"model: {result['model']}", highlight=False, soft_wrap=True)
