"""`awn fit`: train on tables, and write models and reports."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from awn.cli.arguments import AsJson, Ignore, Kind, Quiet, column_kinds
from awn.cli.config import read_config
from awn.cli.folders import run_folder
from awn.cli.many import Execution, check_workers, fit_many
from awn.cli.output import err, out, print_json, print_table, say, score_text
from awn.errors import RankError

if TYPE_CHECKING:
    from awn.tabular.outcome import Start, TableFit
    from awn.tabular.read.target import Task
    from awn.tabular.settings import TableSettings


Epochs = Annotated[
    int | None, typer.Option(help="Maximum number of epochs. Default: about 25, or 50 for a regression.")
]
NetworksToAverage = Annotated[
    int | None, typer.Option(help="Number of networks to average. Default: 5, or 1 for large tables.", min=1)
]
Balanced = Annotated[
    bool, typer.Option("--balanced", help="Weigh all classes equally in training, however many rows they have.")
]


def fit(
    tables: Annotated[list[Path], typer.Argument(help="One or more CSV, TSV or Parquet files, compressed or not.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out_folder: Annotated[Path | None, typer.Option("--out", help="Output folder. Default: runs/NAME.")] = None,
    task: Annotated[str | None, typer.Option(help="classification or regression. Default: inferred.")] = None,
    ignore: Ignore = None,
    kind: Kind = None,
    hidden_layers: Annotated[int | None, typer.Option(help="Number of hidden layers. Default: 2.")] = None,
    test_size: Annotated[float, typer.Option(help="Fraction of the rows in the test set.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Random seed of the test split and the training.")] = 0,
    seeds: Annotated[int, typer.Option(help="Number of runs per table, with consecutive seeds.", min=1)] = 1,
    workers: Annotated[int | None, typer.Option(help="Number of runs at a time. Default: 1.", min=1)] = None,
    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster, or `local` to start one.")] = None,
    epochs: Epochs = None,
    max_units: Annotated[int | None, typer.Option(help="Maximum number of units per layer. Default: 256.")] = None,
    max_params: Annotated[int | None, typer.Option(help="Maximum number of parameters. Default: no limit.")] = None,
    members: NetworksToAverage = None,
    config: Annotated[Path | None, typer.Option(help="JSON or TOML file of estimator parameters.")] = None,
    balanced: Balanced = False,
    compare: Annotated[
        bool, typer.Option(help="Also train a fixed network, gradient boosting and a linear model, to compare.")
    ] = True,
    explain: Annotated[bool, typer.Option(help="Measure how important the columns are, for the report.")] = True,
    threads: Annotated[int, typer.Option(help="Number of torch threads; 1 is fastest for small networks.", min=1)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Overwrite an existing run.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a network on a table. Each hidden layer learns its own width.

    Example:  awn fit houses.csv --target price --out runs/houses

    Several runs:  awn fit houses.csv flats.csv --target price --seeds 5 --workers 4

    Data-parallel training:  torchrun --nproc-per-node 4 -m awn fit houses.csv --target price
    """
    import torch

    from awn.tabular.settings import TableSettings

    torch.set_num_threads(threads)
    own: dict[str, Any] = {"hidden_layers": hidden_layers, "epochs": epochs, "max_units": max_units}
    own |= {"max_params": max_params, "members": members, "class_weight": "balanced" if balanced else None}
    options = {**read_config(config), **{name: value for name, value in own.items() if value is not None}}
    if kinds := column_kinds(ignore or [], kind or []):
        options["kinds"] = {**(options.get("kinds") or {}), **kinds}
    settings = TableSettings(target, cast("Task | None", task), test_size, seed, compare, explain, options)
    check_workers(workers, ray)
    execution = Execution(workers or 1, ray, threads, resume, overwrite)
    if len(tables) > 1 or seeds > 1 or ray:
        fit_many(tables, range(seed, seed + seeds), out_folder, settings, execution, quiet=quiet, as_json=as_json)
    else:
        _fit_one(tables[0], out_folder, settings, execution, quiet=quiet, as_json=as_json)


def _fit_one(
    table: Path, given: Path | None, settings: TableSettings, execution: Execution, *, quiet: bool, as_json: bool
) -> None:
    """Make one run, in all processes of torchrun together if it started this one."""
    from awn.parallel.torchrun import times_restarted, torchrun_group, wait_for_all

    if execution.workers > 1:
        say("--workers has no effect: one table with one seed is a single run.", quiet=quiet)
    # After a failure, torchrun starts the same command again, which must then resume. A run to overwrite is the
    # exception: the checkpoint in its folder may belong to another run.
    begun = given is not None and (given / "run").is_dir()
    resume = execution.resume or (times_restarted() > 0 and begun and not execution.overwrite)
    with torchrun_group() as rank:
        folder = run_folder(given, table, resume=resume, overwrite=execution.overwrite)
        wait_for_all()  # every rank has checked the folder before one of them writes to it
        result = _train(table, folder, settings, resume=resume, quiet=quiet or rank > 0)
    if rank > 0:
        return
    if as_json:
        print_json(asdict(result))
    else:
        print_result(result)


def _train(table: Path, folder: Path, settings: TableSettings, *, resume: bool, quiet: bool) -> TableFit:
    from awn.cli.display import LiveDisplay, PlainDisplay
    from awn.parallel.torchrun import several_ranks
    from awn.tabular.fitting import fit_table

    display = None if quiet else LiveDisplay(err) if err.is_terminal else PlainDisplay(err)

    def begin(start: Start) -> None:
        for note in start.notes:
            say(note, quiet=quiet)
        if display is not None:
            display.score_name = start.score_name

    try:
        return fit_table(
            table,
            folder,
            settings,
            callbacks=[] if display is None else [display],
            resume=resume,
            data_parallel=several_ranks(),
            begin=begin,
        )
    except KeyboardInterrupt:
        say(f"Interrupted. {_how_to_resume(folder)}".strip())
        raise typer.Exit(1) from None
    except RankError as error:
        raise RankError(f"{error} {_how_to_resume(folder)}".strip()) from error
    finally:
        if display is not None:
            display.close()


def _how_to_resume(folder: Path) -> str:
    begun = (folder / "run").is_dir()
    return f"To resume, run the same command with --out {folder} --resume." if begun else ""


def print_result(result: TableFit) -> None:
    """Print the scores, the widths, and the paths of the model and the report."""
    from awn.tabular.outcome import network_name

    out.print(f"{result.answer()}\n", highlight=False, markup=False, soft_wrap=True)
    rows = [(network_name(name, result.task), score_text(score)) for name, score in result.scores.items()]
    print_table(f"Scores on the test set ({result.rows['test']:,} rows)", ["model", result.score_name], rows)
    measures = [
        (name, f"{one['value']:.4g}", f"{one['low']:.4g} to {one['high']:.4g}")
        for name, one in result.measures["adaptive"].items()
    ]
    print_table("The adaptive network on the test set", ["measure", "value", "95 % interval"], measures)
    layers = [(layer, units) for layer, units in result.widths.items()]
    print_table("Learned widths", ["layer", "units"], [*layers, ("total", sum(result.widths.values()))])
    out.print(f"{result.parameters:,} parameters, trained in {result.seconds:.1f} s", highlight=False)
    for note in result.ending():
        out.print(note, highlight=False, markup=False, soft_wrap=True)
    out.print(f"model:  {result.model}\nreport: {result.report}", highlight=False, soft_wrap=True)
