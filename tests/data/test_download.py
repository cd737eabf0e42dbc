from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from adagpr.data import data_root, fetch, load, presence, row, verify
from adagpr.data.catalogue import Source, sources
from adagpr.data.download import open_file
from adagpr.errors import InputError, StorageError

TEXAS = row("texas").graph_files()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Spoiling(BaseHTTPRequestHandler):
    """Sends a wrong byte, or half of what it promised."""

    half = False

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100" if self.half else "50")
        self.end_headers()
        self.wfile.write(b"x" * 50)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Halving(Spoiling):
    half = True


def serve(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("ADAGPR_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "adagpr"


@pytest.fixture
def mirror(benchmark_root: Path) -> Iterator[str]:
    yield from serve(partial(Quiet, directory=str(benchmark_root.resolve())))


@pytest.fixture
def texas(benchmark_root: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    for file in row("texas").files():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(benchmark_root / file, folder / file)
    return folder


def written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_folder_is_the_argument_then_the_environment_then_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_cache: Path
) -> None:
    assert data_root() == empty_cache
    monkeypatch.setenv("ADAGPR_DATA", "/from/environment")
    assert data_root() == Path("/from/environment")
    assert data_root(tmp_path) == tmp_path
    monkeypatch.delenv("ADAGPR_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache" / "adagpr"


def test_fetched_files_are_the_pinned_ones_and_load(mirror: str, empty_cache: Path) -> None:
    seen: dict[str, int] = {}
    files = fetch(["texas", "digits"], base_url=mirror, progress=lambda file, done, total: seen.update({file: done}))
    assert {item.status for item in verify(["texas"])} == {"ok"}
    assert len(files) == len(seen) == 12
    assert seen[TEXAS[0]] == (empty_cache / TEXAS[0]).stat().st_size
    assert load("texas")[0].num_nodes == 183


def test_what_is_there_is_not_fetched_again_unless_forced(mirror: str, texas: Path) -> None:
    assert fetch(["texas"], texas, mirror) == []
    assert len(fetch(["texas"], texas, mirror, force=True)) == 12


def test_an_altered_file_is_replaced_only_when_forced(mirror: str, texas: Path) -> None:
    (texas / TEXAS[0]).write_bytes(b"altered")
    with pytest.raises(InputError, match=r"is not the expected file.*adagpr data fetch texas --data-root .* --force"):
        fetch(["texas"], texas, mirror)
    fetch(["texas"], texas, mirror, force=True)
    assert {item.status for item in verify(["texas"], texas)} == {"ok"}


def test_the_cache_fills_itself_from_the_public_home(
    monkeypatch: pytest.MonkeyPatch, mirror: str, empty_cache: Path
) -> None:
    homes = {name: f"{mirror}/{name}/" for name in sources()}
    by_commit = {source.commit: homes[name] for name, source in sources().items()}
    monkeypatch.setattr(Source, "url", lambda self, path: by_commit[self.commit] + path)
    assert load("cornell-corrected", "geom-gcn/3")[1][0].name == "geom-gcn/3"
    assert len(written(empty_cache)) == 3


@pytest.mark.parametrize(
    ("handler", "message"), [(Spoiling, "is not the expected file"), (Halving, "50 of 100 bytes|50 bytes read")]
)
def test_a_corrupt_or_interrupted_download_leaves_nothing_behind(
    handler: type[Spoiling], message: str, tmp_path: Path
) -> None:
    server = serve(handler)
    with pytest.raises(InputError, match=message):
        fetch(["texas"], tmp_path / "here", next(server))
    assert written(tmp_path / "here") == []
    assert next(server, None) is None


def test_a_file_that_the_mirror_lacks_is_named(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"texas: geom-gcn/new_data/texas/out1_graph_edges\.txt is missing.*not found"):
        fetch(["texas"], tmp_path, f"{mirror}/nowhere")


def test_offline_one_sentence_says_what_is_missing_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    monkeypatch.setattr(Source, "url", lambda self, path: f"http://127.0.0.1:9/{path}")
    with pytest.raises(InputError, match=r"Data set cora: planetoid/ind\.cora\.test\.index is missing") as caught:
        load("cora")
    assert "adagpr data fetch cora" in str(caught.value)
    assert "ADAGPR_DATA or --data-root" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert written(empty_cache) == []


def test_a_named_folder_is_never_filled_unasked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=rf"is missing in {tmp_path}\. Get it with: adagpr data fetch texas --data-root"
    ):
        load("texas", data_root=tmp_path)
    monkeypatch.setenv("ADAGPR_DATA", str(tmp_path))
    with pytest.raises(InputError, match=rf"is missing in {tmp_path}\. Get it with: adagpr data fetch texas$"):
        load("texas")
    assert written(tmp_path) == []


@pytest.mark.parametrize("address", ["file:///etc", "ftp://host/data", "/data", "http:///data"])
def test_only_http_addresses_are_taken(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must start with http:// or https://"):
        fetch(["texas"], tmp_path, address)


def test_a_folder_that_cannot_be_written_is_named(mirror: str, tmp_path: Path) -> None:
    (tmp_path / "geom-gcn").write_text("in the way")
    with pytest.raises((InputError, StorageError), match=f"{tmp_path}/geom-gcn"):
        fetch(["texas"], tmp_path, mirror)


def test_a_converted_file_comes_from_a_mirror_but_not_from_its_home(mirror: str, tmp_path: Path) -> None:
    for get in (lambda: fetch(["computers"], tmp_path), lambda: load("computers", data_root=tmp_path)):
        with pytest.raises(InputError, match=r"^Data set computers: .*computers\.npz is missing and cannot be downl"):
            get()
    assert written(tmp_path) == []
    assert fetch(["computers"], tmp_path, mirror) == written(tmp_path)


def test_unknown_names_are_refused_before_anything_is_downloaded(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Unknown data set 'texass'"):
        fetch(["texas", "texass"], tmp_path, mirror)
    assert written(tmp_path) == []


def test_verify_tells_missing_from_altered(texas: Path) -> None:
    (texas / TEXAS[0]).unlink()
    (texas / TEXAS[1]).write_bytes(b"")
    found = {item.file: item.status for item in verify(["texas"], texas)}
    assert (found[TEXAS[0]], found[TEXAS[1]]) == ("missing", "altered")
    assert sorted(found.values()).count("ok") == 10


def test_presence_needs_every_file(texas: Path, tmp_path: Path) -> None:
    assert presence(row("texas"), texas) == "present"
    (texas / TEXAS[0]).unlink()
    assert presence(row("texas"), texas) == "partly"
    assert presence(row("texas"), tmp_path / "empty") == "missing"
    assert presence(row("digits")) == "built in"


ONE_OF_EACH_KIND = [
    ("cora", "planetoid/ind.cora.allx"),
    ("cora", "planetoid/ind.cora.graph"),
    ("cora", "planetoid/ind.cora.test.index"),
    ("texas", "geom-gcn/new_data/texas/out1_graph_edges.txt"),
    ("texas", "geom-gcn/new_data/texas/out1_node_feature_label.txt"),
    ("texas", "geom-gcn/splits/texas_split_0.6_0.2_4.npz"),
    ("chameleon-filtered", "heterophilous-graphs/chameleon_filtered.npz"),
]


@pytest.mark.parametrize("damage", ["one byte", "cut short", "one byte more", "empty"])
@pytest.mark.parametrize(("name", "file"), ONE_OF_EACH_KIND)
def test_a_damaged_file_is_refused_before_it_is_read(
    name: str, file: str, damage: str, benchmark_root: Path, tmp_path: Path
) -> None:
    content = (benchmark_root / file).read_bytes()
    middle = len(content) // 2
    damaged = {
        "one byte": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "cut short": content[:-1],
        "one byte more": content + b"\n",
        "empty": b"",
    }
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(damaged[damage])
    with pytest.raises(InputError, match=r"is not the expected file: its SHA-256 sum is [0-9a-f]{12}\.\.\., not"):
        open_file(row(name), file, tmp_path)
