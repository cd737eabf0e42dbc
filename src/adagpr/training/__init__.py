"""Configuration, the training loop, run folders, and predictions of trained models."""

from adagpr.training.config import (
    Setup,
    TrainingConfig,
    check_split,
    config_digest,
    describe_data,
    differences,
    read_config,
    resolve,
    training_options,
)
from adagpr.training.fit import (
    CHECKPOINT_SECONDS,
    TrainingData,
    TrainingRun,
    evaluate,
    fit,
    open_run,
    set_memory,
    train,
    training_data,
)
from adagpr.training.folder import load_run, read_record, saved_epochs
from adagpr.training.many import Job, Runs, fit_all, fit_group, group_size, hop_0_options, in_groups, summarise
from adagpr.training.partitioned import fit_partition
from adagpr.training.predict import Predictor, predict
from adagpr.training.run import Run, coefficient_column, scaling_sentence
from adagpr.training.state import Epoch, OnEpoch, State, Stopping
from adagpr.training.threads import ThreadChoice
from adagpr.training.workers import begin_child, spread

__all__ = [
    "CHECKPOINT_SECONDS",
    "Epoch",
    "Job",
    "OnEpoch",
    "Predictor",
    "Run",
    "Runs",
    "Setup",
    "State",
    "Stopping",
    "ThreadChoice",
    "TrainingConfig",
    "TrainingData",
    "TrainingRun",
    "begin_child",
    "check_split",
    "coefficient_column",
    "config_digest",
    "describe_data",
    "differences",
    "evaluate",
    "fit",
    "fit_all",
    "fit_group",
    "fit_partition",
    "group_size",
    "hop_0_options",
    "in_groups",
    "load_run",
    "open_run",
    "predict",
    "read_config",
    "read_record",
    "resolve",
    "saved_epochs",
    "scaling_sentence",
    "set_memory",
    "spread",
    "summarise",
    "train",
    "training_data",
    "training_options",
]
