from __future__ import annotations

from pathlib import Path

import pytest

from adagpr.data import catalogue as datasets
from adagpr.errors import InputError
from adagpr.experiments import Experiment, catalogue, experiment
from adagpr.experiments.catalogue import _read
from adagpr.nn import build

ROWS = list(catalogue().values())
TOP = 'table = 2\nmethod = "GCN"\nsettings = "usual"\nsettings_from = ""\n'
DATA = '[data]\nname = "cora"\nsplit = "public"\n'


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_every_row_names_a_data_set_a_split_and_a_model_that_can_be_built(row: Experiment) -> None:
    assert row.data.split in datasets()[row.data.name].splits
    for cell in row.cells():
        shallow = {**cell.options, "num_layers": min(cell.options.get("num_layers", 3), 3)}
        model = {key: value for key, value in shallow.items() if key not in row.training}
        known = {**model, "in_channels": 5, "hidden_channels": 4, "out_channels": 3}
        accepted = {key: value for key, value in known.items() if key != "num_layers" or "num_layers" in cell.options}
        assert build(str(row.model["name"]), accepted).arguments["in_channels"] == 5


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


@pytest.mark.parametrize(("end", "wrong"), [("[at.4]\ndropout = 0.1\n", "depth"), ("[at.2]\ndropuot = 0.1\n", "key")])
def test_options_of_a_depth_are_checked(tmp_path: Path, end: str, wrong: str) -> None:
    path = tmp_path / "row.toml"
    path.write_text(f'{TOP}{DATA}[model]\nname = "gcn"\n[training]\n[published]\n"2" = 80.0\n{end}')
    with pytest.raises(InputError, match=f"Unknown {wrong}"):
        _read(path)


def test_unknown_rows_and_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Unknown experiment 'table2_gcn_coar'"):
        experiment("table2_gcn_coar")
    (tmp_path / "row.toml").write_text(
        f'{TOP}extra = 1\n{DATA}[model]\nname = "gcn"\n[training]\n[published]\n"2" = 80.0\n'
    )
    with pytest.raises(InputError, match=r"Unknown key of row.toml 'extra'"):
        _read(tmp_path / "row.toml")


def test_printed_coefficients_are_weights_of_as_many_layers_and_hops() -> None:
    rows = [row for row in ROWS if row.coefficients]
    assert {row.data.name for row in rows} == {"cora", "citeseer", "cornell", "chameleon", "texas"}
    for row in rows:
        for depth, layers in row.coefficients.items():
            options = next(cell.options for cell in row.cells() if str(cell.layers) == depth)
            assert [len(layer) for layer in layers] == [options["num_coeffs"]] * options["num_layers"]
            # Printed with three digits, and not always to a sum of 1.
            assert all(sum(layer) == pytest.approx(1.0, abs=0.012) for layer in layers)
