"""``adagpr models``: the models by name, and the options of each."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

__all__ = ["models"]

# The sizes that parameters are counted for: those of Cora.
NUM_FEATURES, NUM_CLASSES = 1433, 7


def models(
    name: Annotated[str | None, typer.Argument(help="A model, to see its options.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models: paper, depth, number of parameters, and what each is good for."""
    from adagpr.nn import MODELS

    found = [_row(item) for item in MODELS] if name is None else _with_training(_row(name))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif isinstance(found, list):
        _show_all(found)
    else:
        _show_one(found)


def _show_all(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "paper", "layers", "parameters", "good for"):
        table.add_column(heading, justify="right" if heading in ("layers", "parameters") else "left")
    for row in rows:
        table.add_row(
            row["name"], row["paper"], str(row["num_layers"] or "-"), f"{row['num_parameters']:,}", row["good_for"]
        )
    console.print(table)
    console.print("\nLayers are the default; parameters are counted for Cora. Options of one: adagpr models NAME")


def _show_one(row: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"{row['name']}: {row['good_for']}. {row['paper']}\n", markup=False)
    for heading, options in (("option", row["options"]), ("option of training", row["training"])):
        table = Table(box=None, pad_edge=False)
        table.add_column(heading, width=20)
        table.add_column("default")
        for key, value in options.items():
            table.add_row(key, "none" if value is None else json.dumps(value))
        console.print(table, "")
    console.print("Both are given as --set OPTION=VALUE; docs/models.md says what those of training do.")


def _with_training(row: dict[str, Any]) -> dict[str, Any]:
    from adagpr.training import TrainingConfig

    return {**row, "training": TrainingConfig().model_dump()}


def _row(name: str) -> dict[str, Any]:
    from adagpr.nn import build, model_options

    options = model_options(name)
    model = build(name, {**options, "in_channels": NUM_FEATURES, "out_channels": NUM_CLASSES})
    return {
        "name": name,
        "paper": model.paper,
        "num_layers": options.get("num_layers"),
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "good_for": model.good_for,
        "options": options,
    }
