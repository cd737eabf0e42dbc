"""The progress bars of trainings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from adagpr.cli.interruption import interruptible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adagpr.training import Epoch, Stopping

__all__ = ["training_bar"]

Start = Callable[[int, str], Callable[..., None]]


@contextmanager
def training_bar(num_runs: int, max_epochs: int | None) -> Iterator[tuple[Start, Callable[[int], None]]]:
    """A bar for each run under way on a terminal's standard error; elsewhere silence."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("epoch {task.completed} of at most {task.total}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with (
        interruptible(" from the last checkpoint"),
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        tasks: dict[int, Any] = {}

        def start(number: int, label: str) -> Callable[..., None]:
            name = f"run {number + 1} of {num_runs}" if num_runs > 1 else "training"
            task = progress.add_task(f"{name} {label}".strip(), total=max_epochs, note="")
            tasks[number] = task

            def update(epoch_number: int, epoch: Epoch, stopping: Stopping) -> None:
                note = f"validation {100 * epoch.val_acc:.1f} %, best epoch {stopping.best_epoch}"
                progress.update(task, completed=epoch_number, note=note)

            return update

        def end(number: int) -> None:
            if number in tasks:
                progress.remove_task(tasks.pop(number))

        yield start, end
