"""The document: every table and figure, ours beside the paper's, as Markdown with pictures and as one HTML page."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from awn.basics.text_table import markdown_table
from awn.files.write import write_files
from awn.report.figure import Figures
from awn.report.markup import Section, items, plots, table
from awn.report.markup import plot as place
from awn.report.page import write_page
from awn_paper.claims import Judged, judge_claims
from awn_paper.experiments import EXPERIMENTS, Show
from awn_paper.pictures import interactive, picture
from awn_paper.protocol import PROFILES, Experiment, Profile
from awn_paper.run import Record
from awn_paper.show import Plot, Results, Shown, Table
from awn_paper.store import Store, slug

_INTRODUCTION = """# The paper, reproduced

The claims, tables and figures of [*Adaptive Width Neural Networks*](https://arxiv.org/abs/2501.15889) (Errica,
Christiansen, Zaverkin, Niepert, Alesiani, 2025), our results beside the paper's. `awn paper report` writes this page
from the files under `results/paper`: one JSON file per run, with its settings, seed, commit and history.

    awn paper list                            # the experiments
    awn paper run all --workers 2             # the small profile: an evening on two cores
    awn paper run table1 --only Spiral        # one experiment, one data set
    awn paper report                          # this page, and results/paper/report.html

There are three profiles. `paper` has the paper's epochs and settings. `long` has its epochs where two cores allow it,
over fewer configurations. `small` has fewer epochs. Each section says what differs. Every data set is shown by the
longest profile that covers all cases of the shorter ones. `awn paper run NAME --profile long --resume` continues an
interrupted run. Terms are explained [below the claims](#terms-and-conventions).
"""

_PAIRS = (
    'The criteria are ours; the paper states none. "Does not hold" means that our runs do not meet the criterion, not '
    "that they refute the paper: on images, graphs and text they are far shorter than the paper's. Three of the "
    "paper's statements have results below but no verdict: shorter model selection, wider layers without "
    "regularisation, and the width of each layer on graphs.\n\n"
    "Pairs of figures are adaptive / fixed; for searches, adaptive / best search; for Kaiming+, with it / without it."
)

_CONVENTIONS = """## Terms and conventions

In an adaptive width network (AWN), the activation of unit j of a hidden layer is multiplied by an importance that
falls with j. One learned number per layer, λ, sets how fast. For the exponential, the default, it is the rate: a
starting rate of 0.01 means 231 units. The width is the smallest number of units that hold a share k of the importance,
0.9 unless stated.
The weights have a Gaussian prior of standard deviation σ_θ. N is the number of training samples.

- *Total width*: the units of all hidden layers together.
- *Kept epoch*: the last one with the best validation score.
- *Final runs*: the chosen configuration, trained again with several seeds. Only these read the test part.
- *Anchored*: with awn's default scale of the importance, which is not in the paper.
- *F*: the F statistic of a one-way analysis of variance.

Other terms are in the [glossary](glossary.md).

Figures are means (standard deviations) over runs. "Not run" means that there is no result yet.
Data sets are read from the folder that `AWN_DATA` names, or from the user's cache. A missing file is downloaded from
its original source and verified by its hash; the hash of MiniBooNE is not known. The credit card table must be placed
in the folder by hand; the error message gives the path.

Where the paper is silent, or we differ from it, in all profiles:

- Ties in validation accuracy go to the later epoch, whose widths have had longer to converge. Patience counts from the
  first of them.
- Ties between configurations go to the lower validation loss. We introduced this rule after the first results; see
  Table 1.
- λ is learned through its logarithm. Biases, and the weights of fixed networks, have PyTorch's default initialisation.
- The features of real tables have mean 0 and standard deviation 1 over the training set. MiniBooNE is UCI's file.
- MNIST and CIFAR keep their test sets; a sixth of the training images are for validation.
- Model selection uses another random split into training and validation than the final runs, unless a data set has its
  own splits. On graphs, one selection on the first fold serves all folds, so its validation graphs are among the test
  graphs of others.
- The paper takes the fixed graph networks from the literature. Ours are trained.
- The Transformer is pre-norm, and its output layer shares the embedding's weights.
- Weight decay is not applied to biases, normalisation layers or λ.
- Unless a table says otherwise, widths are those of the kept epoch, which need not be the last.
"""

_ORIGINS = "Where the results come from"
_ORIGINS_SAY = (
    "The command that makes the runs of each data set, and the commits and days of these runs. Experiments that share "
    'runs name the same ones. "+changes" marks a commit with uncommitted changes, whose runs may not be reproduced '
    "exactly. All runs used the CPU; the seed, the settings, the processor and the versions of Python and torch are in "
    "the file of each run."
)


class Said(NamedTuple):
    """What a profile's protocol says of all its data sets, and of some."""

    of_all: str
    of_some: Sequence[str]


class Origin(NamedTuple):
    """The runs behind a data set of an experiment: the command that makes them, their commits and their days."""

    command: str
    commits: str
    days: str


@dataclass(frozen=True)
class Part:
    """An experiment: what its profiles say, what is shown of it, a few words on it, and where the runs come from."""

    experiment: Experiment
    said: Sequence[Said]
    shown: Sequence[Shown]
    words: str
    origins: Sequence[Origin]


def write_document(root: Path, document: Path, pictures: Path, page: Path, *, png: bool = False) -> list[Path]:
    """Write the document, its pictures and the page; returns their paths. With `png` the pictures come as PNG too.

    Words on a result stand in `notes/<experiment>.md` under the root, those on a claim in `notes/claims/<topic>.md`.
    """
    store = Store(root)
    parts = [_part(store, experiment, show) for experiment, show in EXPERIMENTS.values()]
    files: dict[Path, bytes] = {}
    sections: list[Section] = []
    figures: Figures = {}
    claims = judge_claims(lambda name: _results(store, EXPERIMENTS[name][0]))
    reasons = {claim.topic: _note(store, f"claims/{slug(claim.topic)}") for claim in claims}
    text = [_INTRODUCTION, _claims_markdown(claims, reasons), _CONVENTIONS]
    told = [f"{topic}: {words}" for topic, words in reasons.items() if words]
    body = table(Judged._fields, claims, "The claims") + (items(told) if told else "")
    sections.append(Section("claims", "The claims", _PAIRS, body))
    for part in parts:
        text.append(_markdown(part, document, pictures, files, png=png))
        sections.append(_section(part, figures))
    rows = tuple(tuple(origin) for part in parts for origin in part.origins)
    if rows:
        marked = [(f"`{command}`", *rest) for command, *rest in rows]
        text.append(f"## {_ORIGINS}\n\n{_ORIGINS_SAY}\n\n{markdown_table(Origin._fields, marked)}\n")
        sections.append(Section("origins", _ORIGINS, _ORIGINS_SAY, table(Origin._fields, rows, _ORIGINS)))
    files[document] = "\n".join(text).encode()
    write_files(files)
    write_page(page, "The paper, reproduced", "", sections, figures)
    return [*files, page]


def _part(store: Store, experiment: Experiment, show: Show) -> Part:
    results = _results(store, experiment)
    said: list[Said] = []
    origins: list[Origin] = []
    for profile in PROFILES:
        used = Results(tuple(outcome for outcome in results.outcomes if outcome["profile"] == profile))
        if used.outcomes:
            said.append(_said(profile, used))
            origins += _origins(experiment, profile, used)
    return Part(experiment, said, show(results), _note(store, experiment.name), origins)


def _said(profile: Profile, results: Results) -> Said:
    """The words of a profile once, and each detail with the data sets that it is about, or some of their cases."""
    of_all = " ".join(dict.fromkeys(outcome["says"] for outcome in results.outcomes))
    about: dict[str, list[str]] = {}
    for name in results.datasets:
        details = dict.fromkeys(
            (o["label"], o["details"]) for o in results.outcomes if o["dataset"] == name and o["details"]
        )
        shared = len({detail for _, detail in details}) == 1 and len(details) == len(results.labels(name))
        for label, detail in details:
            about.setdefault(detail, []).append(name if shared else f"{name}, {label}")
    return Said(
        f"Profile `{profile}`: {of_all}",
        [f"{'; '.join(dict.fromkeys(names))}: {detail}" for detail, names in about.items()],
    )


def _note(store: Store, name: str) -> str:
    note = store.root / "notes" / f"{name}.md"
    return note.read_text(encoding="utf-8").strip() if note.is_file() else ""


def _results(store: Store, experiment: Experiment) -> Results:
    """For every data set, in the order of the protocols, the longest profile that has all cases of shorter ones."""
    found = [Results(tuple(store.outcomes(experiment, profile))) for profile in PROFILES]
    planned = [protocol.datasets for protocol in (experiment.paper, experiment.long, experiment.small) if protocol]
    known = [results.datasets for results in found]
    chosen: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for names in (*planned, *known) for name in names):
        if not any(name in names for names in known):
            continue
        cases = [_cases(results, name) for results in found]
        place = next(p for p, own in enumerate(cases) if own and all(own >= other for other in cases[p + 1 :]))
        chosen += [outcome for outcome in found[place].outcomes if outcome["dataset"] == name]
    return Results(tuple(chosen))


def _cases(results: Results, dataset: str) -> set[tuple[str, int]]:
    return {(outcome["label"], outcome["fold"]) for outcome in results.outcomes if outcome["dataset"] == dataset}


def _origins(experiment: Experiment, profile: Profile, results: Results) -> list[Origin]:
    """For every data set, what makes its runs, and by which commits and on which days they were made."""
    found = []
    for name in results.datasets:
        runs = [run for outcome in results.outcomes if outcome["dataset"] == name for run in _runs(outcome)]
        if not runs:
            continue
        command = ["awn", "paper", "run", experiment.name, "--only", name]
        command += ["--profile", profile] if profile != "small" else []
        commits = ", ".join(dict.fromkeys(run["from"]["commit"] or "commit unknown" for run in runs))
        days = sorted({str(run["from"]["date"])[:10] for run in runs})
        found.append(Origin(shlex.join(command), commits, " to ".join(dict.fromkeys((days[0], days[-1])))))
    return found


def _runs(outcome: dict[str, Any]) -> list[Record]:
    return [*outcome["selection"], *outcome["final"]]


def _claims_markdown(claims: Sequence[Judged], reasons: Mapping[str, str]) -> str:
    """The verdicts in a table; then for every topic the figures, the criterion and the reason."""
    verdicts = markdown_table(("claim", "verdict"), [(claim.claim, claim.verdict) for claim in claims])
    lines = ["## The claims", "", verdicts, "", _PAIRS, ""]
    for topic, told in itertools.groupby(claims, lambda claim: claim.topic):
        lines += [f"### {topic}", ""]
        for claim in told:
            lines += [f"**{claim.claim}: {claim.verdict}.**", ""]
            lines += [f"- Ours: {claim.ours}.", f"- Paper: {claim.paper}."]
            lines += [f"- Holds if {claim.criterion}.", f"- Runs: {claim.runs}.", ""]
        lines += [reasons[topic], ""] if reasons[topic] else []
    return "\n".join(lines)


def _markdown(part: Part, document: Path, pictures: Path, files: dict[Path, bytes], *, png: bool) -> str:
    lines = [f"## {part.experiment.title}", "", f"`awn paper run {part.experiment.name}`. {part.experiment.says}", ""]
    for said in part.said or [Said("Not run yet; the paper's figures stand alone.", [])]:
        lines += [said.of_all, ""]
        lines += [*(f"- {one}" for one in said.of_some), ""] if said.of_some else []
    for shown in part.shown:
        if isinstance(shown, Table):
            lines += [markdown_table(shown.head, shown.rows), ""]
        else:
            file = pictures / f"{shown.key}.svg"
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
            figures[shown.key] = interactive(shown)
            drawn.append(place(shown.key, shown.title, shown.title))
        else:
            body += table(shown.head, shown.rows, part.experiment.title)
    facts = [one for said in part.said or [Said("Not run yet.", [])] for one in (said.of_all, *said.of_some)]
    body += items([fact.replace("`", "") for fact in facts]) + (plots(drawn) if drawn else "")
    if part.words:
        body += items(part.words.split("\n\n"))
    return Section(part.experiment.name, part.experiment.title, part.experiment.says, body)
