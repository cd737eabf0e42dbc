"""The command line as tests use it."""

from __future__ import annotations

from typer.testing import CliRunner

from adagpr.cli.main import app


def adagpr(*words: str) -> str:
    """Runs a command that must end well, in this process, and returns its standard output."""
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout
