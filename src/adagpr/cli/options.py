"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DataRoot", "MovedFile"]

DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data files. Default: $ADAGPR_DATA or a cache.")]
MovedFile = Annotated[str | None, typer.Option(help="The run's .npz file, where it has moved since.")]
