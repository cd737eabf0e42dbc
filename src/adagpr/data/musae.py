"""The tables of MUSAE: users of Twitch, who is a friend of whom, and the games that they play.

``target.csv`` has a line per user with ``new_id`` and ``mature``, the class; ``edges.csv`` a friendship per line,
between two of these ids, meant both ways; ``features.json`` for each id the numbers of its features.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch

from adagpr.errors import InputError, reason_of
from adagpr.graph import Graph, compact_features, edges_to_csr

CLASS_NAMES = ("False", "True")


def graph_from_musae(edges: bytes, features: bytes, target: bytes, name: str) -> Graph:
    """Makes the graph of the three files' bytes; ``name`` is for the graph and for errors."""
    labels = dict(pairs_from_csv(target, ("new_id", "mature"), f"{name}: target.csv"))
    num_nodes = len(labels)
    if set(labels) != set(map(str, range(num_nodes))) or not set(labels.values()) <= set(CLASS_NAMES):
        raise InputError(f"{name}: target.csv: expected each user once, numbered from 0, and mature as True or False.")
    y = torch.tensor([CLASS_NAMES.index(labels[str(node)]) for node in range(num_nodes)])
    x = _features(features, num_nodes, f"{name}: features.json")
    try:
        ends = np.array(list(pairs_from_csv(edges, ("from", "to"), f"{name}: edges.csv")), dtype=np.int64).T
        adj = edges_to_csr(np.concatenate(ends), np.concatenate(ends[::-1]), num_nodes)
    except ValueError as error:  # `InputError` is one, too
        raise InputError(f"{name}: edges.csv: {reason_of(error)}") from error
    return Graph(compact_features(x), adj, y, CLASS_NAMES, name=name)


def pairs_from_csv(content: bytes, columns: tuple[str, str], file: str) -> Iterator[tuple[str, str]]:
    """Two columns of a table, line by line."""
    try:
        for line in csv.DictReader(io.StringIO(content.decode("ascii")), strict=True):
            yield line[columns[0]], line[columns[1]]
    except (csv.Error, KeyError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a table with the columns {' and '.join(columns)}.") from error


def _features(content: bytes, num_nodes: int, file: str) -> sp.csr_array:
    """A one for each feature that a user has."""
    try:
        stored = json.loads(content)
        columns = [np.unique(np.array(stored[str(node)], dtype=np.int64)) for node in range(num_nodes)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: not a list of numbers for each of {num_nodes} users.") from error
    starts, places = np.cumsum([0, *map(len, columns)]), np.concatenate(columns)
    if places.min() < 0:
        raise InputError(f"{file}: expected features numbered from 0.")
    return sp.csr_array((np.ones(len(places), dtype=np.float32), places, starts))
