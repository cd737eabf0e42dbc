"""A private PostgreSQL server that can be killed and started again, and a way to it on which answers get lost."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SOCKET = ".s.PGSQL.5432"


def address(folder: Path) -> str:
    return f"postgresql://postgres@/postgres?host={folder}"


class Server:
    """A server that listens on a socket in its own folder."""

    def __init__(self) -> None:
        found = shutil.which("postgres")
        self._programs = (
            Path(found).resolve().parent if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        )
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        # The server refuses to run as root.
        user = {"user": "postgres"} if os.geteuid() == 0 else {}
        if user:
            shutil.chown(self.folder, "postgres")
        self._quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
        self._data = self.folder / "data"
        create: list[str | Path] = [self._programs / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust"]
        subprocess.run([*create, "--no-sync"], check=True, cwd=self.folder, **self._quiet)
        self.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def start(self) -> None:
        """Starts it, and returns when it answers."""
        postgres = self._programs / "postgres"
        self._process = subprocess.Popen(
            [postgres, "-D", self._data, "-k", self.folder, "-c", "listen_addresses=", "-F"],
            cwd=self.folder,
            **self._quiet,
        )
        ready: list[str | Path] = [self._programs / "pg_isready", "-h", self.folder, "-q"]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self.is_running
            time.sleep(0.1)

    def kill(self) -> None:
        """Kills it with all of its processes, as when the machine fails."""
        pid = self._process.pid
        os.kill(pid, signal.SIGSTOP)  # so that it has no more children
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for process in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stops it at once, as ``pg_ctl stop -m immediate`` does."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def remove(self) -> None:
        """Stops it for good."""
        self.stop()
        shutil.rmtree(self.folder)


class LossyWay:
    """A socket that leads to a server, and breaks each time that so many commits were carried out, before the answer.

    Attributes:
        every: Which commits are not answered: every second, third and so on; 0 for none.
        num_lost: Answers that were lost so far.
    """

    def __init__(self, server: Server) -> None:
        self.every = self.num_lost = self._num_commits = 0
        self.folder = Path(tempfile.mkdtemp(prefix="way"))
        self._target = str(server.folder / SOCKET)
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / SOCKET))
        self._listener.listen(50)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self.folder)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._lead, args=(client,), daemon=True).start()

    def _lead(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            server.connect(self._target)
            is_due = False
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data or (source is server and is_due):
                        return
                    is_due = source is client and b"COMMIT\0" in data and self._loses()
                    (server if source is client else client).sendall(data)

    def _loses(self) -> bool:
        with self._lock:
            self._num_commits += 1
            is_due = self.every > 0 and self._num_commits % self.every == 0
            self.num_lost += is_due
            return is_due
