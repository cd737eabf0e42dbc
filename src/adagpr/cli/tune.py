"""``adagpr tune``: search the options of a model, then test what was found."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import adagpr
from adagpr.cli.console import progress, show, show_json, table
from adagpr.cli.interruption import interruptible
from adagpr.cli.options import AsJson, DataRoot, Dataset, Jobs, SplitName, load_data, read_request, takes_tables
from adagpr.errors import InputError, without_password

if TYPE_CHECKING:
    from adagpr.tuning import StudyProgress, StudyResult

_SAVED = {"*": "The same command resumes, running trials from their last checkpoints."}


@takes_tables
def tune(
    out: Annotated[Path, Option(help="Folder of the study.")],
    dataset: Dataset = None,
    model: Annotated[str, Option(help="Name of the model.")] = "adagpr",
    space: Annotated[
        str | None,
        Option(help="Name of a search space, or a .toml file. Default: the paper's for this data set, else general."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="Fix an option instead of searching it; repeatable."),
    ] = None,
    split: SplitName = None,
    splits: Annotated[
        str, Option(help="Splits to search on, such as 0 or 0,3,5 or all; the result is tested on every split.")
    ] = "0",
    trials: Annotated[int, Option(min=1, help="Number of trials, including pruned ones.")] = 40,
    jobs: Jobs = None,
    storage: Annotated[
        str | None,
        Option(
            metavar="FILE|URL",
            help="Where trials are stored: a journal file, or for several machines postgresql://USER@HOST/DATABASE "
            "(password in PGPASSWORD or ~/.pgpass). Default: a journal in the folder.",
        ),
    ] = None,
    seed: Annotated[int, Option(help="Seed of the search and of every training.")] = 0,
    window: Annotated[
        int,
        Option(min=1, help="Trials that may run at the same time; each draws from those so many places before it."),
    ] = 4,
    data_root: DataRoot = None,
    *,
    tables: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Search the options of a model by validation loss, then test the best once.

    With --set monitor=val_metric by the metric (--set metric=roc_auc, say) on the validation nodes instead.

    If it is stopped, the same command resumes; with more --trials it continues the search.
    For example: adagpr tune texas --trials 40 --jobs 2 --out runs/tune-texas
    """
    request = read_request(None, settings or [], dataset=dataset, split=split, tables=tables)
    tune_on = _positions(splits)
    if request.dataset is None:
        raise InputError("Name a data set, or give tables with --nodes, --edges and --label.")
    graph, found = load_data(request, data_root, with_notes=bool(tables) and not as_json)
    with interruptible(out, _SAVED), progress(remaining=True) as bars:

        def update(state: StudyProgress) -> None:
            best = "none complete yet" if state.best_value is None else f"{state.measure} {state.best_value:.4f}"
            note = f"{state.num_done}/{state.num_trials} trials, {best}"
            bars.update("searching" if state.num_done < state.num_trials else "testing", state.num_done, trials, note)

        result = adagpr.tune(
            graph,
            found,
            model,
            out=out,
            space=space,
            settings=request.options,
            tune_on=tune_on,
            num_trials=trials,
            num_workers=jobs,
            storage=storage,
            seed=seed,
            window=window,
            on_change=update,
            command=shlex.join(["adagpr", *map(without_password, sys.argv[1:])]),
        )
    if as_json:
        show_json({"folder": str(out), **result.record})
    else:
        _show(result)


def _positions(text: str) -> list[int] | None:
    """The numbers of ``0,3,5``; none for ``all``."""
    if text == "all":
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--splits takes numbers such as 0,3,5, or all; got '{text}'.")
    return [int(word) for word in words]


def _show(result: StudyResult) -> None:
    record, folder = result.record, result.folder
    study, best, importance = record["study"], record["best"], record["importance"]
    shares = {name: f"{100 * share:.0f} %" for name, share in importance.items()}
    states = [trial["state"] for trial in record["trials"]]
    rows = [
        (name, f"{value:.4g}" if isinstance(value, float) else str(value), shares.get(name, ""))
        for name, value in sorted(best["params"].items(), key=lambda item: -importance.get(item[0], 0.0))
    ]
    show(
        f"{study['data']['name']}, {study['model']}: {states.count('complete')} trials complete, "
        f"{states.count('pruned')} pruned, on {', '.join(study['tuned_on'])}",
        f"{result.measure} {best['value']:.4f} in trial {best['number']}",
        "",
        table(("parameter", "best", "importance"), rows),
        "",
        *result.sentences,
        "",
        f"configuration  {folder / 'best.toml'}",
        f"page           {folder / 'index.html'}",
    )
