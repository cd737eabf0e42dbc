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
from adagpr.task import METRICS

_NUM_BEST = 10
# Values further from the best than this many times the median's distance are drawn at the upper edge.
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

    @property
    def has_metric(self) -> bool:
        """Whether trials were measured by another metric than the accuracy."""
        return any("val_metric" in trial for trial in self.trials)

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        """The trials that are complete or pruned."""
        return [trial for trial in self.record["trials"] if trial["state"] != "fail"]

    @property
    def is_by_metric(self) -> bool:
        """Whether trials were chosen by their metric, the higher the better, instead of by their loss."""
        return bool(self.record["study"]["space"].get("fixed", {}).get("monitor") == "val_metric")

    @property
    def value_title(self) -> str:
        """What the value of a trial is."""
        metric = METRICS[self.record["study"].get("metric", "accuracy")].title
        return f"validation {metric if self.is_by_metric else 'loss'}"

    @property
    def measure(self) -> str:
        """What the value of the best trial is."""
        return f"{'highest' if self.is_by_metric else 'lowest'} {self.value_title}"

    @property
    def test_scores(self) -> list[tuple[str, float, float | None, float]]:
        """What was tested: title, mean over the splits, over those that no trial saw, and deviation; metric first."""
        test = self.record["test"]
        found = [("accuracy", test["test_acc"], test["unseen_test_acc"], test["test_acc_std"])]
        metric = test.get("metric")
        if metric is not None and metric["test"] is not None:
            title = METRICS[metric["name"]].title
            found.insert(0, (title, metric["test"], metric["unseen_test"], metric["test_std"]))
        return found

    @property
    def sentences(self) -> list[str]:
        """What was measured on the test nodes, and how far that is clean."""
        test, found = self.record["test"], []
        clean = [run["split"] for run in test["runs"] if run["num_test_seen"] == 0]
        for title, mean, unseen, deviation in self.test_scores:
            if unseen is not None:
                shown = f"{100 * unseen:.1f} %"
                found.append(f"test {title} {shown} on {', '.join(clean)}: no trial saw these test labels")
            if len(clean) < test["num_runs"]:
                spread = f" +- {100 * deviation:.1f}" if test["num_runs"] > 1 else ""
                num_seen = test["num_runs"] - len(clean)
                found.append(
                    f"test {title} {100 * mean:.1f} %{spread} over {test['num_runs']} splits: "
                    f"{num_seen} of them have test nodes that trials learned from or were judged on"
                )
        return found

    def frame(self) -> Any:
        """A data frame of pandas with one row per trial: its number, state, value and parameters."""
        import pandas as pd

        kept = ("number", "state", "value", "val_acc", *(("val_metric",) if self.has_metric else ()), "epochs")
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
            best_trials=sorted(complete, key=lambda trial: (self._sign * trial["value"], trial["number"]))[:_NUM_BEST],
            result=self,
            metric_title=METRICS[self.record["study"].get("metric", "accuracy")].title,
            charts={chart.name: chart for chart in self.charts},
            shown=lambda value: f"{value:.4g}" if isinstance(value, float) else str(value),
            percent=lambda value: f"{100 * value:.1f} %",
        )

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.page())}" width="100%" height="640" style="border:0"></iframe>'

    def _history(self) -> Dots:
        best, steps = self._sign * math.inf, []
        for trial in sorted(self.trials, key=lambda item: item["number"]):
            if trial["state"] == "complete" and self._sign * trial["value"] < self._sign * best:
                best = trial["value"]
                steps.append((trial["number"], best))
        last = max(trial["number"] for trial in self.trials)
        return Dots(
            name="history",
            title=f"{self._heading} of each trial and the {'highest' if self.is_by_metric else 'lowest'} so far",
            x=Axis("trial", limits=(0, last)),
            y=self._values(),
            dots=self._dots(lambda trial: trial["number"]),
            steps=[*steps, (last, best)],
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

        title = f"{self._heading} over {name}"
        return Dots(name=name, title=title, x=axis, y=self._values(), dots=self._dots(place))

    @property
    def _sign(self) -> int:
        return -1 if self.is_by_metric else 1

    @property
    def _heading(self) -> str:
        return self.value_title.replace("v", "V", 1)

    def _values(self) -> Axis:
        """The axis of values, from a little beyond the best to where nearly all are."""
        sign = self._sign
        values = sorted(sign * trial["value"] for trial in self.trials if trial["value"] is not None)
        best, middle, worst = values[0], values[len(values) // 2], values[-1]
        end = min(worst, best + _FAR * (middle - best)) if middle > best else worst
        margin = 0.06 * (end - best) or 0.1 * abs(best) or 1.0
        low, high = sorted((sign * (best - margin), sign * (end + margin)))
        return Axis(self.value_title, limits=(low, high))

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
