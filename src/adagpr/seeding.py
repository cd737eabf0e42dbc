"""Randomness: independent streams from one seed, and their state as plain data.

A stream is a NumPy generator on SFC64, the fastest source of raw words at hand (half the time of torch's Mersenne
Twister), with a state of a few integers that fits in a checkpoint's header. Streams of one seed with different purposes
are independent, so that drawing more of one never shifts another.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def stream(seed: int, purpose: str) -> np.random.Generator:
    """The generator of ``seed`` for one ``purpose``, such as ``"dropout"``."""
    return np.random.Generator(np.random.SFC64(_sequence(seed, purpose)))


def torch_generator(seed: int, purpose: str) -> torch.Generator:
    """A torch generator of ``seed`` for one ``purpose``, for torch's own initialisers."""
    words = _sequence(seed, purpose).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))


def _sequence(seed: int, purpose: str) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])


def states_of(generators: Sequence[np.random.Generator]) -> np.ndarray:
    """The four words of each stream's state, for code that keeps drawing by itself."""
    return np.array([generator.bit_generator.state["state"]["state"] for generator in generators], dtype=np.uint64)


def set_states(generators: Sequence[np.random.Generator], states: np.ndarray) -> None:
    """Puts streams to where `states_of` and what was drawn since have led."""
    for generator, words in zip(generators, states, strict=True):
        state = generator.bit_generator.state
        state["state"]["state"] = words
        generator.bit_generator.state = state


def capture(generator: np.random.Generator) -> dict[str, Any]:
    """The state of a stream as plain integers, ready for JSON."""
    state = generator.bit_generator.state
    return {
        "words": [int(word) for word in state["state"]["state"]],
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def restore(generator: np.random.Generator, state: dict[str, Any]) -> None:
    """Puts a stream back to a captured state."""
    generator.bit_generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.array(state["words"], dtype=np.uint64)},
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }
