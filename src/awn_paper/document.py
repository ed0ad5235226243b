"""The document: every table and figure, ours beside the paper's, as Markdown with pictures and as one HTML page."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awn.basics.text_table import markdown_table
from awn.files.write import write_files
from awn.report.figure import Figures
from awn.report.markup import Section, items, plots, table
from awn.report.markup import plot as place
from awn.report.page import write_page
from awn_paper.claims import claims_table
from awn_paper.experiments import EXPERIMENTS, Show
from awn_paper.pictures import interactive, picture
from awn_paper.protocol import PROFILES, Experiment, Profile
from awn_paper.run import Record
from awn_paper.show import Plot, Results, Shown, Table
from awn_paper.store import Store

_INTRODUCTION = """# The paper, reproduced

Every table and figure of "Adaptive Width Neural Networks", ours beside the paper's. This page is written by `awn paper
report` from the files under `results/paper`: a JSON file for every run, with its settings, seed, commit and history.

    awn paper list                          # the experiments
    awn paper run table1 --only Spiral      # on two cores; --profile paper is the paper's own protocol
    awn paper report                        # this page, and results/paper/report.html

Data sets are read from the folder that `AWN_DATA` names, or the user's cache. A file that is missing
is fetched from its home, and its hash checked, but for MiniBooNE, whose hash is not known to us; only the table of
credit cards must be put there by hand, and the error says where.
Mean (deviation) over runs. "Not run" means that nobody has run it yet.

In both profiles, what the paper does not say or we do otherwise:

- Of epochs with the same validation accuracy the last is kept, whose layers have had more time to find their width.
- Of configurations with the same validation accuracy the one with the lower validation loss is chosen, a rule that was
  made after the first results: see Table 1.
- λ is learned through its logarithm. Biases start as PyTorch's do; so do the weights of fixed networks.
- The features of real tables have mean 0 and deviation 1 over the training part. MiniBooNE is the file of UCI.
- MNIST and CIFAR keep their own test part, and a sixth of the rest is for validation.
- For model selection, training and validation are drawn anew from their union, unless a data set has its own splits.
- The paper takes the fixed graph networks from the literature; ours are trained.
- The Transformer norms before each part, and its output layer is its embedding.
- Weight decay, where there is any, leaves out biases, norms and λ.
- A width is that of the epoch that is kept, which need not be the last, unless a table says otherwise.
"""


@dataclass(frozen=True)
class Part:
    """An experiment in one profile: what was run, by whom, and what is shown of it."""

    experiment: Experiment
    profile: Profile | None
    says: str
    origin: str
    shown: Sequence[Shown]
    words: str


def write_document(root: Path, document: Path, pictures: Path, page: Path, *, png: bool = False) -> list[Path]:
    """Write the document, its pictures and the page; returns their paths. With `png` the pictures come as PNG too.

    Words on a result stand in `notes/<experiment>.md` under the root, those on the paper's own protocol in
    `notes/<experiment>-paper.md`, those on all claims in `notes/claims.md`.
    """
    parts = [part for experiment, show in EXPERIMENTS.values() for part in _parts(Store(root), experiment, show)]
    files: dict[Path, bytes] = {}
    sections: list[Section] = []
    figures: Figures = {}
    claims = claims_table(lambda name: _results(Store(root), EXPERIMENTS[name][0]))
    words = _note(Store(root), "claims")
    text = [_INTRODUCTION, f"## The claims\n\n{markdown_table(claims.head, claims.rows)}\n"]
    text += [f"{words}\n"] if words else []
    body = table(claims.head, claims.rows, "The claims") + (items(words.split("\n\n")) if words else "")
    sections.append(Section("claims", "The claims", "", body))
    for part in parts:
        text.append(_markdown(part, document, pictures, files, png=png))
        sections.append(_section(part, figures))
    files[document] = "\n".join(text).encode()
    write_files(files)
    write_page(page, "The paper, reproduced", "", sections, figures)
    return [*files, page]


def _parts(store: Store, experiment: Experiment, show: Show) -> list[Part]:
    parts = []
    for profile in PROFILES:
        outcomes = store.outcomes(experiment, profile)
        if outcomes:
            says = " ".join(dict.fromkeys(outcome["says"] for outcome in outcomes))
            results, words = Results(tuple(outcomes)), _words(store, experiment, profile)
            parts.append(Part(experiment, profile, says, _origin(experiment, profile, results), show(results), words))
    return parts or [Part(experiment, None, "", "", show(Results(())), _words(store, experiment, "small"))]


def _words(store: Store, experiment: Experiment, profile: Profile) -> str:
    return _note(store, experiment.name if profile == "small" else f"{experiment.name}-paper")


def _note(store: Store, name: str) -> str:
    note = store.root / "notes" / f"{name}.md"
    return note.read_text(encoding="utf-8").strip() if note.is_file() else ""


def _results(store: Store, experiment: Experiment) -> Results:
    """For every data set, the results by the paper's own protocol once they have all cases that the small ones have."""
    exact, small = (Results(tuple(store.outcomes(experiment, profile))) for profile in PROFILES)
    done = [name for name in exact.datasets if _cases(exact, name) >= _cases(small, name)]
    return Results(
        tuple(outcome for outcome in exact.outcomes if outcome["dataset"] in done)
        + tuple(outcome for outcome in small.outcomes if outcome["dataset"] not in done)
    )


def _cases(results: Results, dataset: str) -> set[tuple[str, int]]:
    return {(outcome["label"], outcome["fold"]) for outcome in results.outcomes if outcome["dataset"] == dataset}


def _origin(experiment: Experiment, profile: Profile, results: Results) -> str:
    """For every data set, what makes its runs, and by which commits and on which days they were made."""
    made = []
    for name in results.datasets:
        runs = [run for outcome in results.outcomes if outcome["dataset"] == name for run in _runs(outcome)]
        if not runs:
            continue
        command = ["awn", "paper", "run", experiment.name, "--only", name]
        command += ["--profile", profile] if profile != "small" else []
        commits = ", ".join(dict.fromkeys(run["from"]["commit"] or "commit unknown" for run in runs))
        days = sorted({str(run["from"]["date"])[:10] for run in runs})
        made.append(f"`{shlex.join(command)}` ({commits}; {' to '.join(dict.fromkeys((days[0], days[-1])))})")
    return "; ".join(made)


def _runs(outcome: dict[str, Any]) -> list[Record]:
    return [*outcome["selection"], *outcome["final"]]


def _markdown(part: Part, document: Path, pictures: Path, files: dict[Path, bytes], *, png: bool) -> str:
    lines = [f"## {part.experiment.title}", "", f"`awn paper run {part.experiment.name}`. {part.experiment.says}", ""]
    if part.profile is None:
        lines += ["Not run yet; the paper's figures stand alone.", ""]
    else:
        lines += [f"Profile `{part.profile}`: {part.says} Made by {part.origin}.", ""]
    for shown in part.shown:
        if isinstance(shown, Table):
            lines += [markdown_table(shown.head, shown.rows), ""]
        else:
            file = pictures / f"{shown.key}-{part.profile}.svg"
            files[file] = picture(shown)
            if png:
                files[file.with_suffix(".png")] = picture(shown, "png")
            link = Path(os.path.relpath(file, document.parent)).as_posix()
            lines += [f"![{shown.title}]({link})", ""]
    if part.words:
        lines += [part.words, ""]
    return "\n".join(lines)


def _section(part: Part, figures: Figures) -> Section:
    body, drawn = "", []
    for shown in part.shown:
        if isinstance(shown, Plot):
            key = f"{shown.key}-{part.profile}"
            figures[key] = interactive(shown)
            drawn.append(place(key, shown.title, shown.title))
        else:
            body += table(shown.head, shown.rows, part.experiment.title)
    facts = [part.says, f"Made by {part.origin}."] if part.profile else ["Not run yet."]
    body += items([fact.replace("`", "") for fact in facts]) + (plots(drawn) if drawn else "")
    if part.words:
        body += items(part.words.split("\n\n"))
    name = f"{part.experiment.name}-{part.profile or 'none'}"
    return Section(name, part.experiment.title, part.experiment.says, body)
