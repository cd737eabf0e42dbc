"""A rank of a training that is killed: ``python -m tests.partitioning.train_worker PARTS OUT EPOCHS PIPE``.

Before a rank is started again, rank 1 writes its number as a process to the pipe in epoch 5, and waits.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from adagpr.training import State, fit_partition

if __name__ == "__main__":
    parts, out, epochs, pipe = sys.argv[1:]
    tell = State.tell

    def waiting(state: State, on_epoch: Any) -> None:
        if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], len(state.history)) == ("1", "0", 5):
            Path(pipe).write_text(str(os.getpid()))
            while True:
                signal.pause()
        tell(state, on_epoch)

    setattr(State, "tell", waiting)  # noqa: B010 - a class of another file
    settings: dict[str, Any] = {"num_layers": 2, "hidden_channels": 8, "patience": None, "max_epochs": int(epochs)}
    fit_partition(parts, out=out, checkpoint_seconds=0.0, **settings)
