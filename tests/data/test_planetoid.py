from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from adagpr.data import catalogue, load, row
from adagpr.data.catalogue import sums
from adagpr.data.planetoid import unpickle
from adagpr.errors import InputError


class Calls:
    """Pickles as a call of ``function`` with ``arguments``."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.arguments


def smuggled(function: Callable[..., Any], victim: Path, protocol: int) -> bytes:
    arguments = {os.system: f"touch {victim}", eval: f"open({str(victim)!r}, 'w')", exec: f"open({str(victim)!r}, 'w')"}
    return pickle.dumps([Calls(function, arguments[function])], protocol=protocol)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [os.system, eval, exec])
def test_a_smuggled_call_is_refused_and_nothing_runs(
    function: Callable[..., Any], protocol: int, tmp_path: Path
) -> None:
    content = smuggled(function, tmp_path / "victim", protocol)
    with pytest.raises(InputError, match=rf"ind\.cora\.x: refused, because it names '\w+\.{function.__name__}'"):
        unpickle(content, "ind.cora.x")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("sum_matches", [False, True])
def test_a_smuggled_file_is_refused_whether_its_sum_matches_or_not(
    sum_matches: bool, benchmark_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in row("cora").graph_files():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(benchmark_root / file, tmp_path / file)
    content = smuggled(os.system, tmp_path / "victim", 2)
    (tmp_path / "planetoid/ind.cora.allx").write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    expected = found if sum_matches else sums()["planetoid/ind.cora.allx"]
    monkeypatch.setitem(sums(), "planetoid/ind.cora.allx", expected)
    with pytest.raises(InputError, match="refused, because it names" if sum_matches else "is not the expected file"):
        load("cora", data_root=tmp_path)
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cnumpy\nload\n.",
        b"cscipy.sparse\ncsr_matrix\n.",
        b"cbuiltins\nlist\n.",
        b"ccollections\nOrderedDict\n.",
        pickle.dumps(np.eye(2)),
        pickle.dumps(sp.csr_matrix(np.eye(2))),
    ],
)
def test_names_that_only_look_like_the_admitted_ones_are_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="refused, because it names"):
        unpickle(content, "file")


@pytest.mark.parametrize("name", ["x", "y", "graph"])
def test_a_pickle_cut_anywhere_is_one_sentence(name: str, benchmark_root: Path) -> None:
    content = (benchmark_root / f"planetoid/ind.cora.{name}").read_bytes()
    for length in np.linspace(0, len(content) - 1, 40).astype(int):
        with pytest.raises(InputError, match=r"^ind\.cora: not a Planetoid file \("):
            unpickle(content[:length], "ind.cora")


@pytest.mark.parametrize("code", ["O8", "V8", "S4", "f3"])
def test_arrays_of_anything_but_plain_numbers_are_refused(code: str, benchmark_root: Path) -> None:
    content = (benchmark_root / "planetoid/ind.cora.y").read_bytes()
    at = content.index(b"cnumpy\ndtype\n")
    changed = content[:at] + content[at:].replace(b"U\x02i4", b"U\x02" + code.encode(), 1)
    assert changed != content
    with pytest.raises(InputError, match=f"numbers of type .{code}"):
        unpickle(changed, "file")


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
@pytest.mark.filterwarnings("ignore:Please import `csr_matrix`:DeprecationWarning")
def test_what_is_read_equals_what_a_trusting_unpickler_reads(name: str, benchmark_root: Path) -> None:
    for part in ("allx", "tx", "x"):
        content = (benchmark_root / f"planetoid/ind.{name}.{part}").read_bytes()
        ours, theirs = unpickle(content, part), pickle.loads(content, encoding="latin1")  # noqa: S301
        assert ours.dtype == theirs.dtype
        assert abs(ours - theirs).nnz == 0
    content = (benchmark_root / f"planetoid/ind.{name}.graph").read_bytes()
    assert unpickle(content, "graph") == pickle.loads(content, encoding="latin1")  # noqa: S301


def test_citeseers_15_nodes_without_rows_have_no_features_and_class_0(benchmark_root: Path) -> None:
    graph, (split,) = load("citeseer", data_root=benchmark_root)
    assert isinstance(graph.x, sp.csr_array)
    empty = np.flatnonzero(np.diff(graph.x.indptr) == 0)
    assert len(empty) == 15
    assert set(graph.y[empty].tolist()) == {0}
    assert not set(empty.tolist()) & set(np.concatenate([split.train, split.val, split.test]).tolist())


@pytest.mark.parametrize("name", [name for name, item in catalogue().items() if item.loader == "planetoid"])
def test_the_public_split_has_20_nodes_a_class_then_500_then_1000(name: str, benchmark_root: Path) -> None:
    graph, (split,) = load(name, "public", data_root=benchmark_root)
    assert graph.y[split.train].bincount().tolist() == [20] * graph.num_classes
    assert (len(split.val), len(split.test)) == (500, 1000)


def test_a_test_index_that_does_not_fit_is_refused(
    benchmark_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(benchmark_root / "planetoid", tmp_path / "planetoid")
    index = tmp_path / "planetoid/ind.cora.test.index"
    for content, message in ((b"1\n2\n", "its 2 rows do not fit"), (b"one\n", "expected one whole number per line")):
        index.write_bytes(content)
        monkeypatch.setitem(sums(), "planetoid/ind.cora.test.index", hashlib.sha256(content).hexdigest())
        with pytest.raises(InputError, match=message):
            load("cora", data_root=tmp_path)
