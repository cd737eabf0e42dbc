"""The command line as several ranks, forked from the test so that they start at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from adagpr.cli.main import main


def start_ranks(size: int, out: Path, *words: str) -> list[BaseProcess]:
    """Starts ``adagpr WORDS`` as so many ranks; what rank 1 writes goes to the file ``1.txt`` in ``out``."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    context = multiprocessing.get_context("fork")
    ranks: list[BaseProcess] = [
        context.Process(target=_rank, args=({**variables, "RANK": str(rank)}, out / f"{rank}.txt", words))
        for rank in range(size)
    ]
    for rank in ranks:
        rank.start()
    return ranks


def exit_codes(ranks: list[BaseProcess], seconds: float = 60) -> list[int | None]:
    """How all of them end; none for one that does not."""
    for rank in ranks:
        rank.join(seconds)
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        rank.kill()
    return codes


def _rank(variables: dict[str, str], said: Path, words: tuple[str, ...]) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)
    sys.argv = ["adagpr", *words]
    with said.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        main()
