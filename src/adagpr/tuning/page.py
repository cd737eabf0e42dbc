"""The page of a study: one HTML file made of its record, with its figures inside and no need of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adagpr.tuning.figures import history_svg, importance_svg, slice_svg
from adagpr.web.page import drawn, render

__all__ = ["page"]

_NUM_BEST = 10


def page(record: dict[str, Any]) -> str:
    """The page of a record, complete or not yet tested."""
    trials = [trial for trial in record["trials"] if trial["state"] != "fail"]
    complete = [trial for trial in trials if trial["state"] == "complete"]
    best = sorted(complete, key=lambda trial: (trial["value"], trial["number"]))[:_NUM_BEST]
    number = record["best"]["number"]
    search = record["study"]["space"]["search"]
    return render(
        Path(__file__).parent / "page.html",
        record=record,
        num_complete=len(complete),
        num_pruned=len(trials) - len(complete),
        num_failed=len(record["trials"]) - len(trials),
        num_workers=len({(trial["machine"].get("host"), trial["machine"].get("pid")) for trial in trials}),
        best_trials=best,
        history=drawn(history_svg(trials, number)),
        importance=drawn(importance_svg(record["importance"])),
        slices=[drawn(slice_svg(trials, number, name, search[name])) for name in _in_order(record)],
        shown=_shown,
        percent=lambda value: f"{100 * value:.1f} %",
    )


def _in_order(record: dict[str, Any]) -> list[str]:
    """The parameters, the most important first."""
    ranks = {name: rank for rank, name in enumerate(record["importance"])}
    return sorted(record["study"]["space"]["search"], key=lambda name: ranks.get(name, len(ranks)))


def _shown(value: Any) -> str:
    """A value of a parameter as people write it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
