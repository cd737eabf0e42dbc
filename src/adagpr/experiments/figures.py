"""The paper's figures from records: coefficients over training, and accuracy over depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adagpr.files import write_atomically

__all__ = ["COLOURS", "ablation_figure", "evolution_figure", "new_figure", "save_figure"]

COLOURS = ("#1f6f8b", "#c0392b", "#a8680c", "#6b4c9a", "#2e7d32", "#444444")
KINDS = ("pdf", "png", "svg")
_MOST_COLUMNS = 4


def evolution_figure(out: Path, title: str, epochs: Sequence[int], coeffs: Any, best_epoch: int) -> list[Path]:
    """Every coefficient of every layer over training, one panel a layer.

    Args:
        out: The files to write, without their endings.
        title: Stands above the panels.
        epochs: The epochs that were kept.
        coeffs: The coefficients at those epochs, ``[epochs][layers][hops]``.
        best_epoch: The epoch that validation chose, marked by a line.
    """
    num_layers = len(coeffs[0])
    columns = min(num_layers, _MOST_COLUMNS)
    rows = -(-num_layers // columns)
    figure, pyplot = new_figure(width=3.1 * columns, height=2.6 * rows + 0.3)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for layer, panel in enumerate(panels[:num_layers]):
        for hop in range(len(coeffs[0][layer])):
            values = [at_epoch[layer][hop] for at_epoch in coeffs]
            colour = COLOURS[hop] if len(coeffs[0][layer]) <= len(COLOURS) else f"C{hop % 10}"
            panel.plot(epochs, values, color=colour, linestyle="-" if hop < 10 else "--", label=f"hop {hop}")
        panel.axvline(best_epoch, color="#999999", linewidth=0.8, linestyle="--")
        panel.set_title(f"layer {layer + 1}", fontsize=10)
        panel.set_xlabel("epoch")
        panel.set_ylim(-0.03, 1.03)
        if layer % columns == 0:
            panel.set_ylabel("coefficient")
    for panel in panels[num_layers:]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside right center")
    figure.suptitle(title, fontsize=11)
    return save_figure(figure, pyplot, out)


def ablation_figure(out: Path, title: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> list[Path]:
    """Accuracy over depth, one line a method.

    Args:
        out: The files to write, without their endings.
        title: Stands above the figure.
        series: Layers and accuracy in percent by method.
    """
    figure, pyplot = new_figure(width=5.0, height=3.4)
    panel = figure.subplots()
    for number, (name, points) in enumerate(series.items()):
        layers, accuracies = zip(*sorted(points), strict=True)
        panel.plot(layers, accuracies, marker="o", color=COLOURS[number % len(COLOURS)], label=name)
    panel.set_xscale("log", base=2)
    ticks = sorted({layers for points in series.values() for layers, _ in points})
    panel.set_xticks(ticks, [str(tick) for tick in ticks])
    panel.set_xlabel("layers")
    panel.set_ylabel("test accuracy in %")
    panel.set_title(title, fontsize=11)
    panel.legend(frameon=False, fontsize=9)
    return save_figure(figure, pyplot, out)


def new_figure(width: float, height: float) -> tuple[Any, Any]:
    """An empty figure of so many inches, and matplotlib's pyplot."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "adagpr"
    return pyplot.figure(figsize=(width, height), layout="constrained"), pyplot


def save_figure(figure: Any, pyplot: Any, out: Path) -> list[Path]:
    """Writes a figure as PDF, PNG and SVG, atomically; ``out`` is without an ending."""
    paths = [out.with_name(f"{out.name}.{kind}") for kind in KINDS]
    # No date, so that equal pictures are equal files.
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    for kind, path in zip(KINDS, paths, strict=True):

        def write(temporary: Path, kind: str = kind) -> None:
            figure.savefig(temporary, format=kind, dpi=160, metadata=dates[kind])

        write_atomically(path, write)
    pyplot.close(figure)
    return paths
