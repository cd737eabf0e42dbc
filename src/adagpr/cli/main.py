"""The command ``adagpr``: its subcommands, and what a person sees when something is wrong."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, NoReturn

import typer
from typer import Option
from typer.core import TyperGroup

import adagpr
from adagpr.cli import data
from adagpr.cli.interruption import interruptible, terminable
from adagpr.errors import AdaGPRError, InputError, escaped, memory_errors, reason_of, without_password

# How often a thread looks for work before it sleeps. Looking 300,000 times, as OpenMP does by itself, it keeps a core
# from those that have work: beside another process training then takes two to ten times as long.
_LOOKS = "1000"
# Paths that no file can have, or that somebody else owns.
_MISTAKES = (errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM)
# What typer raises for words that no command takes; it has no name there that all versions share.
_UsageError: Any = typer.BadParameter.__mro__[2]


class _Commands(TyperGroup):
    """The commands; one that is stopped ends with a word and its exit code instead of typer's "Aborted."."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        with interruptible():
            return super().invoke(ctx)


app = typer.Typer(
    name="adagpr",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"adagpr {adagpr.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Classify the nodes of a graph, and see how much of the graph each layer uses."""


for place in (
    *("train.train", "predict.predict", "models.models", "tune.tune", "insight.explain", "insight.bounds"),
    *("report.report", "report.plot", "export.export", "insight.compare", "reproduce.reproduce"),
    *("partition.partition", "bench.bench"),
):
    app.command()(resolve_name(f"adagpr.cli.{place}"))
app.add_typer(data.app, name="data")


def main() -> None:
    """Runs the command line: exit code 0 done, 1 failed, 2 wrong usage, 130, 143 or 129 stopped by a signal."""
    _hide_passwords()
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _LOOKS)
    try:
        with terminable(), memory_errors():
            code = app(standalone_mode=False)
            sys.stdout.flush()
    except AdaGPRError as error:
        _end(str(error), 2 if isinstance(error, InputError) else 1)
    except UnicodeError as error:
        _end(f"A name holds characters that cannot be written ({reason_of(error)}).", 2)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _end(f"{error.strerror or reason_of(error)}{where}.", 2 if error.errno in _MISTAKES else 1)
    except _UsageError as error:
        # Help that nobody asked for by name was printed already.
        if sentence := " ".join(error.format_message().split()):
            _end(f"{sentence.rstrip('.')}. See: {error.ctx.command_path if error.ctx else 'adagpr'} --help", 2)
        code = 2
    sys.exit(code)


def _hide_passwords() -> None:
    """Writes over the passwords in this process's arguments, which others could read in a list of processes."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # not on Linux, or called from another program
        # Behind the name, which may hold blanks: `arg_start` is field 48.
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45])
        words = Path("/proc/self/cmdline").read_bytes()
        for word in sys.argv[1:]:
            if (shown := without_password(word)) != word:
                secret = os.fsencode(word)
                place = words.index(b"\0" + secret + b"\0") + 1
                ctypes.memmove(start + place, os.fsencode(shown)[: len(secret)].ljust(len(secret), b"\0"), len(secret))


def _end(sentence: str, code: int) -> NoReturn:
    """Ends with one line on standard error, in which nothing reaches the terminal but text."""
    sentence = escaped(sentence)
    as_json = json.dumps({"error": sentence, "exit_code": code}) if "--json" in sys.argv else None
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{as_json or f'Error: {sentence}'}\n")
    try:
        sys.stdout.flush()
    except OSError:
        # What could not be printed would fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
