"""Trainings that share their steps: the same model on one graph, with other seeds or other splits.

Each keeps its own parameters, optimiser, stopping rule and checkpoints, and ends with the numbers of a training alone
(see `adagpr.nn.BatchedModels`). One that is over leaves; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from adagpr.nn import BatchedModels
from adagpr.training.adam import step_together
from adagpr.training.fitting import OnEpoch, Session
from adagpr.training.loop import train_loss

__all__ = ["train_together"]


def train_together(
    sessions: Sequence[Session],
    on_epoch: Sequence[OnEpoch],
    on_end: Callable[[int], None],
    save_every: float,
) -> None:
    """Trains all sessions until each is over; then the best epoch's parameters are in its model.

    Args:
        sessions: Trainings of equal configuration but for seed and split.
        on_epoch: For each session what is called after its epochs.
        on_end: Called with the position of a session that is over.
        save_every: Seconds between two checkpoints.
    """
    running = list(range(len(sessions)))
    saved = time.perf_counter()
    while running:
        for number in [item for item in running if sessions[item].state.is_over(sessions[item].config)]:
            running.remove(number)
            state = sessions[number].state
            state.model.load_state_dict(state.best)
            on_end(number)
        if running:
            saved = _until_one_is_over(
                [sessions[item] for item in running], [on_epoch[item] for item in running], saved, save_every
            )


def _until_one_is_over(
    sessions: Sequence[Session], on_epoch: Sequence[OnEpoch], saved: float, save_every: float
) -> float:
    states = [item.state for item in sessions]
    x = sessions[0].inputs.x
    models = BatchedModels([state.model for state in states], sessions[0].inputs.structure)
    for item in sessions:
        item.together = max(item.together, len(sessions))
    started = time.perf_counter()
    before = [state.seconds for state in states]
    while not any(item.state.is_over(item.config) for item in sessions):
        for state in states:
            state.optimizer.zero_grad()
        logits = models(x, training=True, nodes=[item.inputs.train for item in sessions])
        losses = [train_loss(own, item.inputs) for own, item in zip(logits, sessions, strict=True)]
        torch.stack(losses).sum().backward()
        step_together([state.optimizer for state in states])
        with torch.inference_mode():
            logits = models(x, training=False)
        for item, loss, own, coeffs in zip(sessions, losses, logits, models.coefficients(), strict=True):
            item.state.add_epoch(loss, item.inputs.measured(own), coeffs, item.config)
        now = time.perf_counter()
        for state, seconds in zip(states, before, strict=True):
            state.seconds = seconds + (now - started) / len(states)
        if now - saved >= save_every:
            for item in sessions:
                item.save()
            saved = time.perf_counter()
        for state, report in zip(states, on_epoch, strict=True):
            report(len(state.history), state.last_epoch, state.stopping)
    return saved
