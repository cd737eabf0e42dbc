"""What a study found: its record, as a table, as charts and as a page that needs no network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from adagpr.charts import Axis, Bars, Chart, Dot, Dots, render

_NUM_BEST = 10
# Values further above the lowest than this many times the median's distance are drawn at the upper edge.
_FAR = 3.0


@dataclass(frozen=True, eq=False)
class StudyResult:
    """A study whose trials are done; ``record`` is what ``study.json`` in its ``folder`` holds."""

    record: dict[str, Any]
    folder: Path

    @property
    def best_params(self) -> dict[str, Any]:
        """The values of the best trial."""
        return dict(self.record["best"]["params"])

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        """The trials that are complete or pruned."""
        return [trial for trial in self.record["trials"] if trial["state"] != "fail"]

    @property
    def sentences(self) -> list[str]:
        """What was measured on the test nodes, and how far that is clean."""
        test, found = self.record["test"], []
        clean = [run["split"] for run in test["runs"] if run["num_test_seen"] == 0]
        if clean:
            accuracy = f"{100 * test['unseen_test_acc']:.1f} %"
            found.append(f"test accuracy {accuracy} on {', '.join(clean)}: no trial saw these test labels")
        if len(clean) < test["num_runs"]:
            spread = f" +- {100 * test['test_acc_std']:.1f}" if test["num_runs"] > 1 else ""
            found.append(
                f"test accuracy {100 * test['test_acc']:.1f} %{spread} over {test['num_runs']} splits: "
                f"{test['num_runs'] - len(clean)} of them have test nodes that trials learned from or were judged on"
            )
        return found

    def frame(self) -> Any:
        """A data frame of pandas with one row per trial: its number, state, value and parameters."""
        import pandas as pd

        kept = ("number", "state", "value", "val_acc", "epochs")
        return pd.DataFrame([{key: trial.get(key) for key in kept} | trial["params"] for trial in self.trials])

    @property
    def charts(self) -> list[Chart]:
        """The history of the search, the importance of parameters if it is known, and each parameter, by importance."""
        importance, search = self.record["importance"], self.record["study"]["space"]["search"]
        charts: list[Chart] = [self._history()]
        if importance:
            shares = {"importance": [100 * share for share in importance.values()]}
            title, names = "Importance of each parameter", list(importance)
            charts.append(
                Bars(name="importance", title=title, labels=names, bars=shares, unit=" %", digits=0, longest=100)
            )
        names = sorted(search, key=lambda name: -importance.get(name, -1.0))
        return charts + [self._parameter(name, search[name]) for name in names]

    def page(self) -> str:
        """The whole page, one HTML file; also of a study that is not tested yet."""
        complete = [trial for trial in self.trials if trial["state"] == "complete"]
        machines = [trial["machine"] for trial in self.trials]
        return render(
            Path(__file__).with_name("page.html"),
            record=self.record,
            num_complete=len(complete),
            num_pruned=len(self.trials) - len(complete),
            num_failed=sum(trial["machine"].get("attempts", 1) for trial in self.record["trials"]) - len(self.trials),
            num_workers=len({(machine.get("host"), machine.get("pid")) for machine in machines}),
            best_trials=sorted(complete, key=lambda trial: (trial["value"], trial["number"]))[:_NUM_BEST],
            charts={chart.name: chart for chart in self.charts},
            shown=lambda value: f"{value:.4g}" if isinstance(value, float) else str(value),
            percent=lambda value: f"{100 * value:.1f} %",
        )

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.page())}" width="100%" height="640" style="border:0"></iframe>'

    def _history(self) -> Dots:
        lowest, steps = math.inf, []
        for trial in sorted(self.trials, key=lambda item: item["number"]):
            if trial["state"] == "complete" and trial["value"] < lowest:
                lowest = trial["value"]
                steps.append((trial["number"], lowest))
        last = max(trial["number"] for trial in self.trials)
        return Dots(
            name="history",
            title="Validation loss of each trial and the lowest so far",
            x=Axis("trial", limits=(0, last)),
            y=self._losses(),
            dots=self._dots(lambda trial: trial["number"]),
            steps=[*steps, (last, lowest)],
        )

    def _parameter(self, name: str, parameter: dict[str, Any]) -> Dots:
        """The values of all trials over one parameter: choices side by side, ranges to scale."""
        choices = list(parameter.get("choices", ()))
        if all(isinstance(choice, int | float) for choice in choices):
            choices.sort()
        if choices:
            ticks = tuple((float(place), f"{choice}") for place, choice in enumerate(choices))
            axis = Axis(name, limits=(0, len(choices) - 1), ticks=ticks)
        else:
            axis = Axis(name, limits=(parameter["low"], parameter["high"]), is_log=parameter.get("log", False))

        def place(trial: dict[str, Any]) -> float | None:
            value = trial["params"].get(name)
            return choices.index(value) if choices and value is not None else value

        return Dots(name=name, title=f"Validation loss over {name}", x=axis, y=self._losses(), dots=self._dots(place))

    def _losses(self) -> Axis:
        """The axis of losses, from a little below the lowest up to where nearly all are."""
        values = sorted(trial["value"] for trial in self.trials if trial["value"] is not None)
        low, middle, most = values[0], values[len(values) // 2], values[-1]
        high = min(most, low + _FAR * (middle - low)) if middle > low else most
        margin = 0.06 * (high - low) or 0.1 * abs(low) or 1.0
        return Axis("validation loss", limits=(low - margin, high + margin))

    def _dots(self, place: Callable[[dict[str, Any]], float | None]) -> list[Dot]:
        """A dot for each trial that has a value, the best on top."""
        best = self.record["best"]["number"]
        dots = []
        for trial in sorted(self.trials, key=lambda trial: trial["number"] == best):
            x, y = place(trial), trial["value"]
            if x is not None and y is not None:
                params = ", ".join(f"{name} {value}" for name, value in trial["params"].items())
                label = f"trial {trial['number']}, {trial['state']}: {y:.4f} ({params})"
                dots.append(Dot(x, y, "best" if trial["number"] == best else trial["state"], label))
        return dots
