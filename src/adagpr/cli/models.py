"""``adagpr models``: the models by name, and the options of each."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from typer import Argument

from adagpr.cli.console import note, show, show_json, show_result, table
from adagpr.cli.options import AsJson


def models(
    name: Annotated[str | None, Argument(help="A model, to see its options.")] = None, as_json: AsJson = False
) -> None:
    """List the models: paper, depth, number of parameters, and what each is good for."""
    from adagpr.nn import MODELS, describe_model

    if name is not None:
        _show_one(name, as_json)
        return
    reasons = {key: model.why_unavailable() for key, model in MODELS.items()}
    found = [describe_model(key) for key, reason in reasons.items() if reason is None]
    headings, texts = ("name", "paper", "layers", "parameters", "good for"), ("paper", "good for")
    rows = [(row.name, row.paper, str(row.num_layers or "-"), f"{row.num_parameters:,}", row.good_for) for row in found]
    remark = "Layers by default; parameters are counted for Cora. To see a model's options: adagpr models NAME"
    show_result(as_json, list(map(asdict, found)), table(headings, rows, left=texts, wrap=texts), "", remark)
    note(*(f"'{key}' is left out. {reason}" for key, reason in reasons.items() if reason is not None))


def _show_one(name: str, as_json: bool) -> None:
    """The options of one model, and those of training."""
    from adagpr.nn import describe_model
    from adagpr.training import training_options

    found, training = describe_model(name), training_options(name)
    if as_json:
        show_json({**asdict(found), "training": training})
        return
    show(f"{found.name}: {found.good_for}. {found.paper}", "")
    of_model = ("option", found.options, found.options_note)
    for heading, options, remark in (of_model, ("option of training", training, "")):
        rows = [(key, "none" if value is None else json.dumps(value)) for key, value in options.items()]
        # Both tables have the columns of the wider one.
        show(table((heading.ljust(20), "default"), rows, left=("default",)), "")
        show(*([remark, ""] if remark else []))
    show("Set an option of either kind with --set OPTION=VALUE; docs/models.md explains those of training.")
