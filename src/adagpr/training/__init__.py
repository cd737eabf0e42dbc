"""Configuration, the loop, stopping, checkpoints and the run record."""

from adagpr.training.config import TrainingConfig, resolve
from adagpr.training.fitting import fit
from adagpr.training.run import Run, load_run
from adagpr.training.stopping import Epoch, Stopping

__all__ = ["Epoch", "Run", "Stopping", "TrainingConfig", "fit", "load_run", "resolve"]
