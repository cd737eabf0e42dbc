"""The data sets by name: where they come from, what is in them, and what is odd about them.

The rows are in ``catalogue.toml``, the sums of their files in ``SHA256SUMS``. Reading them needs neither torch nor
the files themselves.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from adagpr.arguments import MetricName, Strict
from adagpr.errors import unknown_name
from adagpr.files import read_toml

Loader = Literal["planetoid", "geom-gcn", "npz", "musae", "digits", "csbm"]

_CATALOGUE = Path(__file__).with_name("catalogue.toml")
EDGES_FILE = "out1_graph_edges.txt"
NODES_FILE = "out1_node_feature_label.txt"
# Fixed splits of a data set that has numbered ones, unless it says otherwise.
NUM_SPLITS = 10
# Shares of train, val and test in a split that is drawn.
DEFAULT_FRACTIONS = (0.6, 0.2, 0.2)
MUSAE_FILES = ("edges.csv", "features.json", "target.csv")
PLANETOID_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")


class Source(Strict):
    """A public home of files, at one commit; its name is also the first folder of its files.

    Where the files are not the public ones but were ``converted_from`` one of them, they cannot be downloaded.
    """

    repository: str
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    prefix: str = ""
    licence: str | None = None
    converted_from: str | None = None

    def url(self, path: str) -> str:
        """Address of one file by its path in the home's folder."""
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.prefix}{path}"


class Counts(Strict):
    """What a data set holds, measured.

    ``entries`` are the pairs of nodes in the file, repeated ones and self loops included; ``edges`` the distinct
    unordered pairs of different nodes, of which ``homophily`` is the share that join nodes of one class.
    """

    nodes: int
    entries: int
    self_loops: int
    edges: int
    features: int
    classes: int
    directed: bool
    homophily: float


class DatasetRow(Strict):
    """One data set of the catalogue.

    Without a ``source`` it needs no file; ``stem`` is its name in the names of files. Its protocol uses the first of
    its ``splits``, divides features by their row sum if ``row_normalize`` is true, and compares runs by the score
    ``metric``. ``oddities`` are what a reader of its numbers must know, one sentence each.
    """

    name: str
    title: str
    description: str
    loader: Loader
    source: str | None = None
    stem: str
    splits: tuple[str, ...] = Field(min_length=1)
    num_splits: int = NUM_SPLITS
    row_normalize: bool = False
    metric: MetricName = "accuracy"
    counts: Counts
    oddities: tuple[str, ...]

    @property
    def default_split(self) -> str:
        """The kind of split that its protocol uses."""
        return self.splits[0]

    def graph_files(self) -> tuple[str, ...]:
        """Files of the graph itself, relative to the data folder."""
        if self.loader == "planetoid":
            return tuple(f"{self.source}/ind.{self.stem}.{part}" for part in PLANETOID_PARTS)
        if self.loader == "geom-gcn":
            folder = f"{self.source}/new_data/{self.stem}"
            return (f"{folder}/{EDGES_FILE}", f"{folder}/{NODES_FILE}")
        if self.loader == "musae":
            return tuple(f"{self.source}/{self.stem}/{file}" for file in MUSAE_FILES)
        return (f"{self.source}/{self.stem}.npz",) if self.loader == "npz" else ()

    @property
    def can_be_downloaded(self) -> bool:
        """Whether its files have public addresses."""
        return self.source is None or sources()[self.source].converted_from is None

    def split_files(self) -> tuple[str, ...]:
        """Files of the ten fixed splits, relative to the data folder."""
        if "geom-gcn" not in self.splits:
            return ()
        return tuple(f"geom-gcn/splits/{self.stem}_split_0.6_0.2_{i}.npz" for i in range(self.num_splits))

    def files(self) -> dict[str, str]:
        """Every file of the data set with its SHA-256 sum."""
        return {file: sums()[file] for file in (*self.graph_files(), *self.split_files())}


@cache
def catalogue() -> dict[str, DatasetRow]:
    """All data sets by name, in the order of the catalogue file."""
    stored = read_toml(_CATALOGUE)
    found = {}
    for name, fields in stored["datasets"].items():
        usual = {"name": name, "loader": name, "stem": name.replace("-", "_"), "title": name.capitalize()}
        found[name] = DatasetRow(**usual | stored["homes"].get(fields.get("source"), {}) | fields)
    return found


def row(name: str) -> DatasetRow:
    """The data set called ``name``; if there is none, an `InputError` offers the nearest name."""
    if name not in catalogue():
        raise unknown_name("data set", name, catalogue(), see="adagpr data ls")
    return catalogue()[name]


@cache
def sources() -> dict[str, Source]:
    """The public homes by name."""
    return {name: Source(**fields) for name, fields in read_toml(_CATALOGUE)["sources"].items()}


def home_of(file: str) -> Source:
    """The public home of a file of the data folder."""
    return sources()[file.partition("/")[0]]


def url_of(file: str) -> str:
    """Public address of a file of the data folder."""
    return home_of(file).url(file.partition("/")[2])


@cache
def sums() -> dict[str, str]:
    """SHA-256 sum of every file, by its path in the data folder."""
    lines = _CATALOGUE.with_name("SHA256SUMS").read_text(encoding="ascii").splitlines()
    return {file: total for total, file in (line.split(maxsplit=1) for line in lines)}
