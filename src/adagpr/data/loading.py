"""`load`: a data set by name, or a user's own file, as a graph and its splits."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from adagpr.data.built_in import csbm, digits
from adagpr.data.catalogue import DEFAULT_FRACTIONS, DatasetRow, row
from adagpr.data.download import OnDownload, open_file
from adagpr.data.geom_gcn import graph_from_text, split_from_npz
from adagpr.data.musae import graph_from_musae
from adagpr.data.npz import graph_from_npz
from adagpr.data.planetoid import graph_from_planetoid
from adagpr.data.splits import labelled_split, parse_split, random_split
from adagpr.data.tables import from_tables, read_tables, stratified_split
from adagpr.errors import InputError, unknown_name
from adagpr.files import remember_named
from adagpr.graph import Graph, Split, compact_features


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
    text = os.fspath(name)
    if text == "tables":
        _check_options(text, options)
        if row_normalize is not None:
            raise InputError("load: row_normalize is not for tables, whose recipe scales their columns.")
        return _tables(split, seed, fractions, options)
    dataset = None if text.endswith(".npz") else row(text)
    _check_options(text, options)
    if dataset is None:
        graph, fixed = graph_from_npz(Path(text), str(Path(text)), Path(text).stem)
        remember_named(text)
        offered = ["given", "random"] if fixed else ["random"]
        kind, number = parse_split(split or offered[0], offered, len(fixed), "adagpr data --help")
    else:
        see = f"adagpr data info {text}"
        kind, number = parse_split(split or dataset.default_split, dataset.splits, dataset.num_splits, see)
        read = partial(open_file, dataset, root=data_root, progress=progress)
        graph, fixed = _read(dataset, read, seed, options)
        if kind == "geom-gcn":
            files = dataset.split_files()
            wanted = range(len(files)) if number is None else [number]
            fixed = [split_from_npz(read(files[i]), files[i], f"geom-gcn/{i}") for i in wanted]
            number = None
    origin = {"name": text, **options}
    if row_normalize is not None:
        origin["row_normalize"] = row_normalize
    elif dataset is not None:
        row_normalize = dataset.row_normalize
    if kind == "random" and tuple(fractions) != DEFAULT_FRACTIONS:
        origin["fractions"] = [float(share) for share in fractions]
    if text == "csbm":
        origin["seed"] = seed
    graph = replace(graph, notes=dataset.oddities if dataset else (), origin=origin)
    graph = _row_normalized(graph) if row_normalize else graph
    if kind == "random":
        return graph, [random_split(graph.y, seed if number is None else number, fractions)]
    return graph, fixed if number is None else [fixed[number]]


def _check_options(name: str, options: dict[str, Any]) -> None:
    """Refuses options that would be ignored."""
    if options and name not in ("csbm", "tables"):
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


def _row_normalized(graph: Graph) -> Graph:
    """The graph with features divided by their row sum."""
    x = graph.x if isinstance(graph.x, sp.csr_array) else sp.csr_array(graph.x.numpy())
    if x.nnz and x.data.min() < 0:
        raise InputError(f"load: row_normalize needs features that are not negative, and '{graph.name}' has some.")
    x = x.astype(np.float64)
    totals = x.sum(axis=1)
    x.data /= np.repeat(np.where(totals > 0, totals, 1.0), np.diff(x.indptr))
    return replace(graph, x=compact_features(x))


def _read(
    dataset: DatasetRow, read: Callable[[str], bytes], seed: int, options: dict[str, Any]
) -> tuple[Graph, list[Split]]:
    """The graph of a data set, and the splits that come with it; ``read`` gives the bytes of a file."""
    if dataset.loader == "csbm":
        return csbm(seed=seed, **options), []
    if dataset.loader == "digits":
        graph = digits()
        return graph, [labelled_split(graph.y, num_per_class=5, num_val=500)]
    if dataset.loader == "planetoid":
        graph, public = graph_from_planetoid(lambda file: read(f"{dataset.source}/{file}"), dataset.stem, dataset.name)
        return graph, [public]
    if dataset.loader == "geom-gcn":
        edges, nodes = dataset.graph_files()
        return graph_from_text(read(edges), read(nodes), dataset.name), []
    if dataset.loader == "musae":
        links, features, target = map(read, dataset.graph_files())
        return graph_from_musae(links, features, target, dataset.name), []
    (file,) = dataset.graph_files()
    return graph_from_npz(read(file), file, dataset.name, directed=dataset.counts.directed)
