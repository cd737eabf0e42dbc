"""The progress bars of trainings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from adagpr.cli.console import progress
from adagpr.cli.interruption import interruptible

if TYPE_CHECKING:
    from adagpr.training import Epoch, Stopping

Start = Callable[[int, str], Callable[..., None]]


@contextmanager
def training_bar(
    folder: Path | Callable[[], Path | None], num_runs: int, max_epochs: int | None
) -> Iterator[tuple[Start, Callable[[int], None]]]:
    """A bar for each run under way; if the command is stopped, it says how the runs in ``folder`` resume."""
    with interruptible(folder), progress() as bars:

        def start(number: int, label: str) -> Callable[..., None]:
            run = f"run {number + 1} of {num_runs}" if num_runs > 1 else "training"

            def update(epoch_number: int, epoch: Epoch, stopping: Stopping) -> None:
                note = (
                    f"epoch {epoch_number} of at most {max_epochs}, "
                    f"validation {100 * epoch.val_acc:.1f} %, best epoch {stopping.best_epoch}"
                )
                bars.update(f"{run} {label}".strip(), epoch_number, max_epochs, note, key=number)

            return update

        yield start, bars.remove
