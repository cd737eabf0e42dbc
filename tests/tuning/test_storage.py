from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from adagpr.errors import InputError, StorageError, without_password
from adagpr.tuning import storage
from adagpr.tuning.journal import JournalLock
from adagpr.tuning.storage import create_study, held, is_server


def test_the_journal_is_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    study = create_study("one", str(path))
    study.tell(study.ask(), 1.0)
    lines = path.read_text().splitlines()
    assert len(lines) >= 3
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert [item for item in tmp_path.iterdir() if item.name[0] != "."] == [path]


def test_half_a_line_of_a_killed_process_is_removed_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    study = create_study("one", str(path))
    study.tell(study.ask(), 1.0)
    with path.open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    again = create_study("one", str(path))
    again.tell(again.ask(), 2.0)
    study.tell(study.ask(), 3.0)
    assert [trial.value for trial in create_study("one", str(path)).trials] == [1.0, 2.0, 3.0]


def hold_for_ever(path: str) -> None:
    JournalLock(Path(path)).acquire()
    Path(f"{path}.held").touch()
    threading.Event().wait()


def test_a_process_killed_while_it_writes_leaves_no_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "a.jsonl")
    study = create_study("one", path)
    process = multiprocessing.get_context("fork").Process(target=hold_for_ever, args=(path,))
    process.start()
    while not Path(f"{path}.held").exists():
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    study.tell(study.ask(), 1.0)
    assert [trial.value for trial in study.trials] == [1.0]


def test_a_journal_serves_one_command_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "a.jsonl")
    with held(path), pytest.raises(InputError, match="Another command is tuning with"), held(path):
        pass
    with held(path):
        pass


@pytest.mark.parametrize("content", ["not json\n\n", "text\n", "{}\n", "[1]\n", '{"op_code": 99, "worker_id": "a"}\n'])
def test_a_file_that_is_no_journal_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(content)
    with pytest.raises(InputError, match="is not a study's journal"):
        create_study("one", str(path))
    assert path.read_text() == content


def test_a_journal_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot write"):
        create_study("one", str(tmp_path / "nowhere" / "a.jsonl"))


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me@host/db"),
        ("postgresql://me:se:c@ret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://host/db?user=me&password=secret&x=1", "postgresql://host/db?user=me&password=...&x=1"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("runs/a.jsonl", "runs/a.jsonl"),
    ],
)
def test_no_password_is_printed(address: str, printed: str) -> None:
    assert without_password(address) == printed


def test_limits_of_a_connection_can_be_set_in_the_address() -> None:
    query = storage._url("postgresql://host/db?connect_timeout=3").query
    assert query["connect_timeout"] == "3"
    assert query["keepalives_idle"] == "10"


def test_other_databases_are_refused() -> None:
    with pytest.raises(InputError, match=r"a file or postgresql://USER@HOST/DATABASE, got 'sqlite:///a.db'"):
        is_server("sqlite:///a.db")


def test_without_psycopg_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs psycopg.*pip install 'adagpr\[postgresql\]'"):
        is_server("postgresql://host/db")


def test_a_server_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        create_study("one", f"postgresql://me:secret@/db?host={tmp_path}")
    assert "cannot be used" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("secret", ["s3cret", "s3@cret", "s3:cr/et", "s3%40cret", "s3?cret", "s3cret'x"])
@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:{}@h/d",
        "postgresql://u@h/d?password={}",
        "postgresql://u:{0}@h:5432/d?PASSWORD={0}&sslmode=require",
        "host=h user=u password={} dbname=d",
        "host=h PassWord = '{}' dbname=d",
        "--storage=postgresql://u:{}@h/d",
    ],
)
def test_a_password_is_never_shown(address: str, secret: str) -> None:
    if "'{}'" in address:
        secret = secret.replace("'", "\\'")
    shown = without_password(address.format(secret))
    assert "s3" not in shown
    assert "cret" not in shown


@pytest.mark.parametrize("address", ["host=h password=s3cret", "postgresql:/u:s3cret@h/d", "postgres:u:s3cret@h"])
def test_an_address_that_is_no_url_becomes_no_file_name(address: str) -> None:
    with pytest.raises(InputError, match="A storage is a file or postgresql") as error:
        is_server(address)
    assert "s3cret" not in str(error.value)


def test_no_piece_of_a_password_is_taken_for_a_host() -> None:
    with pytest.raises(InputError, match="write an @ of the password as %40"):
        create_study("one", "postgresql://u:s3@cret/x@127.0.0.1:1/d")


@pytest.mark.parametrize("address", ["/dev/full", "/dev/zero", "{}/pipe", "{}"])
def test_a_journal_that_never_ends_is_refused(address: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a folder, a pipe or a device"), held(address.format(tmp_path)):
        pass
