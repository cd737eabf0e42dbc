"""The paper's tables and figures: what is planned, run once, resumed, shared between commands, and written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adagpr.errors import InputError
from adagpr.experiments import (
    TARGETS,
    Cell,
    Experiment,
    Folders,
    cells,
    experiment,
    plan,
    report_target,
    reproduce,
    reproduction_status,
    run_cells,
)
from adagpr.experiments.runner import state_of
from adagpr.experiments.tables import accuracy_rows, accuracy_table, property_rows, to_csv, verdict
from adagpr.experiments.targets import pattern
from adagpr.files import read_json, write_json
from adagpr.training import State, train


def cell(name: str = "tiny", seeds: tuple[int, ...] = (0,), layers: int = 2, **options: Any) -> Cell:
    """A row on the small embedded graph, with printed coefficients."""
    row = Experiment(
        name=name,
        table=3,
        method="AdaGPR",
        model="adagpr",
        dataset="digits",
        split="labelled-5",
        settings="usual",
        settings_from="here",
        notes=[],
        layers_offset=0,
        options={"hidden_channels": 4, "num_coeffs": 2, "max_epochs": 3, **options},
        published={str(layers): 50.0},
        coefficients={"2": [[1.0, 0.0], [0.5, 0.5]]},
        at={},
    )
    return replace(row.cells()[0], seeds=seeds)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "runs", tmp_path / "catalogue")


def test_targets_plan_what_the_paper_prints() -> None:
    count = {target: len(cells(target)) for target in TARGETS}
    assert count == {"table1": 0, "table2": 150, "table3": 77, "coefficients": 5, "evolution": 2, "ablation": 36}
    seeds = {item.name: len(item.seeds) for target in TARGETS for item in cells(target)}
    assert seeds["table2_adagpr_cora-64"] == seeds["table2_adagpr_pubmed-16"] == 3
    assert seeds["table2_adagpr_pubmed-32"] == seeds["table3_adagpr_texas-4"] == 1
    assert {item.seeds for item in cells("table3", num_seeds=2)} == {(0, 1)}


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["adagpr"], 7),
        (["texas"], 11),
        (["table3_gcn*_texas"], 3),
        (["table3_adagpr_texas:4"], 1),
        (["texas", "adagpr"], 17),
        (["Texas"], 11),
    ],
)
def test_only_what_is_asked_for_is_planned(only: list[str], names: int) -> None:
    assert len(cells("table3", only)) == names


def test_what_does_not_exist_is_said() -> None:
    with pytest.raises(InputError, match="Unknown target 'table4'"):
        cells("table4")
    with pytest.raises(InputError, match="Nothing of table3 fits 'adagpr:5'"):
        plan(["table3"], ["adagpr:5"])
    with pytest.raises(InputError, match=r"Nothing of table2, table3 fits 'coar'\. Did you mean 'cora'\?"):
        plan(["table2", "table3"], ["adagpr", "coar"])
    with pytest.raises(InputError, match=r"Nothing of table3 fits 'table3_adagpr_texas:5'\. Depths of .*texas: 4\."):
        plan(["table3"], ["table3_adagpr_texas:5"])
    with pytest.raises(InputError, match=r"Nothing of table2 fits 'texas'\.$"):
        plan(["table2"], ["texas"])


def test_a_pattern_need_not_fit_every_target() -> None:
    counts = {target: len(group) for target, group in plan([], ["texas"]).items()}
    assert counts == {"table3": 11, "coefficients": 1, "evolution": 2}


def test_a_cell_is_run_once_and_its_record_is_kept(folders: Folders) -> None:
    seen: list[tuple[int, int]] = []
    assert state_of(folders, cell()) == "missing"
    (first,) = run_cells([cell(seeds=(0, 1))], folders, on_cell=lambda _, done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert first == read_json(folders.record(cell()))
    assert np.shape([run["coefficients"] for run in first["runs"]]) == (2, 2, 2)
    again = Folders(folders.runs.parent / "gone", folders.records)
    assert run_cells([cell(seeds=(0, 1))], again) == [first]
    assert not again.runs.exists()
    assert state_of(folders, cell(seeds=(0, 1))) == "done"
    assert state_of(folders, cell(seeds=(0, 1, 2))) == "part"
    assert state_of(folders, cell(max_epochs=4)) == "missing"
    (more,) = run_cells([cell(seeds=(0, 1, 2))], folders)
    assert more["runs"][:2] == first["runs"]
    assert run_cells([cell(seeds=(0,))], folders) == [more]


def test_processes_give_the_same_records(folders: Folders, tmp_path: Path) -> None:
    several = [cell("a"), cell("b", lr=0.05), cell("c", seeds=(0, 1))]
    alone = run_cells(several, folders, num_workers=1)
    spread = run_cells(several, Folders(tmp_path / "other", tmp_path / "records"), num_workers=2)
    assert without_machine(alone) == without_machine(spread)


def without_machine(records: list[dict[str, Any]]) -> str:
    plain = json.loads(json.dumps(records))
    for run in (run for record in plain for run in record["runs"]):
        del run["machine"]
    return json.dumps(plain)


def stopping(count: int) -> Callable[[Cell, int, int], None]:
    """Interrupts the command when so many runs are there."""

    def stop(item: Cell, complete: int, total: int) -> None:
        if complete == count:
            raise KeyboardInterrupt

    return stop


def test_runs_of_a_cell_that_was_interrupted_are_known_without_their_folders(folders: Folders) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_cells([cell(seeds=(0, 1))], folders, on_cell=stopping(1))
    assert state_of(folders, cell(seeds=(0, 1))) == "part"
    (kept,) = read_json(folders.part(cell()))["runs"]
    elsewhere = Folders(folders.runs.parent / "elsewhere", folders.records)
    (whole,) = run_cells([cell(seeds=(0, 1))], elsewhere)
    assert whole["runs"][0] == kept
    assert [item.name for item in elsewhere.runs.iterdir()] == [whole["runs"][1]["config"]]
    assert not folders.part(cell()).exists()


def test_a_command_keeps_what_another_has_recorded_of_the_same_cell(folders: Folders) -> None:
    """The other one begins when the first run of this one has ended, and both are stopped."""

    def begin_another(item: Cell, complete: int, total: int) -> None:
        if complete == 1:
            with pytest.raises(KeyboardInterrupt):
                run_cells([cell(seeds=(2, 3, 4))], folders, on_cell=stopping(1))
        stopping(2)(item, complete, total)

    with pytest.raises(KeyboardInterrupt):
        run_cells([cell(seeds=(0, 1, 5))], folders, on_cell=begin_another)
    assert [run["seed"] for run in read_json(folders.part(cell()))["runs"]] == [0, 1, 2]


def test_a_command_keeps_the_seeds_that_another_has_recorded_meanwhile(folders: Folders) -> None:
    def run_more(item: Cell, complete: int, total: int) -> None:
        if item.row.name == "later" and complete == 0:
            run_cells([cell(seeds=(0, 1, 2))], folders)

    few, _ = run_cells([cell(), cell("later", lr=0.05)], folders, on_cell=run_more)
    assert [run["seed"] for run in few["runs"]] == [0, 1, 2]
    assert few == read_json(folders.record(cell()))


def test_a_command_with_fewer_seeds_keeps_the_others_of_one_that_was_interrupted(folders: Folders) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_cells([cell(seeds=(5, 6, 7))], folders, on_cell=stopping(2))
    (whole,) = run_cells([cell()], Folders(folders.runs.parent / "elsewhere", folders.records))
    assert [run["seed"] for run in whole["runs"]] == [0, 5, 6]
    assert not folders.part(cell()).exists()


def test_a_cell_that_fails_says_why_and_does_not_stop_the_others(folders: Folders) -> None:
    bad = cell("bad", lr=1e30)
    assert [item["method"] for item in run_cells([bad, cell()], folders)] == ["AdaGPR"]
    assert state_of(folders, bad) == "failed"
    assert "diverged" in read_json(folders.failure(bad))["failed"][0]
    run_cells([cell("bad")], folders)
    assert not folders.failure(bad).exists()


def test_a_seed_that_diverges_does_not_take_its_group_down(folders: Folders) -> None:
    """Of three runs that train together only seed 2 diverges."""
    item = cell(seeds=(0, 1, 2), lr=1e9)
    assert run_cells([item], folders) == []
    assert [run["seed"] for run in read_json(folders.part(item))["runs"]] == [0, 1]
    (reason,) = read_json(folders.failure(item))["failed"]
    assert "diverged" in reason
    (fewer,) = run_cells([replace(item, seeds=(0, 1))], folders)
    assert fewer["num_runs"] == 2


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_cell_that_does_not_fit_in_memory_does_not_stop_the_others(
    num_workers: int, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hungry(state: State, *others: Any) -> None:
        if state.config.lr == 0.5:
            torch.empty(2**50)
        train(state, *others)

    monkeypatch.setattr(sys.modules["adagpr.training.fit"], "train", hungry)
    large = cell("large", lr=0.5)
    assert [item["num_runs"] for item in run_cells([large, cell()], folders, num_workers)] == [1]
    assert read_json(folders.failure(large))["failed"] == ["There is not enough memory for this."]


def record(published: float | str = 80.0, accuracies: tuple[float, ...] = (0.79, 0.81, 0.8)) -> dict[str, Any]:
    about = {"config": "0", "val_acc": 0.5, "best_epoch": 1, "num_epochs": 2, "machine": {"seconds": 1.0}}
    return {
        "table": 2,
        "dataset": "cora",
        "method": "GCN_&",
        "layers": 2,
        "test_acc": round(100 * float(np.mean(accuracies)), 2),
        "test_acc_std": 1.0,
        "val_acc": 50.0,
        "split": "public",
        "model": "gcn",
        "options": {},
        "num_runs": len(accuracies),
        "published": published,
        "settings": "released",
        "settings_from": "there",
        "runs": [{**about, "split": "public", "seed": i, "test_acc": value} for i, value in enumerate(accuracies)],
    }


def test_rows_have_the_interval_and_the_difference() -> None:
    (row,) = accuracy_rows([record()])
    assert row.interval == (77.52, 82.48)
    assert (row.difference, row.verdict) == (0.0, "inside")
    assert accuracy_table([row]).to_markdown().splitlines()[2] == (
        "| 2 | cora | GCN_& | 2 | 80.00 ± 1.00 | 77.52 to 82.48 | 3 | 80.0 | +0.00 | inside | released |"
    )
    assert r"GCN\_\& & 2 & 80.00 $\pm$ 1.00" in accuracy_table([row]).to_latex()
    assert to_csv([row.to_plain()]).splitlines()[1].startswith("2,cora,GCN_&,2,80.0,1.0,77.52 82.48,3,80.0,0.0,inside")
    assert {
        "table",
        "dataset",
        "model",
        "num_layers",
        "ours",
        "interval",
        "num_runs",
        "published",
    } <= row.to_plain().keys()


def test_several_seeds_of_a_split_do_not_make_the_interval_shorter() -> None:
    accuracies = (0.7, 0.8, 0.84)
    once = record(accuracies=accuracies)
    thrice = record(accuracies=tuple(np.repeat(accuracies, 3).tolist()))
    for number, run in enumerate(once["runs"]):
        run["split"] = f"geom-gcn/{number}"
    for number, run in enumerate(thrice["runs"]):
        run["split"] = f"geom-gcn/{number // 3}"
    (one,), (other,) = accuracy_rows([once]), accuracy_rows([thrice])
    assert (one.interval, one.num_runs, other.num_runs) == (other.interval, 3, 9)


@pytest.mark.parametrize(
    ("published", "num_runs", "expected"),
    [
        (80.0, 3, "inside"),
        (75.0, 3, "ours higher"),
        (85.0, 3, "ours lower"),
        (85.0, 1, "one run"),
        ("OOM", 1, "trains here"),
        ("unprinted", 3, ""),
    ],
)
def test_the_verdict_says_where_the_printed_value_lies(published: float | str, num_runs: int, expected: str) -> None:
    assert verdict(published, 78.0, 82.0, num_runs) == expected


def test_every_difference_of_table_1_is_explained() -> None:
    rows = property_rows()
    assert len(rows) == 28
    assert [row for row in rows if (row["ours"] != row["published"]) != bool(row["note"])] == []
    misprints = {(row["dataset"], row["what"]) for row in rows if row["note"] == "misprint"}
    assert misprints == {("citeseer", "classes"), ("chameleon", "classes")}


@pytest.mark.parametrize(
    ("dataset", "coeffs", "count"),
    [
        ("chameleon", [[[1, 0, 0], [0, 1, 0]], [[0, 1, 0], [0, 1, 0]]], 1),
        ("texas", [[[1, 0], [1, 0]], [[1, 0], [0.7, 0.3]]], 1),
        ("cornell", [[[0.5, 0.5], [0.9, 0.1], [1, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.5], [1, 0], [1, 0]]], 1),
        ("citeseer", [[[k / 16, 1 - k / 16] for k in range(16)], [[0.5, 0.5]] * 16], 1),
        ("cora", [[[0.7, 0.3]] + [[0.8, 0.2]] * 7, [[0.8, 0.2]] + [[0.7, 0.3]] * 7], 1),
    ],
)
def test_patterns_are_counted_by_run(dataset: str, coeffs: list[Any], count: int) -> None:
    assert f"so in {count} of 2 runs" in pattern(dataset, np.array(coeffs, dtype=float))


def test_reproduce_gives_what_the_command_prints_and_writes(tmp_path: Path) -> None:
    found = reproduce(["table1"], out=tmp_path)
    assert [path.name for path in found.files["table1"]] == [f"table1.{kind}" for kind in ("md", "tex", "csv", "json")]
    assert found.to_plain() == read_json(tmp_path / "table1.json")
    assert (found.failed, found.left_out) == ({}, ())
    assert found._repr_html_().count("<tr>") == 1 + 28
    pytest.importorskip("pandas")
    assert found.frame("table1")["ours"].tolist() == [row["ours"] for row in found.to_plain()]


def test_progress_is_the_share_of_the_work(benchmark_root: Path, tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[tuple[int, int, float]] = []
    monkeypatch.setitem(experiment("hop0_adagpr_texas").options, "max_epochs", 1)
    found = reproduce(
        ["evolution"],
        only=["hop0"],
        out=tmp_path,
        jobs=1,
        data_root=benchmark_root,
        on_progress=lambda name, *numbers: seen.append(numbers),
    )
    assert [numbers[:2] for numbers in seen] == [(done, 10) for done in range(11)]
    assert [share for _, _, share in seen] == pytest.approx([done / 10 for done in range(11)])
    assert reproduction_status(["evolution"], only=["hop0"], out=tmp_path)["evolution"][0][1] == "done"
    assert found.reports["evolution"].drawings == {}


def test_coefficients_and_ablation_are_written_from_records(folders: Folders, tmp_path: Path) -> None:
    run_cells([cell()], folders)
    made = report_target("coefficients", [cell()], folders)
    made.save(tmp_path)
    assert made.plain[0]["published"] == [[1.0, 0.0], [0.5, 0.5]]
    assert (tmp_path / "coefficients.md").read_text() == made.text
    deeper = [cell(layers=layers, num_coeffs=3) for layers in (2, 4)]
    for item in deeper:
        write_json(folders.record(item), {**record("unprinted"), "layers": item.layers, "options": item.options})
    made = report_target("ablation", deeper, folders)
    made.save(tmp_path)
    assert len(made.rows) == 2
    assert (tmp_path / "ablation-cora.png").read_bytes()[1:4] == b"PNG"
    assert (tmp_path / "ablation-cora.svg").read_text().count("<path") > 4
