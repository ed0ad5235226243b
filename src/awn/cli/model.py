"""Commands on a trained model: predict, inspect, truncate, compress, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from awn.basics.checks import check_number, check_units
from awn.cli.display import score_text
from awn.cli.fit import AsJson, Quiet
from awn.cli.folders import check_free, find_model
from awn.cli.output import out, print_json, print_table, say
from awn.errors import ArgumentError

Model = Annotated[Path, typer.Argument(help="A model folder, as `awn fit` wrote it.")]
Rows = Annotated[Path, typer.Option("--data", help="A table with the target column, to score with.")]
OutFolder = Annotated[
    Path | None, typer.Option("--out", help="Where to write the smaller model. Default: a folder beside the model.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there.")]
_ENDINGS = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}


def predict(
    model: Model,
    table: Annotated[Path, typer.Argument(help="A table with the same columns; the target may be missing.")],
    out_file: Annotated[Path | None, typer.Option("--out", help="A CSV file. Default: the standard output.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Print the probability of every class.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a table.

    Example:  awn predict runs/houses/model new_houses.csv --out predictions.csv
    """
    from awn.tabular.predicting import predict_table

    if out_file is not None and (out_file.is_dir() or out_file.resolve() == table.resolve()):
        raise ArgumentError(f"--out {out_file} is {'a folder' if out_file.is_dir() else 'the table itself'}.")
    predicted = predict_table(find_model(model), table, proba=proba)
    if out_file is not None:
        from awn.files.write import write_files

        write_files({out_file: predicted.to_csv(index=False).encode()})
        say(f"{len(predicted):,} predictions: {out_file}", quiet=quiet)
    if as_json:
        print_json({name: predicted[name].tolist() for name in predicted})
    elif out_file is None:
        predicted.to_csv(sys.stdout, index=False)


def inspect(model: Model, as_json: AsJson = False) -> None:
    """Show what a model is: its target, scores, layers and columns.

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
    title = f"{about.get('target', 'target')} from {about.get('table', 'a table')}, {about.get('task', '')}"
    out.print(title, highlight=False, markup=False, soft_wrap=True)
    names = {name: network_name(name, about.get("task", "")) for name in about.get("scores", {})}
    scores = [(name, score_text(about["scores"][score])) for score, name in names.items()]
    # A model that was cut was judged by the table which the user gave, perhaps the one that it learned from.
    judged = f"all rows of {about['scored_on']}" if "scored_on" in about else "rows held out"
    print_table(judged, ["network", about.get("score_name", "score")], scores)
    out.print(str(layers), highlight=False)
    out.print(f"{estimator.n_features_in_} columns, {len(estimator.preprocessor_.feature_names)} inputs")


def truncate(
    model: Model,
    data: Rows,
    out_folder: OutFolder = None,
    keep: Annotated[float | None, typer.Option(help="The fraction of units to keep.")] = None,
    units: Annotated[int | None, typer.Option(help="The number of units to keep in each layer.")] = None,
    max_params: Annotated[int | None, typer.Option(help="The most parameters to keep.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Cut a model's least important units, and show what it costs.

    Example:  awn truncate runs/houses/model --keep 0.7 --data houses.csv --out small
    """
    from awn.tabular.predicting import truncate_model

    check_cut(keep, units, max_params)
    found = find_model(model)
    out_folder = free_folder(out_folder, found, "truncated", overwrite)
    show_smaller(truncate_model(found, data, out_folder, keep=keep, units=units, max_params=max_params), as_json)


def compress(
    model: Model,
    data: Rows,
    out_folder: OutFolder = None,
    max_drop: Annotated[float, typer.Option(help="How much lower the score may be.")] = 0.005,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Find the smallest cut of a model that keeps its score.

    Example:  awn compress runs/houses/model --data houses.csv --max-drop 0.005 --out small
    """
    from awn.tabular.predicting import compress_model

    check_number("max_drop", max_drop, or_equal=True)
    found = find_model(model)
    out_folder = free_folder(out_folder, found, "compressed", overwrite)
    show_smaller(compress_model(found, data, out_folder, max_drop=max_drop), as_json)


def export(
    model: Model,
    form: Annotated[str, typer.Option("--format", help="onnx, torch or safetensors.")] = "onnx",
    out_file: Annotated[Path | None, typer.Option("--out", help="A file. Default: beside the model.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a model for use without awn.

    Example:  awn export runs/houses/model --format onnx --out houses.onnx
    """
    from awn.tabular.exporting import export_model

    found = find_model(model)
    path = out_file or found.with_name(found.resolve().name + _ENDINGS.get(form, ""))
    written = export_model(found, path, form)
    say(written, quiet=quiet)
    if as_json:
        print_json({"file": str(path), "format": form, "what": written})


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
    """Where a smaller model goes: never over another, unless told to."""
    folder = given or model.with_name(f"{model.resolve().name}-{kind}")
    if folder.resolve() == model.resolve():
        raise ArgumentError(f"--out is the model itself, {model}; write the smaller one to another folder.")
    check_free(folder, overwrite=overwrite)
    return folder


def show_smaller(result: dict[str, Any], as_json: bool) -> None:
    """The table of a model before and after a cut."""
    if as_json:
        print_json(result)
        return
    before, after = result["before"], result["after"]
    rows = [
        (result["score_name"], f"{before['score']:.4f}", f"{after['score']:.4f}"),
        ("parameters", f"{before['parameters']:,}", f"{after['parameters']:,}"),
        *((layer, units, after["widths"][layer]) for layer, units in before["widths"].items()),
    ]
    print_table("cut", ["", "before", "after"], rows)
    out.print(f"model: {result['model']}", highlight=False, soft_wrap=True)
