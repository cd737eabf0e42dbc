"""`load`: a data set by name, or a user's own file, as a graph and its splits.

The reader of a data set is imported when it is asked for, so that naming this function costs nothing.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagpr.data.catalogue import DEFAULT_FRACTIONS, DatasetRow, row
from adagpr.data.csbm import csbm
from adagpr.data.download import OnDownload, open_file
from adagpr.errors import InputError, unknown_name

if TYPE_CHECKING:
    from adagpr.graph import Graph, Split


Read = Callable[[str], bytes]


def load(
    name: str | os.PathLike[str],
    split: str | None = None,
    *,
    seed: int = 0,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    row_normalize: bool | None = None,
    data_root: Path | str | None = None,
    progress: OnDownload | None = None,
    **options: Any,
) -> tuple[Graph, list[Split]]:
    """Loads a data set and its splits.

    Args:
        name: A name of the catalogue, the path of an ``.npz`` file (see `adagpr.data.npz` for what it holds), or
            ``tables``, whose options are the arguments of `adagpr.from_tables`.
        split: ``public``, ``geom-gcn`` (ten splits), ``geom-gcn/3`` (one), ``given``, ``labelled-5``, ``random`` or
            ``random/7`` (that seed), as far as the data set has it. By default what its protocol uses; for a file the
            masks it holds, else ``random``; for tables their own column, else ``stratified``.
        seed: Chooses a random split, and for ``csbm`` also the graph.
        fractions: Shares of train, val and test in a random split.
        row_normalize: Whether to divide features by their row sum; rows of zeros stay. By default as the data set's
            protocol does: yes for the papers' sets, no for ``digits``, ``csbm`` and files.
        data_root: Folder of the files, by default that of ``ADAGPR_DATA`` or the user's cache.
        progress: Told of downloads; see `adagpr.data.download`.
        **options: For ``csbm`` the arguments of `adagpr.data.csbm`, for ``tables`` those of `adagpr.from_tables`.

    Returns:
        The graph, and one split or several.

    Raises:
        InputError: A name, split or option is unknown, or a file is missing, altered or broken.

    Example:
        >>> graph, splits = load("digits")
        >>> graph.num_nodes, splits[0].name
        (1797, 'labelled-5')
    """
    from adagpr.data.splits import parse_split, random_split

    text = os.fspath(name)
    if text == "tables":
        _check_options(text, options)
        if row_normalize is not None:
            raise InputError("load: row_normalize is not for tables, whose recipe scales their columns.")
        return _tables(split, seed, fractions, options)
    dataset = None if text.endswith(".npz") else row(text)
    _check_options(text, options)
    if dataset is None:
        from adagpr.data.npz import graph_from_npz

        graph, fixed = graph_from_npz(Path(text), str(Path(text)), Path(text).stem)
        offered = ["given", "random"] if fixed else ["random"]
        kind, number = parse_split(split or offered[0], offered, len(fixed), "adagpr data --help")
    else:
        asked = split or dataset.default_split
        kind, number = parse_split(asked, dataset.splits, dataset.num_splits, f"adagpr data info {text}")

        def read(file: str) -> bytes:
            return open_file(dataset, file, data_root, progress)

        graph, fixed = _read(dataset, read, seed, options)
        if kind == "geom-gcn":
            fixed = _fixed_splits(dataset, read, number)
            number = None
    normalize = row_normalize if row_normalize is not None else dataset is not None and dataset.row_normalize
    origin = {"name": text, **options}
    if row_normalize is not None:
        origin["row_normalize"] = row_normalize
    if kind == "random" and tuple(fractions) != DEFAULT_FRACTIONS:
        origin["fractions"] = [float(share) for share in fractions]
    if text == "csbm":
        origin["seed"] = seed
    graph = _finished(graph, normalize, dataset.oddities if dataset else (), origin)
    if kind == "random":
        return graph, [random_split(graph.y, seed if number is None else number, fractions)]
    return graph, fixed if number is None else [fixed[number]]


def _check_options(name: str, options: dict[str, Any]) -> None:
    """Refuses options that nobody would look at."""
    if not options:
        return
    from adagpr.data.tables import from_tables

    if name not in ("csbm", "tables"):
        raise InputError(f"load: {', '.join(options)}: only csbm and tables take options, not '{name}'.")
    parameters = inspect.signature(csbm if name == "csbm" else from_tables).parameters
    known = [option for option in parameters if option != "seed"]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)


def _tables(
    split: str | None, seed: int, fractions: Sequence[float], options: dict[str, Any]
) -> tuple[Graph, list[Split]]:
    """The graph of two tables and its split."""
    from adagpr.data.splits import parse_split
    from adagpr.data.tables import read_tables, stratified_split

    for name in ("nodes", "edges", "label"):
        if name not in options:
            raise InputError(f"load: tables need {name}.")
    kind, number = parse_split(split, ("given", "stratified"), 1, "adagpr train --help") if split else (None, None)
    found = read_tables(**options, seed=seed, fractions=fractions)
    chosen = found.split
    if kind == "stratified":
        chosen = stratified_split(found.graph.y, seed if number is None else number, fractions)
    if chosen is None:
        raise InputError("There are too few labels for a split: no class has three labelled nodes.")
    if kind == "given" and chosen.name != "given":
        raise InputError("Split 'given': the table of nodes has no column that says train, val or test.")
    origin = dict(found.graph.origin)
    if tuple(fractions) != DEFAULT_FRACTIONS:
        origin["fractions"] = [float(share) for share in fractions]
    return replace(found.graph, origin=origin), [chosen]


def _finished(graph: Graph, normalize: bool, notes: tuple[str, ...], origin: dict[str, Any]) -> Graph:
    """The graph with its notes and origin and, if asked, features divided by their row sum."""
    import numpy as np
    import scipy.sparse as sp

    from adagpr.graph import compact_features

    if not normalize:
        return replace(graph, notes=notes, origin=origin)
    x = graph.x if isinstance(graph.x, sp.csr_array) else sp.csr_array(graph.x.numpy())
    if x.nnz and x.data.min() < 0:
        raise InputError(f"load: row_normalize needs features that are not negative, and '{graph.name}' has some.")
    x = x.astype(np.float64)
    totals = x.sum(axis=1)
    x.data /= np.repeat(np.where(totals > 0, totals, 1.0), np.diff(x.indptr))
    return replace(graph, x=compact_features(x), notes=notes, origin=origin)


def _read(dataset: DatasetRow, read: Read, seed: int, options: dict[str, Any]) -> tuple[Graph, list[Split]]:
    """The graph of a data set, and the splits that come with it; ``read`` gives the bytes of a file."""
    if dataset.loader == "csbm":
        return csbm(seed=seed, **options), []
    if dataset.loader == "digits":
        from adagpr.data.digits import digits
        from adagpr.data.splits import labelled_split

        graph = digits()
        return graph, [labelled_split(graph.y, num_per_class=5, num_val=500)]
    files = dataset.graph_files()
    if dataset.loader == "planetoid":
        from adagpr.data.planetoid import graph_from_planetoid

        graph, public = graph_from_planetoid(lambda file: read(f"{dataset.source}/{file}"), dataset.stem, dataset.name)
        return graph, [public]
    if dataset.loader == "geom-gcn":
        from adagpr.data.geom_gcn import graph_from_text

        edges, nodes = files
        return graph_from_text(read(edges), read(nodes), dataset.name), []
    from adagpr.data.npz import graph_from_npz

    return graph_from_npz(read(files[0]), files[0], dataset.name, directed=dataset.counts.directed)


def _fixed_splits(dataset: DatasetRow, read: Read, number: int | None) -> list[Split]:
    """All the fixed splits, or the one asked for."""
    from adagpr.data.geom_gcn import split_from_npz

    files = list(enumerate(dataset.split_files()))
    wanted = files if number is None else [files[number]]
    return [split_from_npz(read(file), file, f"geom-gcn/{i}") for i, file in wanted]
