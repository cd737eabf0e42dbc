"""Compiles the kernels of ``adagpr.ops.kernels`` when the package is built, once for each kind of processor.

A hash of their sources is compiled in, and only kernels of the installed sources are loaded. Without a C compiler the
package is installed all the same and computes with torch's operations.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/adagpr/ops/kernels")
OPTIONS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wno-psabi"]
WIDE = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
KINDS = {"default": [], "avx2": ["-mavx2", "-mfma"], "avx512": ["-mavx2", "-mfma", *WIDE]}


class KernelHook(BuildHookInterface):
    """Puts the compiled files beside their sources, and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel or an editable install is put together."""
        compiler = shutil.which(os.environ.get("CC", "cc"))
        made = [] if compiler is None else [path for kind in _kinds() if (path := self._compiled(compiler, kind))]
        if not made:
            self.app.display_warning(
                "adagpr: no C compiler works here; layers are computed without kernels of their own."
            )
            return
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["artifacts"] += [str(path.relative_to(self.root)) for path in made]

    def _compiled(self, compiler: str, kind: str) -> Path | None:
        folder = Path(self.root) / FOLDER
        target = folder / f"kernels-{kind}.so"
        options = [*OPTIONS, f"-DSOURCE_HASH={source_hash(folder):#x}", *KINDS[kind]]
        # A process that has the old file open keeps it: the new one takes its place whole.
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / target.name
            for threads in (["-pthread"], ["-DSINGLE_THREADED"]):
                command = [compiler, *options, *threads, str(folder / "kernels.c"), "-o", str(made), "-lm"]
                found = subprocess.run(command, capture_output=True, text=True, check=False)
                if found.returncode == 0:
                    made.replace(target)
                    return target
        self.app.display_warning(f"adagpr: no kernels for {kind}: {found.stderr.strip().splitlines()[:1]}")
        return None


def source_hash(folder: Path) -> int:
    """What tells sources apart; the same function of ``adagpr.ops.kernels`` asks for it."""
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.[ch]")))
    return int(hashlib.sha256(sources).hexdigest()[:16], 16)


def _kinds() -> list[str]:
    return [*KINDS] if platform.machine() in ("x86_64", "AMD64") and sys.platform != "win32" else ["default"]
