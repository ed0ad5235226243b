"""AdaptiveClassifier and AdaptiveRegressor as scikit-learn estimators, and what they add to one."""

from __future__ import annotations

import inspect
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import awn
from awn.errors import ArgumentError, ColumnWarning
from awn.tabular import estimators
from awn.tabular.encode.columns import ColumnKind
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import load_estimator, save_estimator
from awn.tabular.members import layer_widths
from awn.training import Callback, Data, Progress

# Enough to learn what the checks and the tests ask for, at small cost.
OPTIONS: dict[str, Any] = {
    "units": 24,
    "epochs": 15,
    "lr": 0.02,
    "batch_size": 32,
    "hidden_layers": 2,
    "random_state": 0,
}
FEW: dict[str, Any] = {**OPTIONS, "epochs": 3}

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row that is there twice falls into other minibatches than one of weight 2, and either part of the split "
        "into training and validation rows may get it"
    ),
}


def iris() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    return X, y


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    return X[:200], y[:200]


def mixed(rows: int = 120) -> tuple[pd.DataFrame, pd.Series]:
    """A table of every kind of column, with missing values, and a target that follows from it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(50, 20, rows),
            "shop": pd.Categorical(rng.choice(["north", "south", "east"], rows)),
            "open": rng.random(rows) > 0.5,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), unit="D"),
            "note": rng.choice(["a", "b", None], rows),
        }
    )
    target = pd.Series(np.where((frame["size"] > 50) ^ (frame["shop"] == "north"), "high", "low"), name="sales")
    frame.loc[::7, "size"] = np.nan
    frame.loc[::11, "day"] = pd.NaT
    return frame, target


# scikit-learn's own checks


@parametrize_with_checks(
    [AdaptiveClassifier(**OPTIONS), AdaptiveRegressor(**OPTIONS)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks provoke some on purpose
        check(estimator)


# Life among other estimators


@pytest.mark.parametrize(("make", "data"), [(AdaptiveClassifier, iris), (AdaptiveRegressor, diabetes)])
def test_it_learns_in_a_pipeline_and_in_cross_validation(make: Any, data: Any) -> None:
    X, y = data()
    pipeline = make_pipeline(StandardScaler(), make(**{**OPTIONS, "epochs": 60}))
    # Fewest to show that it learns: the most frequent class of iris has a third, the mean an R² of 0.
    assert cross_val_score(pipeline, X, y, cv=3).mean() > (0.8 if make is AdaptiveClassifier else 0.25)


@pytest.mark.parametrize("jobs", [1, 2])
def test_grid_search(jobs: int) -> None:
    X, y = iris()
    grid = {"lr": [1e-6, 0.02]}
    search = GridSearchCV(AdaptiveClassifier(**{**OPTIONS, "epochs": 8}), grid, cv=2, n_jobs=jobs).fit(X, y)
    assert search.best_params_["lr"] == 0.02
    assert search.best_estimator_.score(X, y) == pytest.approx(np.mean(search.predict(X) == y))


def test_widths_are_looked_at_every_n_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr("awn.training.loop.resize_", lambda *args: looked.append(args) or {})
    for every in (1, 4):
        looked.clear()
        # With batch norm it is trained through autograd, where every look at the widths is a call of resize_.
        options = {"epochs": 2, "batch_size": 27, "validation_fraction": 0.1, "batch_norm": True, "choose": None}
        AdaptiveClassifier(**options, members=1, resize_every=every).fit(*iris())
        assert len(looked) == 10 // every, "two epochs of five steps"


def test_clone_gives_an_unfitted_equal() -> None:
    callback = Callback()
    estimator = AdaptiveClassifier(**FEW, class_weight={0: 1.0, 1: 2.0, 2: 1.0}, callbacks=[callback]).fit(*iris())
    copy = clone(estimator)
    assert {**copy.get_params(), "callbacks": None} == {**estimator.get_params(), "callbacks": None}
    assert not [name for name in vars(copy) if name.endswith("_") and not name.startswith("__")]


@pytest.mark.parametrize("make", [AdaptiveClassifier, AdaptiveRegressor])
def test_every_parameter_is_keyword_only_but_the_first_and_described_once(make: Any) -> None:
    first, *others = inspect.signature(make).parameters.values()
    assert first.name == "hidden_layers"
    assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in others)
    assert sorted(make().get_params()) == sorted([first.name, *(parameter.name for parameter in others)])
    for name in make().get_params():
        assert AdaptiveClassifier.__doc__.count(f"- `{name}`: ") == 1


def test_estimators_compare_by_identity_and_print_what_was_changed() -> None:
    assert AdaptiveRegressor() != AdaptiveRegressor()
    assert len({AdaptiveRegressor(), AdaptiveRegressor()}) == 2
    assert repr(AdaptiveClassifier(3, class_weight="balanced")) == (
        "AdaptiveClassifier(class_weight='balanced', hidden_layers=3)"
    )


def test_what_a_fitted_estimator_knows() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    estimator = AdaptiveClassifier(**FEW).fit(X, y)
    assert estimator.n_features_in_ == 4
    assert estimator.feature_names_in_.tolist() == list(X.columns)
    assert estimator.classes_.tolist() == [0, 1, 2]
    assert estimator.n_iter_ == len(estimator.history_) == 3
    assert estimator.members_ == 5
    assert estimator.widths_ == layer_widths(estimator.model_)


def test_callbacks_are_called() -> None:
    class Count(Callback):
        epochs = 0

        def on_epoch_end(self, progress: Progress) -> None:
            self.epochs += 1

    count = Count()
    AdaptiveRegressor(**FEW, callbacks=[count]).fit(*diabetes())
    assert count.epochs == 3


def test_the_same_random_state_gives_the_same_and_the_global_one_is_left_alone() -> None:
    X, y = diabetes()
    np.random.seed(5)
    torch.manual_seed(5)
    expected = np.random.rand(), torch.rand(1)
    np.random.seed(5)
    torch.manual_seed(5)
    first, second = (AdaptiveRegressor(**FEW, dropout=0.2).fit(X, y).predict(X) for _ in range(2))
    assert np.array_equal(first, second)
    assert (np.random.rand(), torch.rand(1)) == expected


# Tables


def test_a_table_of_every_kind_with_missing_values() -> None:
    X, y = mixed()
    estimator = AdaptiveClassifier(**{**OPTIONS, "epochs": 80}).fit(X, y)
    assert estimator.score(X, y) > 0.8
    assert set(estimator.predict(X)) == {"high", "low"}
    strange = X.head(3).assign(shop="moon", size=np.nan, day=pd.NaT, note=None)
    assert np.isfinite(estimator.predict_proba(strange)).all()
    with pytest.raises(ValueError, match=r"feature names.*\n.*\n- shop"):
        estimator.predict(X.drop(columns="shop"))


def test_arrays_may_have_missing_values_and_mean_the_same_as_frames() -> None:
    X, y = iris()
    X[::9, 2] = np.nan
    from_array = AdaptiveClassifier(**FEW).fit(X, y)
    from_frame = AdaptiveClassifier(**FEW).fit(pd.DataFrame(X, columns=list("abcd")), y)
    assert np.array_equal(from_array.predict_proba(X), from_frame.predict_proba(pd.DataFrame(X, columns=list("abcd"))))
    with pytest.raises(ValueError, match="infinity"):
        from_array.predict(np.full((1, 4), np.inf))


def test_columns_go_by_their_place_where_there_were_no_names() -> None:
    X, y = iris()
    from_array = AdaptiveClassifier(**FEW).fit(X, y)
    with pytest.warns(UserWarning, match="fitted without feature names"):
        named = from_array.predict_proba(pd.DataFrame(X, columns=list("abcd")))
    assert np.array_equal(named, from_array.predict_proba(X))
    numbered = AdaptiveClassifier(**FEW).fit(pd.DataFrame(X), y)  # columns 0, 1, 2, 3: no names to scikit-learn
    assert np.array_equal(numbered.predict_proba(pd.DataFrame(X)), numbered.predict_proba(X))


# Classes and weights


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [False, True], [-1, 1], [3, 5, 9], ["a", "b", "c", "d"], [0.0, 1.0]],
    ids=lambda labels: type(labels[0]).__name__ + str(len(labels)),
)
def test_labels_of_every_kind(labels: list[Any]) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, len(labels), 150)
    X = np.eye(len(labels))[numbers] + 0.1 * rng.normal(size=(150, len(labels)))
    y = np.array(labels)[numbers]
    estimator = AdaptiveClassifier(**OPTIONS).fit(X, y)
    assert estimator.classes_.tolist() == labels
    assert estimator.predict(X).dtype == y.dtype
    assert estimator.score(X, y) > 0.95
    chances = estimator.predict_proba(X)
    assert chances.shape == (150, len(labels))
    assert chances.sum(1) == pytest.approx(1.0)
    assert np.array_equal(estimator.classes_[chances.argmax(1)], estimator.predict(X))


def unbalanced() -> tuple[np.ndarray, np.ndarray]:
    """Two classes that overlap, of 180 rows and 20."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [180, 20])
    return rng.normal(size=(200, 2)) + 0.7 * y[:, None], y


@pytest.mark.parametrize("weight", ["balanced", {0: 1.0, 1: 9.0}], ids=["balanced", "dict"])
def test_class_weights_bring_the_rare_class_up(weight: Any) -> None:
    X, y = unbalanced()
    plain, weighted = (AdaptiveClassifier(**OPTIONS, class_weight=each).fit(X, y) for each in (None, weight))
    assert (weighted.predict(X) == 1).mean() > 2 * (plain.predict(X) == 1).mean()
    by_row = np.where(y == 1, 9.0, 1.0)
    same = AdaptiveClassifier(**OPTIONS).fit(X, y, sample_weight=by_row)
    assert same.predict_proba(X) == pytest.approx(weighted.predict_proba(X), abs=1e-3)


@pytest.mark.parametrize("weights", [{0: -1.0, 1: 1.0}, {0: 0.0, 1: 0.0}, {0: float("nan"), 1: 1.0}])
def test_class_weights_are_finite_and_not_below_zero(weights: dict[int, float]) -> None:
    with pytest.raises(ArgumentError, match=r"class_weight=.* cannot be used: weights must be finite"):
        AdaptiveClassifier(class_weight=weights).fit(np.arange(8.0)[:, None], np.arange(8) % 2)


def test_a_class_weight_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ArgumentError, match="class_weight='heavy'"):
        AdaptiveClassifier(**FEW, class_weight="heavy").fit(*iris())
    with pytest.raises(ArgumentError, match=r"class_weight=.*7"):
        AdaptiveClassifier(**FEW, class_weight={7: 2.0}).fit(*iris())


@pytest.mark.parametrize("make", [AdaptiveClassifier, AdaptiveRegressor])
def test_rows_of_weight_zero_do_not_count_at_all(make: Any) -> None:
    X, y = iris()
    used = np.arange(len(y)) % 3 > 0
    strange = np.where(used[:, None], X, 1e6)
    weighted = make(**FEW).fit(strange, np.where(used, y, 0), sample_weight=used.astype(float))
    left = make(**FEW).fit(X[used], y[used], sample_weight=np.ones(used.sum()))
    assert np.array_equal(weighted.predict(X), left.predict(X))
    with pytest.raises(ValueError, match="zero"):
        make(**FEW).fit(X, y, sample_weight=np.zeros(len(y)))


def test_the_scale_of_the_weights_does_not_matter() -> None:
    X, y = diabetes()
    weights = np.linspace(1, 2, len(y))
    first, second = (AdaptiveRegressor(**FEW).fit(X, y, sample_weight=scale * weights) for scale in (1.0, 64.0))
    assert first.predict(X) == pytest.approx(second.predict(X), rel=1e-4)


def test_missing_labels_are_refused_by_their_rows() -> None:
    with pytest.raises(ArgumentError, match=r"2 missing values, in rows 1, 3\."):
        AdaptiveClassifier().fit(np.zeros((4, 1)), pd.Series(["a", None, "b", np.nan]))


def test_one_class_and_numbers_with_decimals_are_refused() -> None:
    X, _ = iris()
    with pytest.raises(ArgumentError, match="y has only one class, 'a'"):
        AdaptiveClassifier(**FEW).fit(X, ["a"] * len(X))
    with pytest.raises(ArgumentError, match="Unknown label type"):
        AdaptiveClassifier(**FEW).fit(X, np.linspace(0, 1, len(X)))


# Regression


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_score_of_an_epoch_is_r2(targets: int, weighted: bool) -> None:
    x, y = torch.randn(20, 2), torch.randn(20, targets)
    weight = torch.rand(20) + 0.1 if weighted else None
    linear = nn.Linear(2, targets)
    expected = r2_score(y, linear(x).detach(), sample_weight=weight)
    assert estimators.r_squared(linear, Data(x, y, weight)) == pytest.approx(expected, rel=1e-5)
    assert estimators.r_squared(linear, Data(x, torch.ones(20, targets), weight)) == 0.0, "nothing to explain"


def test_several_targets_at_once() -> None:
    X, y = diabetes()
    both = np.column_stack([y, -3 * y + 7])
    estimator = AdaptiveRegressor(**{**OPTIONS, "epochs": 80}).fit(X, both)
    predicted = estimator.predict(X)
    assert predicted.shape == both.shape
    assert estimator.score(X, both) > 0.3
    assert AdaptiveRegressor(**FEW).fit(X, y).predict(X).shape == y.shape


def test_the_unit_of_the_target_does_not_matter() -> None:
    X, y = diabetes()
    first, second = (AdaptiveRegressor(**FEW).fit(X, scale * y + shift) for scale, shift in ((1, 0), (1e6, -1e9)))
    assert second.predict(X) == pytest.approx(1e6 * first.predict(X) - 1e9, rel=1e-4)


# partial_fit


def test_partial_fit_learns_batch_by_batch() -> None:
    X, y = iris()
    estimator = AdaptiveClassifier(**OPTIONS)
    with pytest.raises(ArgumentError, match="classes is required in the first call"):
        estimator.partial_fit(X, y)
    order = np.random.default_rng(0).permutation(len(y))
    for part in np.array_split(np.tile(order, 12), 24):
        estimator.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert estimator.score(X, y) > 0.9
    assert estimator.n_iter_ == 24
    assert estimator.history_.column("epoch") == list(range(1, 25))
    with pytest.raises(ArgumentError, match="y has the class 9, but the classes of this model are"):
        estimator.partial_fit(X[:2], [9, 9])


def test_partial_fit_of_a_regressor_keeps_its_targets() -> None:
    X, y = diabetes()
    estimator = AdaptiveRegressor(**OPTIONS).partial_fit(X, y).partial_fit(X[:50], y[:50])
    assert estimator.predict(X).shape == y.shape
    with pytest.raises(ArgumentError, match="y has 2 targets, but the first call of partial_fit had 1"):
        estimator.partial_fit(X, np.column_stack([y, y]))


def test_fit_and_partial_fit_take_turns() -> None:
    X, y = iris()
    estimator = AdaptiveClassifier(**FEW).partial_fit(X, y, classes=[0, 1, 2])
    before = estimator.fit(X, y).predict_proba(X)
    assert not np.allclose(estimator.partial_fit(X, y).predict_proba(X), before), "it learns on"
    estimator.truncate(keep=0.5).partial_fit(X, y)
    assert estimator.n_iter_ == 4  # three by fit, one after it; the copy has its own
    assert np.array_equal(AdaptiveClassifier(**FEW).fit(X, y).predict(X), estimator.fit(X, y).predict(X))


def test_balanced_classes_cannot_be_had_from_parts() -> None:
    X, y = iris()
    with pytest.raises(ArgumentError, match="partial_fit"):
        AdaptiveClassifier(**FEW, class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])


# Copies


def by_pickle(estimator: Any) -> Any:
    return pickle.loads(pickle.dumps(estimator))


def by_joblib(estimator: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(estimator, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize("copied", [by_pickle, by_joblib])
@pytest.mark.parametrize("fixed", [None, [8, 8]], ids=["adaptive", "fixed"])
def test_a_copy_predicts_the_same_and_learns_on_the_same(copied: Any, fixed: list[int] | None) -> None:
    X, y = iris()
    estimator = AdaptiveClassifier(**OPTIONS, fixed_widths=fixed, batch_norm=True, dropout=0.1)
    for _ in range(3):
        estimator.partial_fit(X, y, classes=[0, 1, 2])
    other = copied(estimator)
    assert np.array_equal(other.predict_proba(X), estimator.predict_proba(X))
    for each in (estimator, other):
        each.partial_fit(X, y).partial_fit(X, y)
    assert np.array_equal(other.predict_proba(X), estimator.predict_proba(X))
    assert other.widths_ == estimator.widths_


# Widths


def test_truncate_and_compress_give_smaller_copies() -> None:
    X, y = iris()
    estimator = AdaptiveClassifier(**OPTIONS).fit(X, y)
    before = estimator.predict_proba(X)
    half = estimator.truncate(keep=0.5)
    # Each of the five networks rounds its own width.
    assert all(half.widths_[name] == pytest.approx(units / 2, abs=3) for name, units in estimator.widths_.items())
    assert half.predict_proba(X).shape == before.shape
    small = estimator.compress(X, y, max_drop=0.02)
    assert sum(small.widths_.values()) <= sum(estimator.widths_.values())
    assert small.score(X, y) >= estimator.score(X, y) - 0.02 - 1e-9
    assert np.array_equal(estimator.predict_proba(X), before)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        estimator.compress(X, y[:5])


def test_cuts_are_repaired_on_rows() -> None:
    X, y = diabetes()
    estimator = AdaptiveRegressor(**OPTIONS).fit(X, y)
    before = estimator.predict(X)
    plain, repaired = (estimator.truncate(keep=0.6, repair=rows) for rows in (None, X))
    assert repaired.widths_ == plain.widths_
    errors = [np.square(net.predict(X) - before).sum() for net in (repaired, plain)]
    assert errors[0] < 0.5 * errors[1]
    assert np.array_equal(estimator.predict(X), before)
    with pytest.raises(ValueError, match="at least two rows"):
        estimator.truncate(keep=0.3, repair=X[:1])
    small = estimator.compress(X, y, max_drop=0.05, repair=X)
    assert small.score(X, y) >= estimator.score(X, y) - 0.05 - 1e-6


def test_a_regressor_is_compressed_by_its_r2() -> None:
    X, y = diabetes()
    both = np.column_stack([y, -y])
    for targets in (y, both):
        estimator = AdaptiveRegressor(**OPTIONS, choose=None).fit(X, targets)  # a chosen network is small already
        small = estimator.compress(X, targets, max_drop=0.05)
        assert small.score(X, targets) >= estimator.score(X, targets) - 0.05 - 1e-6
        assert sum(small.widths_.values()) < sum(estimator.widths_.values())


def test_to_torch_is_plain_and_computes_the_same() -> None:
    X, y = iris()
    estimator = AdaptiveClassifier(**FEW).fit(X, y)
    network = estimator.to_torch()
    assert {type(module) for module in network.modules()} <= {nn.Sequential, nn.Linear, nn.SiLU}
    out = network(torch.from_numpy(estimator.encode(X))).div(estimator.temperature_).softmax(1).detach().numpy()
    assert out == pytest.approx(estimator.predict_proba(X), abs=1e-5)


def count(estimator: Any) -> int:
    return sum(weight.numel() for weight in estimator.to_torch().parameters())


def test_caps_are_kept() -> None:
    X, y = iris()
    free = AdaptiveClassifier(**FEW, choose=None).fit(X, y)
    assert count(free) > 400
    assert count(AdaptiveClassifier(**FEW, bins=0, max_params=300).fit(X, y)) <= 300
    narrow = AdaptiveClassifier(**{**FEW, "units": 10}, members=1, max_units=10, width_lr=0.5).fit(X, y)
    assert max(narrow.widths_.values()) <= 10
    part = AdaptiveClassifier(**FEW, bins=0, max_params=300)
    for _ in range(2):
        part.partial_fit(X, y, classes=[0, 1, 2])
        assert count(part) <= 300


def test_fixed_widths_stay_and_cannot_be_cut() -> None:
    X, y = iris()
    estimator = AdaptiveClassifier(**FEW, fixed_widths=[7, 5]).fit(X, y)
    assert [layer.out_features for layer in estimator.to_torch() if isinstance(layer, nn.Linear)] == [7, 5, 3]
    assert estimator.widths_ == {}
    with pytest.raises(ArgumentError, match="fixed_widths"):
        estimator.truncate(keep=0.5)


# Options


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("validation_fraction", 1.0),
        ("device", "abacus"),
        ("activation", "rleu"),
        ("scale", "large"),
        ("schedule", "step"),
        ("epochs", 0),
        ("units", 0),
        ("quantile", 1.0),
        ("max_params", 3),
        ("dropout", 1.0),
        ("weight_scale", -1.0),
    ],
)
def test_an_option_that_cannot_be_used_is_named(option: str, value: Any) -> None:
    X, y = iris()
    with pytest.raises(ArgumentError, match=option.removeprefix("max_")):
        AdaptiveClassifier(**{**FEW, option: value}).fit(X, y)


def test_few_rows_are_all_trained_on() -> None:
    """Where too few would be held back to judge by, none are."""
    X, y = iris()
    estimator = AdaptiveClassifier(**FEW).fit(X[::8], y[::8])
    assert estimator.history_.column("score") == [None] * 3
    assert None not in AdaptiveClassifier(**FEW).fit(X, y).history_.column("score")


def test_an_ordered_estimator_builds_and_trains_an_ordered_network() -> None:
    X, y = iris()
    classifier = AdaptiveClassifier(**FEW, members=1, ordered=0.5).fit(X, y)
    widths = [group.width for group in awn.advanced.find_groups(classifier.model_)]
    assert [width.ordered for width in widths] == [0.5, 0.5]
    assert widths[0].draw == widths[1].draw > 0
    plain = AdaptiveClassifier(**FEW, members=1).fit(X, y)
    assert not np.allclose(plain.predict_proba(X), classifier.predict_proba(X))


def test_kinds_decide_the_columns_and_text_is_left_out_with_a_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"zip": rng.integers(10, 13, 80), "size": rng.normal(size=80), "who": map("name {}".format, range(80))}
    )
    wanted = (frame["zip"] == 11).to_numpy()
    with pytest.warns(ColumnWarning, match=r"'who': left out as text.*Set kinds=\{'who': 'ignored'\}"):
        AdaptiveClassifier(epochs=1, random_state=0).fit(frame, wanted)
    kinds: dict[str, ColumnKind] = {"zip": "category", "who": "ignored"}
    classifier = AdaptiveClassifier(epochs=1, random_state=0, bins=0, kinds=kinds).fit(frame, wanted)
    assert classifier.preprocessor_.feature_names == ["size", "zip = 10", "zip = 11", "zip = 12"]
    save_estimator(classifier, tmp_path)
    assert load_estimator(tmp_path).kinds == kinds
    assert clone(classifier).kinds == kinds
