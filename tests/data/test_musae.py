from __future__ import annotations

import pytest
import scipy.sparse as sp

from adagpr.data.musae import graph_from_musae
from adagpr.errors import InputError

EDGES = b"from,to\n0,1\n2,1\n"
FEATURES = b'{"1": [3, 0, 3], "0": [], "2": [1]}'
TARGET = b"id,days,mature,views,partner,new_id\n7,1,True,5,False,1\n8,2,False,6,False,0\n9,3,True,7,False,2\n"


def test_friendships_count_both_ways_and_a_repeated_feature_once() -> None:
    graph = graph_from_musae(EDGES, FEATURES, TARGET, "tiny")
    assert graph.adj.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    x = graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x
    assert x.tolist() == [[0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0]]
    assert (graph.y.tolist(), graph.class_names) == ([0, 1, 1], ("False", "True"))


@pytest.mark.parametrize(
    ("edges", "features", "target", "message"),
    [
        (EDGES + b"3,x\n", FEATURES, TARGET, r"tiny: edges\.csv: "),
        (EDGES + b"3,0\n", FEATURES, TARGET, r"edges\.csv: Edge 2 has the source 3, but the nodes are 0 to 2"),
        (b"a,b\n0,1\n", FEATURES, TARGET, r"edges\.csv: not a table with the columns from and to"),
        (EDGES, b"[]", TARGET, r"features\.json: not a list of numbers for each of 3 users"),
        (EDGES, FEATURES.replace(b'"2"', b'"4"'), TARGET, "not a list of numbers for each of 3 users"),
        (EDGES, FEATURES.replace(b"[1]", b"[-1]"), TARGET, "expected features numbered from 0"),
        (EDGES, FEATURES, TARGET.replace(b",2\n", b",3\n"), r"target\.csv: expected each user once"),
        (EDGES, FEATURES, TARGET.replace(b"2,False", b"2,Maybe"), "mature as True or False"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(edges: bytes, features: bytes, target: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        graph_from_musae(edges, features, target, "tiny")
