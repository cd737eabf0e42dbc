from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.data import load
from adagpr.errors import InputError
from adagpr.graph import Graph, Split, from_scipy
from adagpr.interop import from_networkx, from_pyg, splits_from_pyg, to_pyg

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def make_data(**changes: Any) -> Any:
    from torch_geometric.data import Data

    given: dict[str, Any] = {
        "x": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        "edge_index": torch.tensor([[0, 1], [1, 2]]),
        "y": torch.tensor([0, 1, -1]),
    }
    return Data(**(given | changes))


def path(kind: Any = nx.Graph) -> Any:
    g = kind()
    g.add_node("a", size=1, color=[0.0, 1.0], y="red")
    g.add_node("b", size=2, color=[1.0, 0.0], y="blue")
    g.add_node("c", size=3, color=[1.0, 1.0])
    g.add_edge("a", "b", weight=2.0)
    g.add_edge("b", "c")
    return g


def test_networkx_gives_ids_classes_features_and_weights() -> None:
    graph = from_networkx(path())
    assert graph.node_ids.tolist() == ["a", "b", "c"]
    assert graph.class_names == ("blue", "red")
    assert graph.y.tolist() == [1, 0, -1]
    assert torch.equal(torch.as_tensor(graph.x), torch.tensor([[1.0, 0, 1], [2, 1, 0], [3, 1, 1]]))
    assert graph.adj.toarray().tolist() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]


def test_networkx_edges_with_a_direction_keep_it() -> None:
    assert from_networkx(path(nx.DiGraph)).adj.toarray().tolist() == [[0, 2, 0], [0, 0, 1], [0, 0, 0]]


def test_of_parallel_networkx_edges_the_largest_weight_stays() -> None:
    g = path(nx.MultiGraph)
    g.add_edge("b", "a", weight=5.0)
    assert from_networkx(g).adj.toarray()[0].tolist() == [0, 5, 0]
    assert from_networkx(g, weight=None).adj.toarray()[0].tolist() == [0, 1, 0]


def test_networkx_features_are_those_asked_for_in_their_order() -> None:
    graph = from_networkx(path(), features=["color", "size"])
    assert graph.num_features == 3
    assert torch.as_tensor(graph.x)[:, 2].tolist() == [1, 2, 3]


def test_networkx_nodes_without_attributes_are_their_own_features() -> None:
    g = nx.karate_club_graph()
    graph = from_networkx(g, label="club")
    assert graph.num_features == 34
    assert graph.is_symmetric
    expected = nx.to_numpy_array(g)
    assert np.array_equal(graph.adj.toarray(), expected)


def test_networkx_labels_of_whole_numbers_are_in_order_of_value() -> None:
    g = nx.path_graph(4)
    nx.set_node_attributes(g, dict(enumerate([10, 9, None, float("nan")])), "y")
    graph = from_networkx(g)
    assert graph.class_names == ("9", "10")
    assert graph.y.tolist() == [1, 0, -1, -1]
    assert graph.node_ids.tolist() == [0, 1, 2, 3]


def test_networkx_nodes_that_are_pairs_are_named_by_their_text() -> None:
    g = nx.grid_2d_graph(2, 2)
    nx.set_node_attributes(g, dict(zip(g.nodes, [0, 1, 0, 1], strict=True)), "y")
    assert from_networkx(g).node_ids.tolist() == ["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]


def changed(**attributes: Any) -> Any:
    g = path()
    g.nodes["b"].update(attributes)
    return g


@pytest.mark.parametrize(
    ("g", "arguments", "message"),
    [
        (np.eye(3), {}, "g must be a NetworkX graph, got ndarray"),
        (nx.Graph(), {}, "there are no nodes"),
        (path(), {"label": "colour"}, "Unknown node attribute 'colour'. Did you mean 'color'"),
        (path(), {"features": ["sizes"]}, "Unknown node attribute 'sizes'. Did you mean 'size'"),
        (changed(size=None), {}, "node 'b' has no 'size', which is asked for as a feature"),
        (changed(size="big"), {}, "'size' must be a number, .* node 'b' has 'big'"),
        (changed(color=[1.0]), {}, r"'color' must be .* node 'b' has \[1.0\]"),
        (changed(y=["red"]), {}, "the label 'y' must be one value per node"),
        (changed(y="red"), {}, "every known label is 0"),
        (nx.Graph([("a", "b", {"weight": "far"})]), {"label": "y"}, "Unknown node attribute 'y'"),
    ],
)
def test_networkx_graphs_that_cannot_be_are_refused(g: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_networkx(g, **arguments)


def test_a_weight_that_is_no_number_is_refused() -> None:
    g = path()
    g.edges["a", "b"]["weight"] = "far"
    with pytest.raises(InputError, match="'weight' of edge 'a' - 'b' must be a number, got 'far'"):
        from_networkx(g)


def assert_same(one: Graph, other: Graph) -> None:
    assert one.fingerprint == other.fingerprint
    assert one.class_names == other.class_names
    assert one.node_ids.tolist() == other.node_ids.tolist()


@pytest.mark.parametrize("sparse", [True, False])
def test_a_graph_comes_back_from_torch_geometric_as_it_went(sparse: bool, make_graph: Callable[..., Graph]) -> None:
    made = make_graph(sparse=sparse)
    weights = np.round(made.adj.data * 8 + 1)
    adj = sp.csr_array((weights, made.adj.indices, made.adj.indptr), shape=made.adj.shape)
    names = [f"node {place}" for place in range(30)]
    graph = from_scipy(adj, made.x, made.y, class_names=["a", "b", "c"], node_ids=names)
    assert isinstance(graph.x, sp.csr_array) == sparse
    assert_same(from_pyg(to_pyg(graph)), graph)


def test_the_digits_and_their_split_come_back_as_they_went() -> None:
    graph, splits = load("digits")
    data = to_pyg(graph, splits[0])
    assert "edge_weight" not in data
    assert "node_ids" not in data
    assert data.validate()
    assert_same(from_pyg(data), graph)
    (again,) = splits_from_pyg(data)
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(again, part), getattr(splits[0], part))


def test_torch_geometric_edges_keep_their_direction() -> None:
    graph = from_pyg(make_data(edge_weight=torch.tensor([2.0, 3.0])))
    assert graph.adj.toarray().tolist() == [[0, 2, 0], [0, 0, 3], [0, 0, 0]]
    assert graph.y.tolist() == [0, 1, -1]
    assert to_pyg(graph).edge_index.tolist() == [[0, 1], [1, 2]]


def test_weights_and_labels_in_one_column_are_taken_too() -> None:
    data = make_data(y=torch.tensor([[0], [1], [1]]), edge_attr=torch.tensor([[2.0], [3.0]]))
    graph = from_pyg(data, weight="edge_attr", class_names=["no", "yes"])
    assert graph.adj.data.tolist() == [2, 3]
    assert graph.class_names == ("no", "yes")
    assert from_pyg(data).adj.data.tolist() == [1, 1]


def test_masks_with_several_columns_give_several_splits() -> None:
    train = torch.tensor([[True, False], [False, True], [False, False]])
    val = ~train & torch.tensor([True, True, False])[:, None]
    splits = splits_from_pyg(make_data(train_mask=train, val_mask=val, test_mask=torch.tensor([False, False, True])))
    assert [split.name for split in splits] == ["given/0", "given/1"]
    assert [split.train.tolist() for split in splits] == [[0], [1]]
    assert [split.test.tolist() for split in splits] == [[2], [2]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "data must have a tensor 'x', got NoneType. .* give an identity matrix"),
        ({"y": None}, "data must have a tensor 'y'"),
        ({"edge_index": None}, "data must have a tensor 'edge_index'"),
        ({"y": torch.tensor([0.5, 1.0, 2.0])}, "y must be whole numbers"),
        ({"edge_weight": torch.ones(3)}, "edge_weight must hold 2 values"),
    ],
)
def test_torch_geometric_data_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_pyg(make_data(**changes))


def test_masks_that_cannot_be_are_refused() -> None:
    mask = torch.tensor([True, False, False])
    with pytest.raises(InputError, match="data must have 'train_mask', true and false values"):
        splits_from_pyg(make_data())
    with pytest.raises(InputError, match="must have as many rows and columns as each other"):
        splits_from_pyg(make_data(train_mask=mask, val_mask=mask[:2], test_mask=mask))


def test_a_split_of_another_graph_is_refused(make_graph: Callable[..., Graph]) -> None:
    split = Split(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([99]))
    with pytest.raises(InputError, match="names nodes from 99 to 99"):
        to_pyg(make_graph(), split)


def test_without_torch_geometric_one_sentence_says_so(
    make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(InputError, match="to_pyg needs torch_geometric"):
        to_pyg(make_graph())
