"""``adagpr train``: train a model and show what it reached and which hops it uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from adagpr.cli.console import show_json, training_bar
from adagpr.cli.options import AsJson, DataRoot, Jobs, SplitName, check_tables, show_notes, takes_tables
from adagpr.cli.request import Request, read_request
from adagpr.cli.train_partition import Precision, train_partition
from adagpr.errors import InputError


@takes_tables
def train(
    dataset: Annotated[
        str | None, Argument(help="A data set (see: adagpr data ls) or an .npz file. Default: digits.")
    ] = None,
    model: Annotated[str | None, Option(help="Name of the model. Default: adagpr.")] = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="An option of the model or of training (see: adagpr models NAME); repeatable.",
        ),
    ] = None,
    split: SplitName = None,
    seed: Annotated[list[int] | None, Option(help="Seed; repeat the option for several runs. Default: 0.")] = None,
    out: Annotated[Path | None, Option(help="Folder of the run. Default: a new one in runs/.")] = None,
    config: Annotated[Path | None, Option(help="Start from this TOML file, such as a run's config.toml.")] = None,
    without_graph: Annotated[
        bool, Option("--without-graph", help="Also train with every layer at hop 0, to see what the graph adds.")
    ] = False,
    data_root: DataRoot = None,
    *,
    tables: dict[str, Any],
    partitions: Annotated[
        Path | None,
        Option(help="Train on a folder that adagpr partition made, with one process or with several of torchrun."),
    ] = None,
    batch_parts: Annotated[
        int | None,
        Option(
            min=1,
            help="With --partitions: train on batches of this many parts, for graphs larger than memory; approximate.",
        ),
    ] = None,
    border: Annotated[
        Precision, Option(help="With --partitions: precision of the rows that processes exchange.")
    ] = "float32",
    device: Annotated[str | None, Option(help="Where to compute: cpu (which is tested) or cuda.")] = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Train a model; if it is stopped, the same command resumes.

    For example: adagpr train cora --set num_layers=16 --seed 0 --seed 1
    """
    from adagpr.data import load
    from adagpr.reporting import report
    from adagpr.training import describe_data, fit_all, summarise

    request = read_request(config, settings or [])
    check_tables(dataset, tables, request.data if request.dataset == "tables" else {})
    if tables:
        dataset = "tables"
    options = request.options | ({} if device is None else {"device": device})
    stored_seed = options.pop("seed", 0)
    seeds = seed or [stored_seed]
    model = model or request.model
    if partitions is not None:
        if dataset is not None or split is not None or without_graph:
            raise InputError("--partitions replaces a data set, its tables and its split.")
        train_partition(partitions, model, seeds, out, batch_parts, border, options, as_json)
        return
    graph, splits = load(
        dataset or request.dataset, split or request.split, data_root=data_root, **{**request.data, **tables}
    )
    if tables and not as_json:
        show_notes(graph)
    if dataset is None and split is None:
        _check_sums(request, describe_data(graph, splits[0]))
    num_runs = len(splits) * len(seeds)
    folders: list[Path] = []
    with training_bar(lambda: next(iter(folders), None), options, num_runs, without_graph) as (start, end):
        runs = fit_all(
            graph,
            splits,
            model,
            seeds=seeds,
            out=out,
            root=Path("runs") if out is None else None,
            without_graph=without_graph,
            on_start=folders.append,
            on_epoch=start,
            on_end=end,
            **_processes(jobs),
            **options,
        )
    if not runs.is_complete:
        # The rank that ends last sees all of them, if all write to one disk.
        num_done = len(runs) + len(runs.baseline_runs)
        typer.echo(f"rank {os.environ['RANK']} is done; {num_done} of {runs.num_asked} runs are complete")
        return
    folder = runs.folder or Path()
    models = [runs, runs.baseline_runs] if without_graph else [runs]
    names = ["with the graph", "without the graph"] if without_graph else None
    report(models, folder / "report.html", names=names, graph=graph, splits=splits)
    if as_json:
        result: dict[str, Any] = {"folder": str(folder), **summarise(runs)}
        if without_graph:
            result["without_graph"] = summarise(runs.baseline_runs)
        show_json({**result, "runs": [{"folder": str(run.folder), **run.record} for run in runs]})
    else:
        from adagpr.cli.train_view import show_runs

        show_runs(graph, splits, runs)


def _processes(jobs: int | None) -> dict[str, Any]:
    """Which of the runs are this process's, if torchrun started several, and how many processes it may start."""
    rank, size, beside = (int(os.environ.get(name, "1")) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if size == 1:
        return {"num_workers": jobs}
    from adagpr.system import num_cores

    return {"rank": rank, "world_size": size, "num_workers": jobs or max(1, num_cores() // beside)}


def _check_sums(request: Request, data: dict[str, Any]) -> None:
    """Refuses to repeat a run on other data than it was made on."""
    for key, value in request.sums.items():
        if data[key] != value:
            what = key.removesuffix("_sha256")
            raise InputError(f"The configuration was written for another {what} of '{request.dataset}': {key} differs.")
