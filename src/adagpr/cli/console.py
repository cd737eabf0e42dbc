"""What commands print: results on standard output, notes and progress bars on standard error.

rich is imported only when something is drawn with it, so that ``--json`` and a pipe do not wait for it.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID
    from rich.table import Table
    from rich.text import Text

# Wide enough for every table, where there is no terminal to fit into.
_PIPED_WIDTH = 120


def show(*items: RenderableType) -> None:
    """Prints texts and tables to standard output, one after the other.

    Text is printed as it is: nothing in it is read as markup. A terminal gets lines that end between words, a pipe one
    line per text; a path is never broken.
    """
    _print(stdout(), items)


def note(*items: RenderableType, dim: bool = False) -> None:
    """Prints texts and tables to standard error, where they do not mix with results."""
    _print(stderr(), items, "dim" if dim else "")


def show_json(content: Any) -> None:
    """Prints plain data as JSON to standard output."""
    typer.echo(json.dumps(content, indent=2))


def bold(text: str) -> Text:
    """A heading."""
    from rich.text import Text

    return Text(text, style="bold")


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    left: Collection[str] = (),
    wrap: Collection[str] = (),
    title: str | None = None,
    caption: str | None = None,
    gap: int = 2,
) -> Table:
    """A plain table: the first column is text, the others are numbers unless they are named in ``left``.

    Args:
        headings: The columns.
        rows: Their cells, as many per row as there are headings.
        left: Further columns of text, aligned to the left.
        wrap: Columns whose cells may take several lines.
        title: A heading above the table.
        caption: A remark below the table.
        gap: Blanks between columns.
    """
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), title=title, caption=caption)
    drawn.title_justify = drawn.caption_justify = "left"
    drawn.title_style = "bold"
    for number, heading in enumerate(headings):
        is_text = number == 0 or heading in left
        drawn.add_column(heading, justify="left" if is_text else "right", no_wrap=heading not in wrap)
    for row in rows:
        drawn.add_row(*map(_text, row))
    return drawn


def facts(rows: Iterable[tuple[str, str | Text]], gap: int = 2) -> Table:
    """Names and their values in two columns without headings."""
    from rich.table import Table

    drawn = Table.grid(padding=(0, gap, 0, 0))
    drawn.add_column(no_wrap=True)
    for name, value in rows:
        drawn.add_row(_text(name), _text(value))
    return drawn


def hops_that_fit(num_hops: int, *, taken: int, each: int, rest: str) -> tuple[int, str | None]:
    """How many hops have room in a table, and a caption that says where the others are.

    Args:
        num_hops: How many there are.
        taken: Width of the other columns.
        each: Width of a hop's column.
        rest: Where the others are.
    """
    shown = min(num_hops, max(2, (stdout().width - taken) // each))
    return shown, f"hops {shown} to {num_hops - 1} are in {rest}" if shown < num_hops else None


class Bars:
    """Progress bars on standard error, made and updated by one call; without a terminal they do nothing."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._tasks: dict[Hashable, TaskID] = {}

    def update(
        self, description: str, done: float = 0, total: float | None = None, note: str = "", key: Hashable = None
    ) -> None:
        """Moves a bar on.

        Args:
            description: What is under way.
            done: How much of it is done.
            total: Of how much; none where that is not known.
            note: What to say behind the bar.
            key: Which bar, where there are several.
        """
        if self._progress is None:
            return
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(description, note=note)
        self._progress.update(self._tasks[key], description=description, completed=done, total=total, note=note)

    def remove(self, key: Hashable = None) -> None:
        """Takes a bar away, if it is there."""
        if self._progress is not None and key in self._tasks:
            self._progress.remove_task(self._tasks.pop(key))


@contextmanager
def progress(*, remaining: bool = False) -> Iterator[Bars]:
    """Bars on a terminal's standard error until the context ends; silence elsewhere.

    Args:
        remaining: Whether to estimate the remaining time, too.
    """
    if not sys.stderr.isatty():
        yield Bars(None)
        return
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    description, note = (TextColumn(field, markup=False) for field in ("{task.description}", "{task.fields[note]}"))
    columns: list[ProgressColumn] = [description, BarColumn(), note, TimeElapsedColumn()]
    if remaining:
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=stderr(), transient=True) as drawn:
        yield Bars(drawn)


def stdout() -> Console:
    """The console of results; into a pipe it is wide enough for every table."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED_WIDTH
    return console


def stderr() -> Console:
    """The console of notes and progress bars."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _print(console: Console, items: Iterable[RenderableType], style: str = "") -> None:
    for item in items:
        if isinstance(item, str):
            text = _wrapped(item, console.width) if console.is_terminal else item
            console.print(text, style=style, markup=False, soft_wrap=True)
        else:
            console.print(item, style=style)


def _wrapped(text: str, width: int) -> str:
    lines = (textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join(lines)


def _text(cell: str | Text) -> Text:
    from rich.text import Text

    return Text(cell) if isinstance(cell, str) else cell
