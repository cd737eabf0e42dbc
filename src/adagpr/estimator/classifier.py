"""AdaGPR as a scikit-learn classifier.

scikit-learn hands an estimator rows and cuts them apart as it likes, while a graph is one piece. Hence two ways of use:

- **Rows are nodes.** ``fit(X, y, adjacency=A)`` takes the features of all nodes and their edges; without an adjacency
  each row is joined to its nearest rows. Later rows are joined to their nearest fitted rows.
- **Rows are positions.** The whole graph is given to the constructor, and ``X`` names nodes of it by their positions,
  in one column. Nodes that are not named in `fit` stay in the graph without a label: this is the way for
  ``cross_val_score`` and ``GridSearchCV``.

Training is that of `adagpr.fit`. A stratified part of the labelled nodes is held out to choose the epoch. There are no
test nodes, because every label is needed to learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from pydantic import BaseModel, Field
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from adagpr.arguments import Count, Finite, check
from adagpr.errors import InputError
from adagpr.estimator import rows
from adagpr.estimator.rows import FLOATS, Rows
from adagpr.graph import Graph, Split, compact_features
from adagpr.ops import Direction, compute_threads, features, read_edges
from adagpr.training import Run, fit

# The arguments that are not passed on to `adagpr.fit`.
_OWN = ("model", "graph", "n_neighbors", "unlabelled", "direction", "validation_fraction", "random_state")
# Those that the model has a default of its own for.
_OF_MODEL = ("num_coeffs", "alpha", "theta", "dropout", "projection", "weight_decay", "feature_scaling")


class _Rules(BaseModel):
    """Those of them that are checked here."""

    model: Literal["adagpr", "adagpr-signed"]
    n_neighbors: Count
    direction: Direction
    validation_fraction: Annotated[Finite, Field(gt=0.0, lt=1.0)]


# The constructor, as scikit-learn wants it, only keeps its arguments.
@dataclass(kw_only=True, eq=False, repr=False)
class AdaGPRClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies the nodes of a graph, and learns at every layer how much of the graph to use.

    See the module for the two ways of use. Sample and class weights are not supported.

    Args:
        model: ``"adagpr"``, the paper's, or ``"adagpr-signed"``, for graphs whose edges carry the signal: its layers
            may subtract hops and keep a node apart from its neighbours.
        num_layers: Number of graph layers.
        hidden_channels: Width of the hidden layers.
        num_coeffs: Hops of each layer, hop 0 included; one number, or for ``"adagpr"`` one per layer. This and the
            next four are as the model has them where they are ``None``.
        alpha: With ``"adagpr"``: share of the first hidden matrix in every layer, in [0, 1]; one number, or one per
            layer.
        theta: With ``"adagpr"``, the paper's lambda: how strongly layers differ from the identity.
        dropout: Probability of dropping an element while training.
        projection: With ``"adagpr"``: how coefficients come from their scores; see `adagpr.ops.PROJECTIONS`.
        graph: The whole graph, for rows that are positions: a `Graph`, whose labels are not read, or a pair of an
            adjacency matrix and the features of all nodes. None for rows that are nodes.
        n_neighbors: How many nearest rows each row is joined to where no adjacency is given; at most all others.
        unlabelled: The value in ``y`` that marks a row without a label; ``None`` means that every row has one.
        direction: ``"directed"`` lets a node read the nodes that it points to, ``"symmetric"`` reads edges both ways.
        feature_scaling: What is done to features before the network sees them, fitted to all nodes: ``"rows"``,
            ``"standardise"``, ``"auto"`` or ``"none"``, by default as the model has it; see
            `adagpr.ops.feature_scaling`. Nearest rows are those of the features as they come.
        lr: Adam's learning rate.
        weight_decay: Decay of all parameters, or a dictionary with one for each named parameter group; ``None`` for
            that of the model.
        max_epochs: The largest number of epochs.
        patience: Epochs without progress after which training stops; ``None`` for never.
        validation_fraction: Share of the labelled nodes that chooses the epoch, drawn class by class. A class of three
            or more gives at least one, a smaller one none; where no class gives any, the training nodes choose.
        num_threads: Threads of torch while training; chosen from the size of the graph unless given.
        random_state: Seed of validation part, parameters and dropout; the same seed gives the same bits.

    Attributes:
        classes_: The classes in order, as they are in ``y``.
        n_features_in_: Number of columns of ``X``.
        feature_names_in_: Names of these columns, where ``X`` had names.
        coefficients_: The weight of each hop in each layer, ``[num_layers, num_coeffs]``; where ``"adagpr-signed"``
            reads edges both ways, first forwards, then backwards.
        n_iter_: Number of epochs.
        run_: The `Run` of the training: history, validation accuracy, model. It has no test nodes.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = AdaGPRClassifier(num_layers=2, max_epochs=60).fit(X, y)
        >>> classifier.coefficients_.shape, classifier.score(X, y) > 0.9
        ((2, 4), True)
    """

    model: str = "adagpr"
    num_layers: int = 4
    hidden_channels: int = 64
    num_coeffs: int | Sequence[int] | None = None
    alpha: float | Sequence[float] | None = None
    theta: float | None = None
    dropout: float | None = None
    projection: str | None = None
    graph: Graph | tuple[Any, Any] | None = None
    n_neighbors: int = 10
    unlabelled: Any = None
    direction: Direction = "directed"
    feature_scaling: str | None = None
    lr: float = 0.01
    weight_decay: float | dict[str, float] | None = None
    max_epochs: int = 1500
    patience: int | None = 300
    validation_fraction: float = 0.2
    num_threads: int | None = None
    random_state: Any = 0

    classes_: np.ndarray = field(init=False)
    coefficients_: np.ndarray = field(init=False)
    n_iter_: int = field(init=False)
    run_: Run = field(init=False)
    _x: Rows = field(init=False)
    _adj: sp.csr_array = field(init=False)
    _fitted: np.ndarray = field(init=False)
    _is_joined: bool = field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, adjacency: Any = None) -> AdaGPRClassifier:  # noqa: N803
        """Trains on the labelled nodes, with all nodes in the graph.

        Args:
            X: Features of all nodes, dense or sparse, one row per node; with ``graph``: positions, in one column.
            y: Label of each row, of any type, `unlabelled` where there is none.
            adjacency: N x N matrix; entry ``[i, j]`` is the weight of the edge from row ``i`` to row ``j``. By default
                each row is joined to its nearest ones, both ways. Not with ``graph``.

        Returns:
            This estimator.

        Raises:
            InputError: Something does not fit.
        """
        settings = check("AdaGPRClassifier", _Rules, self.get_params(deep=False))
        x, labels = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS)
        known = rows.is_known(labels, self.unlabelled)
        check_classification_targets(labels[known])
        self.classes_, codes = np.unique(labels[known], return_inverse=True)
        if len(self.classes_) < 2:
            found = f"one class, {self.classes_[0]}" if len(self.classes_) else "no labelled row"
            raise InputError(f"AdaGPRClassifier: at least two classes are needed to learn, got {found}.")
        self._is_joined = self.graph is None and adjacency is None
        self._x, adj = self._whole(x, adjacency)
        # What is read is settled here, so that nodes that come later can read without being read.
        self._adj = read_edges(adj, settings.direction)
        nodes = np.arange(x.shape[0]) if self.graph is None else self._positions(x, adjacency)
        self.run_ = self._train(rows.by_node(nodes[known], codes, adj.shape[0]), settings.validation_fraction)
        self.coefficients_ = np.asarray(self.run_.coefficients)
        self.n_iter_ = int(self.run_.record["result"]["num_epochs"])
        self._fitted = self._forward(self._x, self._adj)
        return self

    def predict_proba(self, X: Any, adjacency: Any = None) -> np.ndarray:  # noqa: N803
        """The probability of each class, one row for each row of ``X`` and one column for each of ``classes_``.

        They are calibrated on the held-out part, as those of the run are; where nothing was held out they are not.

        With ``graph`` rows are positions. Otherwise a row that equals a fitted row is that node, the first of several
        equal ones. If edges were made from nearest rows, any other row is joined to its nearest fitted rows: it reads
        them, and they do not read it, so that no row changes the prediction of another. Where an adjacency was given to
        `fit`, ``X`` must be as it was there, or come with an adjacency of its own.

        Args:
            X: Features of the nodes; with ``graph``: positions, in one column.
            adjacency: Edges between the rows of ``X``, which are then a graph of their own.

        Raises:
            NotFittedError: `fit` was not called.
            InputError: Something does not fit.
        """
        check_is_fitted(self, "run_")
        x = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        if self.graph is not None:
            return np.take(self._fitted, self._positions(x, adjacency), axis=0)
        compact = compact_features(x)
        if adjacency is not None:
            adj = read_edges(rows.read_adjacency(adjacency, x.shape[0]), self.direction)
            return self._forward(rows.like(self._x, compact), adj)
        return self._joined(compact) if self._is_joined else self._same(compact)

    def predict(self, X: Any, adjacency: Any = None) -> np.ndarray:  # noqa: N803
        """The most probable class of each row; see `predict_proba`."""
        best = self.predict_proba(X, adjacency).argmax(axis=1)
        return np.asarray(np.take(self.classes_, best))

    def score(self, X: Any, y: Any, sample_weight: Any = None, adjacency: Any = None) -> float:  # noqa: N803
        """Accuracy of `predict` on the rows that have a label."""
        predicted = self.predict(X, adjacency)
        labels = column_or_1d(y)
        known = rows.is_known(labels, self.unlabelled)
        if not known.any():
            raise InputError("AdaGPRClassifier: no row has a label, so there is nothing to score.")
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(labels[known], predicted[known], sample_weight=weight))

    def _whole(self, x: Any, adjacency: Any) -> tuple[Rows, sp.csr_array]:
        """Features and edges of all nodes."""
        if self.graph is None:
            compact = compact_features(x)
            if adjacency is not None:
                return compact, rows.read_adjacency(adjacency, compact.shape[0])
            return compact, read_edges(rows.nearest(compact, self.n_neighbors), "symmetric")
        if isinstance(self.graph, Graph):
            return self.graph.x, self.graph.adj
        if not isinstance(self.graph, tuple) or len(self.graph) != 2:
            raise InputError(
                "AdaGPRClassifier: graph must be a Graph, or a pair of an adjacency matrix and the features of all "
                f"nodes, got {type(self.graph).__name__}."
            )
        x = check_array(self.graph[1], accept_sparse="csr", dtype=FLOATS, estimator=self, input_name="X")
        compact = compact_features(x)
        return compact, rows.read_adjacency(self.graph[0], compact.shape[0])

    def _positions(self, x: Any, adjacency: Any) -> np.ndarray:
        """The nodes that the rows name."""
        if adjacency is not None:
            raise InputError("AdaGPRClassifier: the graph is in the constructor; adjacency must be left out.")
        if sp.issparse(x) or x.shape[1] != 1:
            raise InputError(
                "AdaGPRClassifier: with a graph in the constructor X must hold positions of nodes in one column, "
                f"got {x.shape[1]} columns{' of a sparse matrix' if sp.issparse(x) else ''}."
            )
        num_nodes = self._adj.shape[0]
        wrong = np.flatnonzero((x[:, 0] != np.floor(x[:, 0])) | (x[:, 0] < 0) | (x[:, 0] >= num_nodes))
        if len(wrong):
            raise InputError(
                f"AdaGPRClassifier: X must hold positions from 0 to {num_nodes - 1}, "
                f"got {x[wrong[0], 0]:g} in row {wrong[0]}."
            )
        return np.asarray(x[:, 0].astype(np.int64))

    def _train(self, codes: np.ndarray, fraction: float) -> Run:
        seed = rows.seed_of(self.random_state)
        train, val = rows.hold_out(codes, fraction, seed)
        split = Split(torch.from_numpy(train), torch.from_numpy(val), torch.empty(0, dtype=torch.int64))
        graph = Graph(self._x, self._adj, torch.from_numpy(codes), tuple(str(item) for item in self.classes_))
        options = {name: value for name, value in self.get_params(deep=False).items() if name not in _OWN}
        given = {name: value for name, value in options.items() if name not in _OF_MODEL or value is not None}
        return fit(graph, split, self.model, seed=seed, **given)

    def _joined(self, x: Rows) -> np.ndarray:
        """Probabilities where fitted rows are nodes and others are joined to the nearest of them."""
        first = {key: place for place, key in reversed([*enumerate(rows.keys(self._x))])}
        nodes = np.array([first.get(key, -1) for key in rows.keys(x)])
        result: np.ndarray = self._fitted[nodes]
        new = np.flatnonzero(nodes < 0)
        if len(new):
            new_x = rows.like(self._x, x[new])
            adj = rows.attached(self._adj, rows.nearest(self._x, self.n_neighbors, new_x))
            result[new] = self._forward(rows.stack(self._x, new_x), adj)[self._x.shape[0] :]
        return result

    def _same(self, x: Rows) -> np.ndarray:
        """Probabilities of the fitted nodes, if ``x`` is what was fitted."""
        if rows.keys(x) != rows.keys(self._x):
            raise InputError(
                "AdaGPRClassifier: fit was given an adjacency, and these rows are not the fitted ones: give their "
                "adjacency too, or give the whole graph to the constructor and name nodes by their positions."
            )
        return self._fitted.copy()

    def _forward(self, x: Rows, adj: sp.csr_array) -> np.ndarray:
        """Probabilities of all nodes of a graph, in float64, so that they do not depend on what else is in it."""
        names = tuple(str(item) for item in self.classes_)
        graph = self.run_.scaled(Graph(x, adj, torch.full((adj.shape[0],), -1), names))
        model = deepcopy(self.run_.model).double().eval()
        training = self.run_.record["config"]["training"]
        structure = model.structure(graph, training["direction"], training["self_loops"], dtype=torch.float64)
        with torch.inference_mode(), compute_threads():
            logits = model(features(graph.x, torch.float64), structure)
            return np.asarray((logits / self.run_.temperature).softmax(-1).numpy())
