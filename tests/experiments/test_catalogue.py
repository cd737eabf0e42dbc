from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from adagpr.data import catalogue as datasets
from adagpr.errors import InputError
from adagpr.experiments import Experiment, catalogue, experiment
from adagpr.experiments.catalogue import read_rows
from adagpr.nn import build
from adagpr.training import TrainingConfig

ROWS = list(catalogue().values())
FILES = sorted((Path(__file__).parents[2] / "src" / "adagpr" / "experiments" / "paper").glob("*.toml"))
TOP = 'table = 2\nmethod = "GCN"\nsettings = "usual"\nsettings_from = "{dataset}.sh"\nsplit = "public"\n'
REST = '[model]\nname = "gcn"\n[dataset.cora]\npublished = { 2 = 80.0 }\n'


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_file_is_one_printed_row(path: Path) -> None:
    rows = read_rows(path)
    assert len({row.dataset for row in rows}) == len(rows) > 0
    assert {row.method for row in rows} == {rows[0].method}


def test_the_names_of_records_are_unique() -> None:
    names = [cell.name for path in FILES for row in read_rows(path) for cell in row.cells()]
    assert len(names) == len(set(names)) == 240


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_every_row_names_a_data_set_a_split_and_a_model_that_can_be_built(row: Experiment) -> None:
    assert row.split in datasets()[row.dataset].splits
    for cell in row.cells():
        shallow = {**cell.options, "num_layers": min(cell.options.get("num_layers", 3), 3)}
        model = {key: value for key, value in shallow.items() if key not in TrainingConfig.model_fields}
        known = {**model, "in_channels": 5, "hidden_channels": 4, "out_channels": 3}
        accepted = {key: value for key, value in known.items() if key != "num_layers" or "num_layers" in cell.options}
        assert build(row.model, accepted).arguments["in_channels"] == 5


def test_every_cell_of_both_tables_is_there() -> None:
    by_table = {table: [row for row in ROWS if row.table == table] for table in (2, 3)}
    assert len(by_table[2]) == 9 * 3
    assert len(by_table[3]) == 11 * 7
    assert sum(len(row.cells()) for row in by_table[2]) == 3 * (5 * 6 + 4 * 5)


@pytest.mark.parametrize(
    ("name", "layers", "published"),
    [
        ("table2_gcn_cora", 64, 28.7),
        ("table2_adagpr_citeseer", 16, 73.5),
        ("table2_adagpr_pubmed", 64, "OOM"),
        ("table3_adagpr_chameleon", 2, 64.71),
        ("table3_gcnii-star_texas", 32, 77.84),
        ("table3_appnp_wisconsin", None, 69.02),
    ],
)
def test_published_numbers_are_those_of_the_paper(name: str, layers: int | None, published: float | str) -> None:
    assert {cell.layers: cell.published for cell in experiment(name).cells()}[layers] == published


def test_printed_layers_of_jknet_count_the_last_map() -> None:
    cells = {cell.layers: cell.options["num_layers"] for cell in experiment("table2_jknet_cora").cells()}
    assert cells[64] == 63


def test_a_depth_may_have_options_of_its_own() -> None:
    cells = {cell.layers: cell.options["dropout"] for cell in experiment("table2_incepgcn-drop_cora").cells()}
    assert cells == {4: 0.5, 8: 0.3, 16: 0.3, 32: 0.3, 64: 0.3}
    whose = {cell.layers: cell.settings for cell in experiment("table2_incepgcn-drop_cora").cells()}
    assert whose == {4: "chosen", 8: "released", 16: "released", 32: "released", 64: "released"}


@pytest.mark.parametrize("dataset", ["cora", "citeseer"])
def test_the_ablation_changes_nothing_but_the_coefficients(dataset: str) -> None:
    learned, equal = (experiment(f"{row}_{dataset}").cells() for row in ("table2_adagpr", "ablation_uniform"))
    for ours, other in zip(learned, equal, strict=True):
        decays = {"convs": 1.0, "linears": 0.0001}
        assert ours.options["weight_decay"] == {**decays, "coeffs": 0.1}
        assert {**ours.options, "weight_decay": decays, "projection": "fixed"} == other.options


def test_a_data_set_adds_to_its_row_and_replaces(tmp_path: Path) -> None:
    shared = '[model]\nname = "gcn"\ndropout = 0.1\n[training]\nlr = 0.1\n[dataset.cora]\npublished = 80.0\n'
    own = '[dataset.texas]\nsettings = "chosen"\nnotes = ["own"]\nlr = 0.2\npublished = { 2 = "OOM" }\n'
    (tmp_path / "row.toml").write_text(f'{TOP}notes = ["shared"]\n{shared}{own}')
    cora, texas = read_rows(tmp_path / "row.toml")
    assert (cora.name, cora.settings, cora.settings_from, cora.notes) == ("row_cora", "usual", "cora.sh", ["shared"])
    assert (texas.settings, texas.settings_from, texas.notes) == ("chosen", "texas.sh", ["shared", "own"])
    assert (cora.options, texas.options) == ({"dropout": 0.1, "lr": 0.1}, {"dropout": 0.1, "lr": 0.2})
    assert [cell.name for row in (cora, texas) for cell in row.cells()] == ["row_cora", "row_texas-2"]


def test_a_row_says_only_what_differs_from_the_one_that_it_is_like(tmp_path: Path) -> None:
    (tmp_path / "row.toml").write_text(TOP + REST)
    (tmp_path / "other.toml").write_text('like = "row"\nmethod = "GCN(Drop)"\n[dataset.texas]\npublished = 81.0\n')
    (row,), (other,) = (read_rows(tmp_path / f"{name}.toml") for name in ("row", "other"))
    assert (other.name, other.method, other.published) == ("other_texas", "GCN(Drop)", {"any": 81.0})
    own = {"name": row.name, "dataset": "cora", "method": "GCN", "settings_from": "cora.sh", "published": row.published}
    assert asdict(row) == {**asdict(other), **own}


def test_depths_and_sources_are_said_once_for_all_data_sets(tmp_path: Path) -> None:
    sources = 'settings_from.usual = "{dataset}.sh"\nsettings_from.chosen = "validation"\n'
    top = TOP.replace('settings_from = "{dataset}.sh"\n', sources)
    rows = 'cora = { published = [80.0, "OOM"] }\ntexas = { published = "unprinted", settings = "chosen" }\n'
    (tmp_path / "row.toml").write_text(f'{top}layers = [2, 4]\nmodel = {{ name = "gcn" }}\n[dataset]\n{rows}')
    cora, texas = read_rows(tmp_path / "row.toml")
    assert (cora.published, cora.settings_from) == ({"2": 80.0, "4": "OOM"}, "cora.sh")
    assert (texas.published, texas.settings_from) == ({"2": "unprinted", "4": "unprinted"}, "validation")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("at.4 = { dropout = 0.1 }", "Unknown depth '4'"),
        ("at.2 = { dropuot = 0.1 }", "Unknown key 'dropuot'. Did you mean 'dropout'"),
        ("dropuot = 0.1", "Unknown key 'dropuot'. Did you mean 'dropout'"),
        ("max_epochs = 0", "max_epochs"),
        ("[dataset.texas]\npublished = [80.0, 81.0]", "published must have one value for each of layers"),
    ],
)
def test_what_a_data_set_adds_is_checked(tmp_path: Path, end: str, message: str) -> None:
    path = tmp_path / "row.toml"
    path.write_text(f"{TOP}{REST}{end}\n")
    with pytest.raises(InputError, match=message):
        read_rows(path)


def test_unknown_rows_and_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Unknown experiment 'table2_gcn_coar'"):
        experiment("table2_gcn_coar")
    (tmp_path / "row.toml").write_text(f"{TOP}extra = 1\n{REST}")
    with pytest.raises(InputError, match=r"Unknown key of row.toml 'extra'"):
        read_rows(tmp_path / "row.toml")


def test_printed_coefficients_are_weights_of_as_many_layers_and_hops() -> None:
    rows = [row for row in ROWS if row.coefficients]
    assert {row.dataset for row in rows} == {"cora", "citeseer", "cornell", "chameleon", "texas"}
    for row in rows:
        for depth, layers in row.coefficients.items():
            options = next(cell.options for cell in row.cells() if str(cell.layers) == depth)
            assert [len(layer) for layer in layers] == [options["num_coeffs"]] * options["num_layers"]
            # Printed with three digits, and not always to a sum of 1.
            assert all(sum(layer) == pytest.approx(1.0, abs=0.012) for layer in layers)
