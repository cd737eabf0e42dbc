"""What a user asks for, from a configuration file and from words."""

from __future__ import annotations

from pathlib import Path

import pytest

from adagpr.cli.options import read_request
from adagpr.errors import InputError


def test_words_win_over_the_file_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[data]\nname = "cora"\n[training]\nlr = 0.1\n[training.weight_decay]\nconvs = 1.0\nlinears = 2.0\n'
    )
    request = read_request(path, ["weight_decay.convs=3.0", "num_layers=4"])
    assert request.dataset == "cora"
    assert request.options == {"lr": 0.1, "weight_decay": {"convs": 3.0, "linears": 2.0}, "num_layers": 4}


def test_none_stands_for_nothing_but_in_the_names_of_columns_and_files(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[data]\nname = "tables"\nlabel = "none"\nrow_normalize = "none"\n[training]\nrecompute = "none"\n')
    request = read_request(path, ["patience=none", "data.weight=none"])
    assert request.data == {"label": "none", "weight": "none", "row_normalize": None}
    assert request.options == {"recompute": None, "patience": None}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["num_layers"], "--set takes KEY=VALUE, got 'num_layers'"),
        (["a=1", "a.b=2"], "--set gives a both as a value and as a table"),
        (["data.split=public"], "data.split cannot be set"),
    ],
)
def test_a_wrong_word_is_named(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_request(None, words)
