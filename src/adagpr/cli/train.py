"""``adagpr train``: train a model and show what it reached and which hops it uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adagpr.cli.console import show_json
from adagpr.cli.options import DataRoot, check_tables, show_notes, takes_tables
from adagpr.cli.request import Request, read_request
from adagpr.cli.train_partition import Precision, train_partition
from adagpr.cli.training_bar import training_bar
from adagpr.errors import InputError

if TYPE_CHECKING:
    from adagpr.graph import Graph, Split
    from adagpr.training import Run


@takes_tables
def train(
    dataset: Annotated[
        str | None, typer.Argument(help="A data set (see: adagpr data ls) or an .npz file. Default: digits.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model. Default: adagpr.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="An option of the model or of training (see: adagpr models NAME); repeatable.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="public, geom-gcn (all ten), geom-gcn/3, random, random/7; of tables given, stratified, stratified/7. "
            "Default: the set's own."
        ),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seed; repeat it for several runs. Default: 0.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: one below runs/, named by its content.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Start from this TOML file, such as a run's config.toml.")] = None,
    without_graph: Annotated[
        bool,
        typer.Option("--without-graph", help="Train once more with every layer at hop 0, to see what the graph adds."),
    ] = False,
    data_root: DataRoot = None,
    *,
    tables: dict[str, Any],
    partitions: Annotated[
        Path | None,
        typer.Option(
            help="A folder that adagpr partition made, in place of a data set; several processes of torchrun share it."
        ),
    ] = None,
    batch_parts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --partitions: train on batches of so many parts, for a graph larger than memory; approximate.",
        ),
    ] = None,
    border: Annotated[
        Precision, typer.Option(help="With --partitions: how rows travel between processes.")
    ] = "float32",
    device: Annotated[str | None, typer.Option(help="cpu (the tested one) or cuda.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes for several runs. Default: one for each core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model; repeat the same command to go on after an interruption.

    For example: adagpr train cora --set num_layers=16 --seed 0 --seed 1
    """
    from adagpr.data import load
    from adagpr.training import several
    from adagpr.training.config import config_digest, resolve

    request = read_request(config, settings or [])
    check_tables(dataset, tables, request.data if request.dataset == "tables" else {})
    if tables:
        dataset = "tables"
    options = {key: value for key, value in request.options.items() if key != "seed"}
    if device is not None:
        options["device"] = device
    seeds = seed or [request.options.get("seed", 0)]
    model = model or request.model
    if partitions is not None:
        if dataset is not None or split is not None or without_graph:
            raise InputError("--partitions stands in place of a data set, its tables and its split.")
        train_partition(partitions, model, seeds, out, batch_parts, border, options, as_json)
        return
    graph, splits = load(
        dataset or request.dataset, split or request.split, data_root=data_root, **{**request.data, **tables}
    )
    if tables and not as_json:
        show_notes(graph)
    baseline_options = several.without_graph(model, options) if without_graph else {}
    resolved = [resolve(graph, item, model, {**options, "seed": number})[1] for item in splits for number in seeds]
    if dataset is None and split is None:
        _check_sums(request, resolved[0]["data"])
    folder = out or Path("runs") / f"{Path(graph.name).name}-{model}-{config_digest(*resolved)}"
    max_epochs = resolved[0]["training"]["max_epochs"]
    baseline_runs: list[Run] = []
    share, jobs = _share(jobs)
    with training_bar(folder, len(splits) * len(seeds) * (1 + without_graph), max_epochs) as (start, end):
        runs = several.fit_all(
            graph,
            splits,
            model,
            seeds=seeds,
            out=folder,
            on_epoch=lambda number: start(number, ""),
            on_end=end,
            num_workers=jobs,
            share=share,
            **options,
        )
        if without_graph:
            baseline_runs = several.fit_all(
                graph,
                splits,
                model,
                seeds=seeds,
                out=folder / "without-graph",
                on_epoch=lambda number: start(len(runs) + number, "without the graph"),
                on_end=lambda number: end(len(runs) + number),
                num_workers=jobs,
                share=share,
                **baseline_options,
            )
    num_done, num_asked = len(runs) + len(baseline_runs), len(splits) * len(seeds) * (1 + without_graph)
    if num_done < num_asked:
        # The rank that ends last sees all of them, where all write to one disk.
        typer.echo(f"rank {share[0]} of {share[1]} is done; {num_done} of {num_asked} runs are complete")
        return
    _report(folder, bool(baseline_runs), graph, splits)
    if as_json:
        show_json(_plain(runs, baseline_runs, folder))
    else:
        from adagpr.cli.train_view import show_runs

        show_runs(graph, splits, runs, baseline_runs, folder)


def _share(jobs: int | None) -> tuple[tuple[int, int], int | None]:
    """Which of the runs are this process's, where torchrun started several, and how many processes it may start."""
    rank, size, beside = (int(os.environ.get(name, "1")) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if size == 1:
        return (0, 1), jobs
    from adagpr.system import num_cores

    return (rank, size), jobs or max(1, num_cores() // beside)


def _report(folder: Path, has_baseline: bool, graph: Graph, splits: list[Split]) -> None:
    """Writes the page of the runs into their folder; the same command writes it again."""
    from adagpr.reporting import report

    folders = [folder, folder / "without-graph"] if has_baseline else [folder]
    names = ["with the graph", "without the graph"] if has_baseline else None
    report(folders, folder / "report.html", names=names, graph=graph, splits=splits)


def _check_sums(request: Request, data: dict[str, Any]) -> None:
    """Refuses to repeat a run on other data than it was made on."""
    for key, value in request.sums.items():
        if data[key] != value:
            what = key.removesuffix("_sha256")
            raise InputError(f"The configuration was written for another {what} of '{request.dataset}': {key} differs.")


def _plain(runs: list[Run], baseline_runs: list[Run], folder: Path) -> dict[str, Any]:
    from adagpr.training.several import summarise

    result: dict[str, Any] = {"folder": str(folder), **summarise(runs)}
    if baseline_runs:
        result["without_graph"] = summarise(baseline_runs)
    return {**result, "runs": [{"folder": str(run.folder), **run.record} for run in runs]}
