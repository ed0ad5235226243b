"""`awn paper` and `awn bench`, which awn finds by the entry-point group `awn.commands`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from awn.basics.text_table import as_table
from awn.cli.arguments import AsJson, Quiet
from awn.cli.many import check_workers
from awn.cli.output import print_json, print_table, say
from awn.errors import ArgumentError

paper = typer.Typer(help="Run the paper's experiments and compare the results with the paper's.", no_args_is_help=True)

Root = Annotated[Path, typer.Option(help="Folder of all results.")]
_ROOT = Path("results/paper")
_MEASURED = Path("results/bench")
_TABLES = Path("results/tables")
_TABLES_PAGE = Path("docs/tables.md")


@paper.command("list")
def list_experiments(root: Root = _ROOT, as_json: AsJson = False) -> None:
    """List the experiments, with their numbers of required and finished runs in the small profile.

    Some experiments share runs: table1 and time use the same ones.
    """
    from awn_paper.experiments import EXPERIMENTS
    from awn_paper.plan import plan
    from awn_paper.store import Store

    experiments = {experiment: plan(experiment, "small", Store(root)) for experiment, _ in EXPERIMENTS.values()}
    if as_json:
        print_json(
            {
                e.name: {"title": e.title, "says": e.says, "datasets": list(e.small.datasets), **needed._asdict()}
                for e, needed in experiments.items()
            }
        )
        return
    rows = [
        (e.name, e.title, ", ".join(e.small.datasets) or "–", *("–" if number is None else number for number in needed))
        for e, needed in experiments.items()
    ]
    print_table("Experiments, small profile", ["name", "title", "data sets", "runs", "finished"], rows)


@paper.command("run")
def run(
    name: Annotated[str, typer.Argument(help="Experiment, as `awn paper list` lists them, or `all`.")],
    only: Annotated[str | None, typer.Option(help="Run only this data set.")] = None,
    case: Annotated[str | None, typer.Option(help="Run only cases whose label matches, such as 'relu6, *'.")] = None,
    profile: Annotated[
        Literal["paper", "long", "small"],
        typer.Option(help="The paper's protocol; its epochs over fewer configurations; or an evening on two cores."),
    ] = "small",
    seeds: Annotated[int | None, typer.Option(help="Number of final runs per case.", min=1)] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of runs at a time, with one thread each. Default: 1.", min=1)
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster to run on, or `local` to start one.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume interrupted runs.")] = False,
    root: Root = _ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment, or `all` one after the other. Finished runs are not repeated.

    Example:  awn paper run table1 --only Spiral --workers 2
    """
    from awn.runs.workers import local_workers, ray_workers
    from awn_paper.experiments import find_experiments
    from awn_paper.store import Store
    from awn_paper.sweep import Sweep

    check_workers(workers, ray)
    if name == "all" and (only or case):
        raise ArgumentError("--only and --case choose among the cases of one experiment. Name it in place of `all`.")
    cases = made = 0
    with ray_workers(ray) if ray else local_workers(workers or 1) as crew:
        for experiment in find_experiments(name, profile):
            sweep = Sweep(
                experiment,
                profile,
                Store(root.resolve()),
                crew,
                scratch=Path("runs/paper").resolve(),
                resume=resume,
                tell=lambda sentence: say(sentence, quiet=quiet),
            )
            cases += len(sweep.run(experiment.protocol(profile).part(only, case).with_seeds(seeds)))
            made += sweep.made
    say(f"{cases} cases, {made} new runs; results in {root if name == 'all' else root / name}", quiet=quiet)
    if as_json:
        print_json({"experiment": name, "profile": profile, "cases": cases, "runs": made})


@paper.command("report")
def report(
    root: Root = _ROOT,
    document: Annotated[Path, typer.Option(help="Markdown file to write.")] = Path("docs/paper.md"),
    pictures: Annotated[Path, typer.Option(help="Folder of its figures.")] = Path("docs/images/paper"),
    page: Annotated[Path | None, typer.Option(help="HTML file to write. Default: report.html in the root.")] = None,
    png: Annotated[bool, typer.Option("--png", help="Write the figures as PNG as well as SVG.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write the tables and figures of all finished experiments, beside the paper's own."""
    from awn_paper.document import write_document

    files = write_document(root, document, pictures, page or root / "report.html", png=png)
    say(f"Wrote {len(files)} files: {document}, {page or root / 'report.html'}, figures in {pictures}", quiet=quiet)


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Benchmarks: step, resize, answer, after, memory, tables. Default: all but tables."),
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Method of `tables` to run. May be repeated.")] = None,
    given: Annotated[Path | None, typer.Option("--out", help="Output folder. Default: results/bench.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use tiny sizes, whose times mean nothing.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print finished results as Markdown and run nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Benchmark training steps, resizes, width searches, latency and memory against fixed widths.

    `tables` compares the estimators with other methods on eighteen tables of the folder that AWN_DATA names, and
    continues an interrupted run. With --show, it writes its results to docs/tables.md.

    Example:  awn bench step
    """
    from awn_paper.bench.record import BENCHMARKS, BenchmarkRows, markdown, record

    only = list(names or ())
    if "tables" in only:
        _bench_tables(only, given or _TABLES, method or (), quick=quick, show=show, quiet=quiet)
        return
    folder = given or _MEASURED
    if show:
        typer.echo(markdown(folder))
        return
    if quick and folder.resolve() == _MEASURED.resolve():
        raise ArgumentError(
            f"--quick results must not replace measured ones. Pass an --out folder other than {_MEASURED}."
        )

    def print_rows(name: str, rows: BenchmarkRows) -> None:
        if not as_json:
            print_table(BENCHMARKS[name].TITLE, *as_table(rows))

    found = record(folder, only, quick=quick, then=print_rows)
    if as_json:
        print_json(found)
    say(f"Wrote the results to {folder}", quiet=quiet)


def _bench_tables(
    names: list[str], folder: Path, methods: Sequence[str], *, quick: bool, show: bool, quiet: bool
) -> None:
    from awn.files.write import write_files
    from awn_paper.bench.tables import measure, read, with_results

    if names != ["tables"] or quick:
        raise ArgumentError("`awn bench tables` runs alone, and has no quick size.")
    if show:
        page = with_results(_TABLES_PAGE.read_text(encoding="utf-8"), read(folder))
        write_files({_TABLES_PAGE: page.encode()})
        say(f"Wrote the results to {_TABLES_PAGE}", quiet=quiet)
        return
    measure(folder, methods=methods, tell=lambda sentence: say(sentence, quiet=quiet))
    say(f"Wrote the results to {folder}", quiet=quiet)
