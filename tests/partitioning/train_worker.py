"""A rank of a training with frequent checkpoints: ``python -m tests.partitioning.train_worker PARTS OUT EPOCHS``."""

from __future__ import annotations

import sys
from typing import Any

from adagpr.training import fit_partition

if __name__ == "__main__":
    settings: dict[str, Any] = {"num_layers": 2, "hidden_channels": 8, "patience": None, "max_epochs": int(sys.argv[3])}
    fit_partition(sys.argv[1], out=sys.argv[2], checkpoint_seconds=0.1, **settings)
