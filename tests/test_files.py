from __future__ import annotations

import os
import threading
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagpr.errors import BusyError, InputError, StorageError, unknown_name
from adagpr.files import (
    digest,
    folder_lock,
    make_folder,
    none_from_text,
    read_json,
    read_toml,
    to_toml,
    write_all,
    write_atomically,
    write_json,
    write_text,
    write_together,
)
from adagpr.seeding import capture, restore, stream, torch_generator

PLAIN = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.text())
TABLES = st.recursive(
    st.dictionaries(st.text(), st.one_of(PLAIN, st.lists(PLAIN))),
    lambda inner: st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(TABLES)
def test_plain_tables_survive_toml(content: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(content)) == content


def test_a_folder_can_be_made_while_others_take_it_and_let_it_go(tmp_path: Path) -> None:
    """Who takes a folder clears away what looks left over, also what another is just trying."""
    over = threading.Event()

    def take() -> None:
        while not over.is_set():
            with folder_lock(tmp_path):
                pass

    other = threading.Thread(target=take)
    other.start()
    try:
        for _ in range(2000):
            make_folder(tmp_path)
    finally:
        over.set()
        other.join()
    assert [item.name for item in tmp_path.iterdir()] == [".lock"]


def test_none_is_written_as_a_word() -> None:
    assert to_toml({"patience": None}) == 'patience = "none"\n'


def test_what_has_no_form_in_toml_is_an_error() -> None:
    with pytest.raises(TypeError, match="set"):
        to_toml({"a": {1, 2}})


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=r"the disk is full\. What was there before is unchanged"):
        write_atomically(path, fail)
    assert read_json(path) == {"old": 1}
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


def test_several_files_are_written_together_or_none_that_is_new(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "wall" / "c").mkdir(parents=True)
    contents = {tmp_path / name: b"new" for name in ("old", "a", "wall/c/x", "nowhere/b")}
    with pytest.raises(StorageError, match=r"Cannot write .*nowhere/b: .*What was there before is unchanged"):
        write_all(contents)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["old"]
    assert (tmp_path / "old").read_text() == "old"
    del contents[tmp_path / "nowhere/b"]
    write_all(contents)
    assert {path.read_bytes() for path in contents} == {b"new"}


def test_files_that_were_replaced_before_another_failed_are_named(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")

    def folder_in_place(temporary: Path) -> None:
        temporary.write_bytes(b"new")
        (tmp_path / "late" / "full").mkdir(parents=True)

    writers: dict[Path, Any] = {
        tmp_path / "old": lambda temporary: temporary.write_bytes(b"new"),
        tmp_path / "late": folder_in_place,
    }
    with pytest.raises(StorageError, match=r"Cannot write .*late: .*Written before it: old\."):
        write_together(writers)
    assert (tmp_path / "old").read_text() == "new"


def test_an_interrupted_write_leaves_nothing_half_written(tmp_path: Path) -> None:
    def interrupted(temporary: Path) -> None:
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_the_lock_removes_what_a_killed_process_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    ours = [".a.json.123.adagpr-tmp", "checkpoint/.state.9.adagpr-tmp"]
    foreign = [".notes.tmp", ".a.json.123.tmp", ".probe.7", "checkpoint/.x.tmp", ".b.adagpr-tmp", "c.1.adagpr-tmp"]
    for name in [*ours, *foreign]:
        (tmp_path / name).write_text("half")
    with folder_lock(tmp_path):
        left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
        assert left == {".lock", "checkpoint", *foreign}


def test_a_locked_folder_is_busy_for_others(tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(BusyError, match="Another process is working"), folder_lock(tmp_path):
        pass


def test_the_text_none_comes_back_as_none() -> None:
    content = {"patience": None, "decay": {"convs": None, "lin": 1.0}}
    assert none_from_text(tomllib.loads(to_toml(content))) == content


def test_nan_cannot_enter_a_record(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})


@pytest.mark.parametrize("read", [read_json, read_toml])
def test_a_broken_file_is_named(read: Any, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("{ [")
    with pytest.raises(InputError, match=r"Cannot read .*broken"):
        read(tmp_path / "broken")


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2.0]}) == digest({"b": [2.0], "a": 1}) != digest({"a": 1, "b": [2.5]})


def test_unknown_names_offer_the_nearest_or_all() -> None:
    assert str(unknown_name("fruit", "aple", ["apple", "pear"])) == "Unknown fruit 'aple'. Did you mean 'apple'?"
    assert str(unknown_name("fruit", "x", ["apple", "pear"])) == "Unknown fruit 'x'. Known: apple, pear."


def test_a_captured_stream_goes_on_where_it_was() -> None:
    first = stream(3, "dropout")
    first.bit_generator.random_raw(5)
    first.integers(7, dtype=np.int32)
    state = capture(first)
    second = stream(99, "other")
    restore(second, state)
    assert (
        first.integers(1000, size=50, dtype=np.int32).tolist()
        == second.integers(1000, size=50, dtype=np.int32).tolist()
    )
    assert first.random(3).tolist() == second.random(3).tolist()


def test_streams_of_one_seed_differ_by_purpose() -> None:
    assert stream(0, "a").random() != stream(0, "b").random()
    assert torch_generator(0, "a").initial_seed() != torch_generator(0, "b").initial_seed()
    assert torch_generator(4, "a").initial_seed() == torch_generator(4, "a").initial_seed()


def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/full")):
        with pytest.raises(InputError, match="not a file"):
            write_text(path, "text")
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
