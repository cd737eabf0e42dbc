from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adagpr.data import load
from adagpr.errors import InputError

EYE = np.eye(6, dtype=bool)


def arrays(**changes: Any) -> dict[str, Any]:
    stored: dict[str, Any] = {
        "node_features": np.arange(12.0).reshape(6, 2) + 1,
        "node_labels": np.array([0, 1, 0, 1, -1, 1]),
        "edges": np.array([[0, 1], [1, 0], [0, 1], [2, 3], [4, 4]]),
    }
    return {key: value for key, value in (stored | changes).items() if value is not None}


def masks(**changes: Any) -> dict[str, Any]:
    return arrays(**({"train_masks": EYE[0] | EYE[1], "val_masks": EYE[2], "test_masks": EYE[3]} | changes))


def saved(folder: Path, stored: dict[str, Any]) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **stored)
    return path


def test_edges_are_taken_as_given_and_once_each(tmp_path: Path) -> None:
    graph, _ = load(saved(tmp_path, arrays()), "random", fractions=(0.4, 0.3, 0.3))
    links = graph.adj.tocoo()
    assert list(zip(links.row.tolist(), links.col.tolist(), strict=True)) == [(0, 1), (1, 0), (2, 3), (4, 4)]
    assert (graph.name, graph.notes, graph.class_names) == ("mine", (), ("0", "1"))


def test_undirected_edges_are_made_to_go_both_ways(tmp_path: Path) -> None:
    graph, _ = load(saved(tmp_path, masks(directed=np.array(False))))
    assert graph.is_symmetric
    assert graph.num_edges == 5


def test_features_stay_as_they_are_unless_asked(tmp_path: Path) -> None:
    path = saved(tmp_path, masks())
    plain, normalized = load(str(path))[0].x, load(path, row_normalize=True)[0].x
    assert isinstance(plain, torch.Tensor)
    assert isinstance(normalized, torch.Tensor)
    assert plain[1].tolist() == [3.0, 4.0]
    assert normalized[1].tolist() == pytest.approx([3 / 7, 4 / 7])


def test_negative_features_cannot_be_divided_by_their_sum(tmp_path: Path) -> None:
    path = saved(tmp_path, masks(node_features=-np.ones((6, 2))))
    with pytest.raises(InputError, match="row_normalize needs features that are not negative, and 'mine' has some"):
        load(path, row_normalize=True)


def test_masks_are_the_default_split_and_without_them_a_random_one(tmp_path: Path) -> None:
    path = saved(tmp_path, masks())
    assert [split.name for split in load(path)[1]] == ["given/0"]
    assert load(path)[1][0].train.tolist() == [0, 1]
    assert load(path, "random/4")[1][0].name == "random/4"
    bare = saved(tmp_path, arrays())
    with pytest.raises(InputError, match=r"Unknown split 'given'\. Known: random"):
        load(bare, "given")


def test_rows_of_masks_are_splits_and_one_of_them_can_be_asked_for(tmp_path: Path) -> None:
    rows = {"train_masks": EYE[[0, 1]], "val_masks": EYE[[1, 2]].astype(np.uint8), "test_masks": EYE[[2, 3]]}
    path = saved(tmp_path, arrays(**rows))
    assert [split.name for split in load(path)[1]] == ["given/0", "given/1"]
    assert load(path, "given/1")[1][0].val.tolist() == [2]
    with pytest.raises(InputError, match="splits are given/0 to given/1"):
        load(path, "given/2")


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (arrays(edges=None), "the key edges is missing"),
        (masks(val_masks=None), "the key val_masks is missing"),
        (arrays(train_mask=EYE[0]), "Unknown key 'train_mask'. Did you mean 'train_masks'?"),
        (arrays(node_features=np.ones(6)), r"node_features must be a matrix of real numbers, got float64 \(6,\)"),
        (arrays(node_features=np.full((6, 2), "a")), "node_features must be a matrix of real numbers, got <U1"),
        (arrays(node_features=np.array([[1.0], [np.nan]] * 3)), "node_features .* NaN or infinite, the first in row 1"),
        (arrays(node_features=np.array([[1.0], [np.inf]] * 3)), "node_features .* NaN or infinite, the first in row 1"),
        (arrays(node_features=np.array([[{}]] * 6)), "node_features holds pickled objects, which are refused"),
        (arrays(node_labels=np.array([0, 1])), r"node_labels must be 6 whole numbers, one per node, got int64 \(2,\)"),
        (arrays(node_labels=np.ones(6)), "node_labels must be 6 whole numbers, one per node, got float64"),
        (arrays(node_labels=np.full(6, -1)), "node_labels: every label is missing"),
        (arrays(node_labels=np.array([2, 2, -1, 2, 2, 2])), "node_labels: every known label is 2"),
        (
            arrays(node_labels=np.array([0, 1, -2, 0, 0, 0])),
            "node_labels must be classes numbered from 0.* got -2 to 1",
        ),
        (arrays(node_labels=np.array([0, 1, 10**9, 0, 0, 0])), "node_labels must be classes numbered from 0"),
        (arrays(edges=np.array([[0, 1, 2]])), r"edges must be E x 2 whole numbers, got int64 \(1, 3\)"),
        (arrays(edges=np.ones((3, 2))), "edges must be E x 2 whole numbers, got float64"),
        (arrays(edges=np.array([[0, 6]])), "edges: Edge 0 has the target 6, but the nodes are 0 to 5"),
        (arrays(edges=np.array([[0, 1], [-1, 0]])), "edges: Edge 1 has the source -1"),
        (arrays(directed=np.array("no")), "directed must be one value, true or false"),
        (masks(test_masks=EYE[0]), "train_masks, val_masks, test_masks overlap in row 0: node 0"),
        (masks(test_masks=EYE[4]), "test_masks, row 0: node 4 has no label"),
        (masks(val_masks=np.zeros(6, bool)), "val_masks, row 0: there are no nodes"),
        (masks(val_masks=EYE[:2]), "val_masks must be true or false for each of 6 nodes, in as many rows"),
        (masks(val_masks=np.arange(6)), "val_masks must be true or false for each of 6 nodes"),
        (masks(train_masks=np.ones(5, bool)), "train_masks must be true or false for each of 6 nodes"),
    ],
)
def test_each_defect_is_one_sentence_that_names_file_and_key(
    stored: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, stored)
    with pytest.raises(InputError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, arrays())
    whole = path.read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:-30]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"mine\.npz: not an \.npz file, or cut short"):
            load(path)


def test_a_single_array_and_a_missing_file_are_told_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.eye(2))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(InputError, match=r"one\.npz: a single array, not an \.npz file"):
        load(tmp_path / "one.npz")
    with pytest.raises(InputError, match=r"none\.npz: there is no such file"):
        load(tmp_path / "none.npz")


def test_the_filtered_chameleon_is_the_directed_one_made_symmetric(benchmark_root: Path) -> None:
    both, splits = load("chameleon-filtered", data_root=benchmark_root)
    oneway, _ = load("chameleon-filtered-directed", data_root=benchmark_root)
    union = (oneway.adj + oneway.adj.T).tolil()
    union.setdiag(0)
    assert abs(both.adj - (union.tocsr() > 0).astype(float)).nnz == 0
    assert [split.name for split in splits] == [f"given/{i}" for i in range(10)]
