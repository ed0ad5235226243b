"""`awn fit`: from a table to a model, its widths and a report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import torch
import typer

from awn.cli.config import read_config
from awn.cli.display import LiveDisplay, PlainDisplay
from awn.cli.folders import run_folder
from awn.cli.many import Fleet, check_crew, fit_many
from awn.cli.output import err, out, print_json, print_table, say
from awn.errors import RankError
from awn.parallel.torchrun import several_ranks, times_restarted, torchrun_group, wait_for_all

if TYPE_CHECKING:
    from awn.tabular.outcome import Start, TableFit
    from awn.tabular.read.target import Task
    from awn.tabular.settings import TableSettings

Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but errors and results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def fit(
    tables: Annotated[list[Path], typer.Argument(help="A CSV, TSV or Parquet file, .gz too; or several.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out_folder: Annotated[Path | None, typer.Option("--out", help="Where to write. Default: runs/NAME.")] = None,
    task: Annotated[str | None, typer.Option(help="classification or regression. Default: guessed and said.")] = None,
    hidden_layers: Annotated[int | None, typer.Option(help="Number of hidden layers.")] = None,
    test_size: Annotated[float, typer.Option(help="Share of the rows to hold out and judge by.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Decides the split and the start.")] = 0,
    seeds: Annotated[int, typer.Option(help="Runs of each table, with one seed after the other.", min=1)] = 1,
    workers: Annotated[
        int | None, typer.Option(help="Processes that share the runs, on this machine. Default: 1.", min=1)
    ] = None,
    ray: Annotated[str | None, typer.Option(help="The address of a Ray cluster, or `local` to start one.")] = None,
    epochs: Annotated[int | None, typer.Option(help="At most this many passes over the rows.")] = None,
    max_units: Annotated[int | None, typer.Option(help="Most units a layer may have. Default: 256.")] = None,
    max_params: Annotated[int | None, typer.Option(help="Most parameters the network may have.")] = None,
    config: Annotated[Path | None, typer.Option(help="A JSON or TOML file of the estimator's options.")] = None,
    compare: Annotated[bool, typer.Option(help="Also train an ordinary network of the learned widths.")] = True,
    threads: Annotated[int, typer.Option(help="Threads of torch; small networks are fastest with one.", min=1)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a network on a table; its layers find their own width.

    Example:  awn fit houses.csv --target price --out runs/houses

    Many runs:  awn fit houses.csv flats.csv --target price --seeds 5 --workers 4

    Several processes, each with a part of every batch:  torchrun --nproc-per-node 4 -m awn fit houses.csv …
    """
    from awn.tabular.settings import TableSettings

    torch.set_num_threads(threads)
    named = {"hidden_layers": hidden_layers, "epochs": epochs, "max_units": max_units, "max_params": max_params}
    options = {**read_config(config), **{name: value for name, value in named.items() if value is not None}}
    settings = TableSettings(target, cast("Task | None", task), test_size, seed, compare, options)
    check_crew(workers, ray)
    if len(tables) > 1 or seeds > 1 or ray:
        fleet = Fleet(workers or 1, ray, threads, resume, overwrite)
        every = range(seed, seed + seeds)
        fit_many(tables, every, out_folder, settings, fleet, quiet=quiet, as_json=as_json)
        return
    if workers and workers > 1:
        say("One table with one seed is one run, so there is nothing for --workers to share out.", quiet=quiet)
    # What torchrun starts again after a rank has ended goes on from its checkpoint; that of a run to overwrite may be
    # of another.
    begun = out_folder is not None and (out_folder / "run").is_dir()
    resume = resume or (times_restarted() > 0 and begun and not overwrite)
    with torchrun_group() as rank:
        folder = run_folder(out_folder, tables[0], resume=resume, overwrite=overwrite)
        wait_for_all()  # every rank has looked before one of them writes
        result = _fit(tables[0], folder, settings, resume=resume, quiet=quiet or rank > 0)
    if rank > 0:
        return
    if as_json:
        print_json(asdict(result))
        return
    print_result(result)


def _fit(table: Path, folder: Path, settings: TableSettings, *, resume: bool, quiet: bool) -> TableFit:
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
        say(f"Interrupted. {_to_go_on(folder)}")
        raise typer.Exit(1) from None
    except RankError as error:
        raise RankError(f"{error} {_to_go_on(folder)}".strip()) from error
    finally:
        if display is not None:
            display.close()


def _to_go_on(folder: Path) -> str:
    begun = (folder / "run").is_dir()
    return f"To go on: the same command with --out {folder} --resume." if begun else ""


def print_result(result: TableFit) -> None:
    """The scores, the widths, and where everything is."""
    from awn.tabular.outcome import network_name

    rows = [(network_name(name, result.task), f"{score:.4f}") for name, score in result.scores.items()]
    print_table(f"{result.score_name} on {result.rows['test']:,} rows held out", ["network", result.score_name], rows)
    layers = [(layer, units) for layer, units in result.widths.items()]
    print_table("learned widths", ["layer", "units"], [*layers, ("all", sum(result.widths.values()))])
    out.print(f"{result.parameters:,} parameters, trained in {result.seconds:.1f} s", highlight=False)
    for note in result.ending():
        out.print(note, highlight=False, markup=False, soft_wrap=True)
    out.print(f"model:  {result.model}\nreport: {result.report}", highlight=False, soft_wrap=True)
