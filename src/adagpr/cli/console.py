"""What commands print: results on standard output, notes and progress bars on standard error.

rich is imported only when something is drawn with it, so that ``--json`` and a pipe do not wait for it.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adagpr.cli.interruption import interruptible
from adagpr.errors import escaped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID
    from rich.table import Table
    from rich.text import Text

    from adagpr.training import Epoch, Stopping

# Wide enough for every table, where there is no terminal to fit into.
_PIPED_WIDTH = 120


def show(*items: RenderableType) -> None:
    """Prints tables and texts, each a line in which nothing is markup and control characters are written out."""
    _print(open_console(), items)


def note(*items: RenderableType, dim: bool = False) -> None:
    """Prints texts and tables to standard error, where they do not mix with results."""
    _print(open_console(stderr=True), items, "dim" if dim else "")


def show_json(content: Any) -> None:
    """Prints plain data as JSON to standard output."""
    typer.echo(json.dumps(content, indent=2))


def show_result(as_json: bool, content: Any, *items: RenderableType) -> None:
    """Prints a result as JSON if that is wanted, else as texts and tables."""
    if as_json:
        show_json(content)
    else:
        show(*items)


def pluralize(number: int, noun: str) -> str:
    """A number and what it counts, such as ``1 hop`` and ``2 hops``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def bold(text: str) -> Text:
    """A heading."""
    from rich.text import Text

    return Text(escaped(text), style="bold")


def show_section(heading: str, drawn: Table, *sentences: str) -> None:
    """Prints a heading, a table, sentences about it and an empty line."""
    show(bold(heading), drawn, *sentences, "")


def table(
    headings: Sequence[str | Text],
    rows: Iterable[Sequence[str | Text]],
    *,
    left: Collection[str] = (),
    wrap: Collection[str] = (),
    title: str | None = None,
    caption: str | None = None,
    gap: int = 2,
) -> Table:
    """A plain table: the first column and those of ``left`` are text, the others numbers; those of ``wrap`` wrap."""
    from rich.table import Table
    from rich.text import Text

    def cell(text: str | Text) -> Text:
        return Text(escaped(text)) if isinstance(text, str) else text

    drawn = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    drawn.title = title and bold(title)
    drawn.caption = caption and Text(escaped(caption), style="table.caption")
    drawn.title_justify = drawn.caption_justify = "left"
    for number, heading in enumerate(headings):
        is_text = number == 0 or heading in left
        drawn.add_column(cell(heading), justify="left" if is_text else "right", no_wrap=heading not in wrap)
    for row in rows:
        drawn.add_row(*map(cell, row))
    return drawn


def facts(rows: Iterable[tuple[str, str | Text]], gap: int = 2) -> Table:
    """Names and their values in two columns without headings."""
    drawn = table(("name", "value"), rows, left=("value",), wrap=("value",), gap=gap)
    drawn.show_header = False
    return drawn


def hops_that_fit(names: Sequence[str], *, taken: int, each: int, rest: str) -> tuple[list[Text], str | None]:
    """Headings of the hops that, ``each`` wide or as wide as a direction, have room beside columns of width ``taken``.

    With them is a caption that names the other hops, if there are any.
    """
    headings = [two_lines(name) for name in names]
    below = [line for heading in headings for line in heading.plain.split("\n")[1:]]
    each = max([each, *(len(line) + 2 for line in below)])
    shown = min(len(names), max(2, (open_console().width - taken) // each))
    left = [name.removeprefix("hop ") for name in names[shown:]]
    if not left:
        return headings, None
    which = f"hops {left[0]} to {left[-1]} are" if len(left) > 1 else f"hop {left[0]} is"
    return headings[:shown], f"{which} in {rest}"


def two_lines(name: str) -> Text:
    """A heading whose third word, the direction of a hop, is below the others."""
    from rich.text import Text

    return Text("\n".join(name.rsplit(" ", 1) if name.count(" ") > 1 else [name]))


class Bars:
    """Progress bars on standard error, made and updated by one call; without a terminal they do nothing."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._tasks: dict[Hashable, TaskID] = {}

    def update(
        self, description: str, done: float = 0, total: float | None = None, note: str = "", key: Hashable = None
    ) -> None:
        """Sets a bar to ``done`` of ``total``, if that is known; ``key`` says which bar if there are several."""
        if self._progress is None:
            return
        description, note = escaped(description), escaped(note)
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(description, note=note)
        self._progress.update(self._tasks[key], description=description, completed=done, total=total, note=note)

    def remove(self, key: Hashable = None) -> None:
        """Takes a bar away, if it is there."""
        if self._progress is not None and key in self._tasks:
            self._progress.remove_task(self._tasks.pop(key))


@contextmanager
def progress(*, remaining: bool = False) -> Iterator[Bars]:
    """Bars on a terminal's standard error until the context ends, with the remaining time if wanted."""
    if not sys.stderr.isatty():
        yield Bars(None)
        return
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    description, note = (TextColumn(field, markup=False) for field in ("{task.description}", "{task.fields[note]}"))
    columns: list[ProgressColumn] = [description, BarColumn(), note, TimeElapsedColumn()]
    if remaining:
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=open_console(stderr=True), transient=True) as drawn:
        yield Bars(drawn)


@contextmanager
def training_bar(
    folder: Path | Callable[[], Path | None],
    model: str,
    options: dict[str, Any],
    num_runs: int = 1,
    without_graph: bool = False,
) -> Iterator[tuple[Callable[[int], Callable[..., None]], Callable[[int], None]]]:
    """A bar for each run under way; if the command is stopped, it says how the runs in ``folder`` resume."""
    from adagpr.training import training_options

    max_epochs = {**training_options(model), **options}["max_epochs"]
    total = num_runs * (1 + without_graph)
    with interruptible(folder), progress() as bars:

        def start(number: int) -> Callable[..., None]:
            name = f"run {number + 1} of {total}" if total > 1 else "training"
            name += " without the graph" if number >= num_runs else ""

            def update(epoch_number: int, epoch: Epoch, stopping: Stopping) -> None:
                note = (
                    f"epoch {epoch_number} of at most {max_epochs}, "
                    f"validation {100 * epoch.by_metric:.1f} %, best epoch {stopping.best_epoch}"
                )
                bars.update(name, epoch_number, max_epochs, note, key=number)

            return update

        yield start, bars.remove


def open_console(stderr: bool = False) -> Console:
    """The console of results, or of notes; into a pipe it is wide enough for every table."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED_WIDTH
    return console


def _print(console: Console, items: Iterable[RenderableType], style: str = "") -> None:
    """A terminal gets lines that end between words, a pipe one line per text; a path is never broken."""
    wrapper = textwrap.TextWrapper(console.width, break_long_words=False, break_on_hyphens=False)
    for item in items:
        if not isinstance(item, str):
            console.print(item, style=style)
            continue
        text = escaped(item)
        console.print(wrapper.fill(text) if console.is_terminal else text, style=style, markup=False, soft_wrap=True)
