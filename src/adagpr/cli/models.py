"""``adagpr models``: the models by name, and the options of each."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from adagpr.cli.console import note, show, show_json, table
from adagpr.cli.options import AsJson

if TYPE_CHECKING:
    from adagpr.nn import ModelInfo


def models(
    name: Annotated[str | None, Argument(help="A model, to see its options.")] = None, as_json: AsJson = False
) -> None:
    """List the models: paper, depth, number of parameters, and what each is good for."""
    from adagpr.nn import MODELS, describe_model

    if name is not None:
        _one(describe_model(name), as_json)
        return
    reasons = {key: model.why_unavailable() for key, model in MODELS.items()}
    found = [describe_model(key) for key, reason in reasons.items() if reason is None]
    if as_json:
        show_json([asdict(item) for item in found])
    else:
        _all(found)
    note(*(f"'{key}' is left out. {reason}" for key, reason in reasons.items() if reason is not None))


def _all(found: list[ModelInfo]) -> None:
    headings = ("name", "paper", "layers", "parameters", "good for")
    rows = [(row.name, row.paper, str(row.num_layers or "-"), f"{row.num_parameters:,}", row.good_for) for row in found]
    show(table(headings, rows, left=("paper", "good for"), wrap=("paper", "good for")))
    show("\nLayers are the default; parameters are counted for Cora. Options of one: adagpr models NAME")


def _one(found: ModelInfo, as_json: bool) -> None:
    from adagpr.training import TrainingConfig

    training = TrainingConfig().model_dump()
    if as_json:
        show_json({**asdict(found), "training": training})
        return
    show(f"{found.name}: {found.good_for}. {found.paper}\n")
    for heading, options in (("option", found.options), ("option of training", training)):
        rows = [(key, "none" if value is None else json.dumps(value)) for key, value in options.items()]
        # Both tables have the columns of the wider one.
        show(table((heading.ljust(20), "default"), rows, left=("default",)), "")
    show("Both are given as --set OPTION=VALUE; docs/models.md says what those of training do.")
