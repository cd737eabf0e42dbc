from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from adagpr.errors import InputError
from adagpr.estimator import AdaGPRClassifier
from adagpr.graph import Graph, from_scipy

SMALL: dict[str, Any] = {"num_layers": 2, "hidden_channels": 16, "num_coeffs": 3, "max_epochs": 30, "num_threads": 1}


def make(**arguments: Any) -> AdaGPRClassifier:
    return AdaGPRClassifier(**{**SMALL, **arguments})


def two_camps(num_nodes: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, sp.csr_array]:
    """Features that say nothing, labels, and edges that stay within each camp: only the graph can tell."""
    rng = np.random.default_rng(seed)
    y = np.arange(num_nodes) % 2
    adj = (rng.random((num_nodes, num_nodes)) < 0.3) & (y[:, None] == y[None, :])
    return rng.normal(size=(num_nodes, 8)), y, sp.csr_array((adj | adj.T).astype(float))


@parametrize_with_checks([make()])
def test_scikit_learns_own_checks_pass(estimator: AdaGPRClassifier, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_the_graph_tells_where_features_do_not() -> None:
    x, y, adj = two_camps()
    given = np.where(np.arange(60) < 30, y, -1)
    classifier = make(unlabelled=-1, max_epochs=150).fit(x, given, adjacency=adj)
    blind = make(unlabelled=-1, max_epochs=150, num_coeffs=1).fit(x, given, adjacency=adj)
    assert (classifier.predict(x) == y)[30:].mean() > 0.9
    assert (blind.predict(x) == y)[30:].mean() < 0.7


def test_units_of_features_do_not_matter_where_they_are_standardised() -> None:
    x, y, adj = two_camps()
    units = 10.0 ** np.arange(8)
    one, other = (
        make(feature_scaling="standardise").fit(each, y, adjacency=adj).predict_proba(each[:30], adj[:30, :30])
        for each in (x, x * units)
    )
    np.testing.assert_allclose(one, other, atol=1e-3)


def test_hops_of_either_sign_are_learned_and_met_again_by_later_rows() -> None:
    x, y, adj = two_camps()
    classifier = make(model="adagpr-signed").fit(x, y, adjacency=adj)
    training = classifier.run_.record["config"]["training"]
    assert (training["self_loops"], training["weight_decay"]) == (False, 5e-4)
    expected = [classifier.run_.predictions[f"p_{name}"].to_pylist() for name in "01"]
    np.testing.assert_allclose(classifier.predict_proba(x).T, expected, atol=1e-5)
    joined = make(model="adagpr-signed").fit(x, y)
    one, two = (joined.predict_proba(x[:count] + 0.1)[0] for count in (1, 20))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="alpha"):
        make(model="adagpr-signed", alpha=0.1).fit(x, y)
    with pytest.raises(InputError, match="model must be 'adagpr' or 'adagpr-signed'"):
        make(model="gcn").fit(x, y)


def test_unlabelled_rows_are_no_class_and_none_means_that_all_have_one() -> None:
    x, y, adj = two_camps()
    given = np.where(np.arange(60) < 50, y, -1)
    assert make(unlabelled=-1).fit(x, given, adjacency=adj).classes_.tolist() == [0, 1]
    assert make().fit(x, given, adjacency=adj).classes_.tolist() == [-1, 0, 1]


def test_text_labels_come_back_as_they_were() -> None:
    x, y, adj = two_camps()
    names = np.where(y == 0, "left", "right").astype(object)
    names[50:] = ""
    classifier = make(unlabelled="").fit(x, names, adjacency=adj)
    assert classifier.classes_.tolist() == ["left", "right"]
    assert set(classifier.predict(x)) <= {"left", "right"}
    assert 0 <= classifier.score(x, names) <= 1


def test_the_fitted_attributes_describe_the_run() -> None:
    x, y, adj = two_camps()
    classifier = make().fit(x, y, adjacency=adj)
    assert classifier.coefficients_.shape == (2, 3)
    assert classifier.n_iter_ == classifier.run_.history.num_rows == 30
    assert classifier.n_features_in_ == 8
    assert classifier.run_.record["data"]["num_train"] == 48
    assert classifier.run_.record["data"]["num_val"] == 12


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    x, y, adj = two_camps()
    one, again, other = (make(random_state=seed).fit(x, y, adjacency=adj).predict_proba(x) for seed in (3, 3, 4))
    assert np.array_equal(one, again)
    assert not np.allclose(one, other)


def test_probabilities_are_those_of_the_run() -> None:
    x, y, adj = two_camps()
    classifier = make().fit(x, y, adjacency=adj)
    kept = np.stack([classifier.run_.predictions[f"p_{name}"].to_numpy() for name in "01"], axis=1)
    np.testing.assert_allclose(classifier.predict_proba(x), kept, atol=1e-5)


def test_no_node_is_added_or_kept_for_testing() -> None:
    x, y, adj = two_camps()
    run = make().fit(x, y, adjacency=adj).run_
    assert run.predictions.num_rows == 60
    assert "test" not in set(run.predictions["part"].to_pylist())


def test_edges_are_read_in_the_direction_asked_for() -> None:
    x, y, _ = two_camps()
    points = sp.csr_array((np.ones(30), (np.arange(30), np.arange(30, 60))), shape=(60, 60))
    changed = x.copy()
    changed[30] += 5
    directed = make(direction="directed").fit(x, y, adjacency=points)
    rows = np.abs(directed.predict_proba(changed, adjacency=points) - directed.predict_proba(x)).max(axis=1) > 1e-9
    assert np.flatnonzero(rows).tolist() == [0, 30]
    both = make(direction="symmetric").fit(x, y, adjacency=points)
    changed = x.copy()
    changed[0] += 5
    rows = np.abs(both.predict_proba(changed, adjacency=points) - both.predict_proba(x)).max(axis=1) > 1e-9
    assert np.flatnonzero(rows).tolist() == [0, 30]


def test_another_graph_is_predicted_with_its_own_edges() -> None:
    x, y, adj = two_camps()
    classifier = make(max_epochs=150).fit(x, y, adjacency=adj)
    order = np.random.default_rng(0).permutation(60)[:40]
    moved = classifier.predict_proba(x[order], adjacency=adj[order][:, order])
    assert moved.shape == (40, 2)
    shuffled = np.random.default_rng(1).permutation(60)
    again = classifier.predict_proba(x[shuffled], adjacency=adj[shuffled][:, shuffled])
    np.testing.assert_allclose(again, classifier.predict_proba(x)[shuffled], atol=1e-12)


def test_rows_without_their_adjacency_are_refused_where_fit_had_one() -> None:
    x, y, adj = two_camps()
    classifier = make().fit(x, y, adjacency=adj)
    with pytest.raises(InputError, match="these rows are not the fitted ones: give their adjacency too"):
        classifier.predict(x[:5])


def test_new_rows_are_joined_to_the_nearest_fitted_rows() -> None:
    x, y = load_digits(return_X_y=True)
    classifier = make(hidden_channels=64, dropout=0.2).fit(x[:600] / 16, y[:600])
    assert classifier.score(x[600:900] / 16, y[600:900]) > 0.85


def test_a_new_row_does_not_change_the_predictions_of_others() -> None:
    x, y = load_iris(return_X_y=True)
    classifier = make().fit(x[::2], y[::2])
    both = np.vstack([x[::2], x[1::2]])
    np.testing.assert_allclose(classifier.predict_proba(both)[:75], classifier.predict_proba(x[::2]), atol=1e-12)
    np.testing.assert_allclose(classifier.predict_proba(both)[75:], classifier.predict_proba(x[1::2]), atol=1e-12)


def test_sparse_and_dense_rows_give_the_same() -> None:
    x, y = load_digits(return_X_y=True)
    x = np.where(x > 12, x / 16, 0)[:200]
    dense, sparse = make().fit(x[:150], y[:150]), make().fit(sp.csr_array(x[:150]), y[:150])
    np.testing.assert_allclose(dense.predict_proba(x), sparse.predict_proba(sp.csr_array(x)), atol=1e-12)
    np.testing.assert_allclose(dense.predict_proba(sp.csr_array(x)), sparse.predict_proba(x), atol=1e-12)


@pytest.mark.parametrize("counts", [[1, 1], [2, 2], [3, 3], [1, 2], [1, 1, 1, 20], [2, 3, 4]])
def test_tiny_and_rare_classes_are_no_trouble(counts: list[int]) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.random.default_rng(0).normal(size=(len(y), 3))
    classifier = make().fit(x, y)
    assert classifier.predict_proba(x).shape == (len(y), len(counts))
    assert np.isfinite(classifier.predict_proba(x + 0.1)).all()


def test_two_rows_train_and_are_told_apart() -> None:
    x = np.array([[0.0, 1.0], [1.0, 0.0]])
    classifier = make(num_coeffs=1, dropout=0.0).fit(x, ["a", "b"])
    assert classifier.predict(x).tolist() == ["a", "b"]
    assert 0.5 < classifier.predict_proba(x).max() < 1 - 1e-6


POSITIONS = np.arange(60).reshape(-1, 1)


@pytest.mark.parametrize("as_graph", [True, False])
def test_positions_name_nodes_of_the_graph_in_the_constructor(as_graph: bool) -> None:
    x, y, adj = two_camps()
    whole: Any = from_scipy(adj, x, y) if as_graph else (adj, x)
    by_position = make(graph=whole).fit(POSITIONS[10:40], y[10:40])
    by_row = make(unlabelled=-1).fit(x, np.where((np.arange(60) >= 10) & (np.arange(60) < 40), y, -1), adjacency=adj)
    assert np.array_equal(by_position.predict_proba(POSITIONS), by_row.predict_proba(x))
    assert by_position.n_features_in_ == 1


def test_the_labels_of_the_graph_itself_are_not_read() -> None:
    x, y, adj = two_camps()
    one = make(graph=from_scipy(adj, x, y)).fit(POSITIONS[:30], y[:30])
    other = make(graph=from_scipy(adj, x, 1 - y)).fit(POSITIONS[:30], y[:30])
    assert np.array_equal(one.predict_proba(POSITIONS), other.predict_proba(POSITIONS))


def test_cross_validation_and_grid_search_keep_the_graph_whole() -> None:
    x, y, adj = two_camps()
    classifier = make(graph=(adj, x), max_epochs=60)
    scores = cross_val_score(classifier, POSITIONS, y, cv=StratifiedKFold(3))
    assert scores.mean() > 0.8
    search = GridSearchCV(classifier, {"num_coeffs": [1, 3]}, cv=StratifiedKFold(3)).fit(POSITIONS, y)
    assert search.best_params_ == {"num_coeffs": 3}
    assert search.predict(POSITIONS).shape == (60,)


def test_a_clone_has_the_arguments_and_not_the_fit() -> None:
    x, y, adj = two_camps()
    classifier = make(graph=from_scipy(adj, x, y)).fit(POSITIONS, y)
    copy = clone(classifier)
    assert isinstance(copy.graph, Graph)
    assert copy.get_params().keys() == classifier.get_params().keys()
    with pytest.raises(NotFittedError):
        copy.predict(POSITIONS)
    assert np.array_equal(copy.fit(POSITIONS, y).predict_proba(POSITIONS), classifier.predict_proba(POSITIONS))


def test_a_pipeline_scales_in_front() -> None:
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), make(hidden_channels=64, dropout=0.2))
    assert pipeline.fit(x[::2], y[::2]).score(x[1::2], y[1::2]) > 0.85


def test_a_fitted_classifier_survives_another_process() -> None:
    x, y, adj = two_camps()
    classifier = make(graph=(adj, x)).fit(POSITIONS, y)
    again = pickle.loads(pickle.dumps(classifier))  # noqa: S301
    assert np.array_equal(again.predict_proba(POSITIONS), classifier.predict_proba(POSITIONS))


def test_the_global_random_state_does_not_move() -> None:
    x, y, adj = two_camps()
    before = torch.random.get_rng_state()
    make().fit(x, y, adjacency=adj).predict(x)
    assert torch.equal(before, torch.random.get_rng_state())


X, Y, ADJ = two_camps()
BAD: list[tuple[dict[str, Any], tuple[Any, ...], str]] = [
    ({}, (X, np.zeros(60)), "at least two classes are needed to learn, got one class, 0"),
    ({"unlabelled": 1}, (X, np.ones(60)), "got no labelled row"),
    ({}, (X, Y, ADJ[:30]), "adjacency must be 60 x 60 for as many nodes, got 30 x 60. To cross-validate"),
    ({}, (X, Y, -ADJ), "edge weights must not be negative"),
    ({"n_neighbors": 0}, (X, Y), "n_neighbors must be greater than or equal to 1, got 0"),
    ({"validation_fraction": 1.0}, (X, Y), "validation_fraction must be less than 1, got 1.0"),
    ({"direction": "up"}, (X, Y), "direction must be 'directed' or 'symmetric', got 'up'"),
    ({"alpha": 2.0}, (X, Y), "alpha must be less than or equal to 1"),
    ({"max_epochs": 0}, (X, Y), "max_epochs must be greater than or equal to 1, got 0"),
    ({"random_state": -1}, (X, Y), "random_state must be 0 or more, got -1"),
    ({"graph": "cora"}, (POSITIONS, Y), "graph must be a Graph, or a pair .*, got str"),
    ({"graph": (ADJ, X)}, (X, Y), "X must hold positions of nodes in one column, got 8 columns"),
    ({"graph": (ADJ, X)}, (POSITIONS + 1, Y), "positions from 0 to 59, got 60 in row 59"),
    ({"graph": (ADJ, X)}, (POSITIONS + 0.5, Y), "positions from 0 to 59, got 0.5 in row 0"),
    ({"graph": (ADJ, X)}, (POSITIONS // 2, Y), "node 0 is there twice, with different labels"),
    ({"graph": (ADJ, X)}, (POSITIONS, Y, ADJ), "the graph is in the constructor; adjacency must be left out"),
]


@pytest.mark.parametrize(("arguments", "data", "message"), BAD, ids=[message for _, _, message in BAD])
def test_what_cannot_be_is_refused_in_fit(arguments: dict[str, Any], data: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments).fit(*data)
