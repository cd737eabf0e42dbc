"""``adagpr train``: train a model and show what it reached and which hops it uses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

import adagpr
from adagpr.cli.console import show, show_json, training_bar
from adagpr.cli.options import AsJson, DataRoot, Jobs, Request, SplitName, load_data, read_request, takes_tables
from adagpr.errors import InputError

Precision = Literal["float32", "bfloat16"]


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
        Option(help="Train on a folder that adagpr partition made, with one process, or several started by torchrun."),
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
    request = read_request(config, settings or [], dataset=dataset, split=split, model=model, tables=tables)
    if device is not None:
        request.options["device"] = device
    stored_seed = request.options.pop("seed", 0)
    seeds = seed or [stored_seed]
    if partitions is not None:
        if dataset is not None or tables or split is not None or without_graph:
            raise InputError("--partitions replaces a data set, its tables and its split.")
        _train_on_parts(partitions, request, seeds, out, batch_parts, border, as_json)
        return
    graph, splits = load_data(request, data_root, with_notes=bool(tables) and not as_json)
    folders: list[Path] = []
    num_runs = len(splits) * len(seeds)
    with training_bar(lambda: next(iter(folders), None), request.model, request.options, num_runs, without_graph) as (
        start,
        end,
    ):
        runs = adagpr.fit_all(
            graph,
            splits,
            request.model,
            seeds=seeds,
            out=out,
            root=Path("runs") if out is None else None,
            without_graph=without_graph,
            on_start=folders.append,
            on_epoch=start,
            on_end=end,
            **_processes(jobs),
            **request.options,
        )
    if not runs.is_complete:
        # The rank that ends last sees all of them, if all write to one disk.
        num_done = len(runs) + len(runs.baseline_runs)
        show(f"rank {os.environ['RANK']} is done; {num_done} of {runs.num_asked} runs are complete")
        return
    folder = runs.folder or Path()
    models = [runs, runs.baseline_runs] if without_graph else [runs]
    names = ["with the graph", "without the graph"] if without_graph else None
    adagpr.report(models, folder / "report.html", names=names, graph=graph, splits=splits)
    if as_json:
        from adagpr.training import summarise

        baseline = {"without_graph": summarise(runs.baseline_runs)} if without_graph else {}
        records = [{"folder": str(run.folder), **run.record} for run in runs]
        show_json({"folder": str(folder), **summarise(runs), **baseline, "runs": records})
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


def _train_on_parts(
    folder: Path,
    request: Request,
    seeds: Sequence[int],
    out: Path | None,
    batch_parts: int | None,
    border: Precision,
    as_json: bool,
) -> None:
    """One training on a partition, by this process or by all that torchrun started; only rank 0 prints."""
    if len(seeds) > 1:
        raise InputError("--partitions trains with one --seed at a time.")
    is_first = os.environ.get("RANK", "0") == "0"
    run = out or Path("runs") / f"{folder.name}-{request.model}-seed-{seeds[0]}"
    options = {**request.options, "seed": seeds[0], "per_batch": batch_parts, "border": border}
    with training_bar(run, request.model, request.options) as (start, _):
        on_epoch = start(0) if is_first else None
        record = adagpr.fit_partition(folder, request.model, out=run, on_epoch=on_epoch, **options)
    if is_first and as_json:
        show_json({"folder": str(run), **record})
    elif is_first:
        from adagpr.cli.train_view import show_partition_run

        show_partition_run(record, run)
