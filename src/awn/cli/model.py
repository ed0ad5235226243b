"""Commands on a trained model: predict, inspect, truncate, compress, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from awn.cli.fit import AsJson, Quiet
from awn.cli.output import out, print_json, print_table, say

Model = Annotated[Path, typer.Argument(help="A model folder, as `awn fit` wrote it.")]
Rows = Annotated[Path, typer.Option("--data", help="A table with the target column, to score with.")]
OutFolder = Annotated[Path, typer.Option("--out", help="The folder to write the smaller model to.")]


def predict(
    model: Model,
    table: Annotated[Path, typer.Argument(help="A table with the same columns; the target may be missing.")],
    out_file: Annotated[Path | None, typer.Option("--out", help="A CSV file. Default: the standard output.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Print the probability of every class.")] = False,
    quiet: Quiet = False,
) -> None:
    """Predict the rows of a table.

    Example:  awn predict runs/houses/model new_houses.csv --out predictions.csv
    """
    from awn.tabular.predicting import predict_table

    predicted = predict_table(find_model(model), table, proba=proba)
    if out_file is None:
        predicted.to_csv(sys.stdout, index=False)
    else:
        from awn.files import write_files

        write_files({out_file: predicted.to_csv(index=False).encode()})
        say(f"{len(predicted):,} predictions: {out_file}", quiet=quiet)


def inspect(model: Model, as_json: AsJson = False) -> None:
    """Show what a model is: its target, scores, layers and columns.

    Example:  awn inspect runs/houses/model
    """
    from awn.summary import summary
    from awn.tabular.folder import load_estimator, read_about

    estimator, about = load_estimator(find_model(model)), read_about(find_model(model))
    layers = summary(estimator.model_)
    if as_json:
        columns = estimator.preprocessor_.feature_names
        rows = [vars(layer) for layer in layers.layers]
        print_json({**about, "layers": rows, "parameters": layers.parameters, "inputs": list(columns)})
        return
    out.print(f"{about.get('target', 'target')} from {about.get('table', 'a table')}, {about.get('task', '')}")
    names = about.get("score_name", "score")
    print_table("held-out rows", ["network", names], [(k, f"{v:.4f}") for k, v in about.get("scores", {}).items()])
    out.print(str(layers), highlight=False)
    out.print(f"{estimator.n_features_in_} columns, {len(estimator.preprocessor_.feature_names)} inputs")


def truncate(
    model: Model,
    data: Rows,
    out_folder: OutFolder,
    keep: Annotated[float | None, typer.Option(help="The fraction of units to keep.")] = None,
    units: Annotated[int | None, typer.Option(help="The number of units to keep in each layer.")] = None,
    max_params: Annotated[int | None, typer.Option(help="The most parameters to keep.")] = None,
    as_json: AsJson = False,
) -> None:
    """Cut a model's least important units, and show what it costs.

    Example:  awn truncate runs/houses/model --keep 0.7 --data houses.csv --out small
    """
    from awn.tabular.predicting import truncate_model

    show_smaller(
        truncate_model(find_model(model), data, out_folder, keep=keep, units=units, max_params=max_params), as_json
    )


def compress(
    model: Model,
    data: Rows,
    out_folder: OutFolder,
    max_drop: Annotated[float, typer.Option(help="How much lower the score may be.")] = 0.005,
    as_json: AsJson = False,
) -> None:
    """Find the smallest cut of a model that keeps its score.

    Example:  awn compress runs/houses/model --data houses.csv --max-drop 0.005 --out small
    """
    from awn.tabular.predicting import compress_model

    show_smaller(compress_model(find_model(model), data, out_folder, max_drop=max_drop), as_json)


def export(
    model: Model,
    out_file: Annotated[Path, typer.Option("--out", help="The file to write.")],
    form: Annotated[str, typer.Option("--format", help="onnx, torch or safetensors.")] = "onnx",
    quiet: Quiet = False,
) -> None:
    """Write a model for use without awn.

    Example:  awn export runs/houses/model --format onnx --out houses.onnx
    """
    from awn.tabular.exporting import export_model

    say(export_model(find_model(model), out_file, form), quiet=quiet)


def find_model(folder: Path) -> Path:
    """The model folder itself, or the one inside a run's folder."""
    return folder / "model" if (folder / "model" / "estimator.json").is_file() else folder


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
