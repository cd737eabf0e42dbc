"""The command line as several ranks, forked from the test so that they start at once."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.processes import Forked


def start_ranks(size: int, out: Path, *words: str) -> list[Forked]:
    """Starts ``adagpr WORDS`` as so many ranks; their numbers are the names of what they write."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    return [Forked(out, *words, name=str(rank), variables={**variables, "RANK": str(rank)}) for rank in range(size)]


def exit_codes(ranks: list[Forked]) -> list[int]:
    """How all of them end."""
    return [rank.ended() for rank in ranks]
