"""`regard translate --workers`: every line in its place, whatever happens to the workers, the job and the disk."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from job_process import JobProcess, is_gone, wait_until
from typer.testing import Result

from regard.scale import job_folder
from regard.scale.blocks import Row, decode_rows, encode_rows

Run = Callable[..., Result]


def write_lines(file: Path, lines: list[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def lines_of(folder: Path, name: str = "a.txt") -> list[str]:
    *lines, end = (folder / name).read_bytes().decode().split("\n")
    assert end == ""
    return lines


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A file of 29 lines, which a batch of 2 cuts into 5 blocks: of 2, 4, 8 and 15 lines."""
    return write_lines(tmp_path / "a.txt", [f"line {i}" if i % 5 else "" for i in range(29)])


def test_files_in_line_order(job: Run, words: Path, tmp_path: Path) -> None:
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("été\r\n\n\nlast line".encode()))
    write_lines(tmp_path / "empty.txt", [])
    out = tmp_path / "out"
    result = job(words, tmp_path / "b.txt.gz", tmp_path / "empty.txt", "--workers", "2", "-o", out)
    assert result.exit_code == 0, result.stderr
    assert lines_of(out) == words.read_text().upper().split("\n")[:-1]
    assert lines_of(out, "b.txt") == ["ÉTÉ\r", "", "", "LAST LINE"]  # the fake worker keeps \r
    assert lines_of(out, "empty.txt") == []
    assert files_in(out) == ["a.txt", "b.txt", "empty.txt", "job.json"] and result.stdout == ""


def test_a_complete_job_is_not_done_again(job: Run, words: Path, tmp_path: Path, monkeypatch) -> None:
    assert job(words, "-o", tmp_path / "out").exit_code == 0
    monkeypatch.setenv("FAKE_LOAD", "4")  # no worker could start
    again = job(words, "-o", tmp_path / "out", "--workers", "3")
    assert again.exit_code == 0 and "already complete: 29 lines" in again.stderr


def test_a_lost_result_is_made_again(job: Run, words: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert job(words, "-o", tmp_path / "out").exit_code == 0
        wanted = words.read_text().upper().split("\n")[:-1]
        assert lines_of(tmp_path / "out") == wanted
        (tmp_path / "out/a.txt").unlink()


def test_a_line_that_fails_is_empty_and_named(job: Run, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "a.txt", ["one", "two", "three", "BAD", "five"])
    for _ in range(2):  # also when the job is already complete
        result = job(text, "--workers", "2", "-o", tmp_path / "out")
        assert result.exit_code == 3 and "1 lines failed" in result.stderr
    assert lines_of(tmp_path / "out") == ["ONE", "TWO", "THREE", "", "FIVE"]


def test_a_failed_line_is_named_with_its_file(job: Run, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "a.txt", ["one", "two", "three", "BAD"])
    assert f"{text}:4: this line is bad" in job(text, "-o", tmp_path / "out").stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_block_of_a_dead_worker_is_translated_again(job: Run, tmp_path: Path, workers: str) -> None:
    lines = [*map(str, range(9)), f"once:{tmp_path / 'first'}", f"once:{tmp_path / 'second'}", *"abcdef"]
    result = job(write_lines(tmp_path / "a.txt", lines), "--workers", workers, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert lines_of(tmp_path / "out") == [line.upper() for line in lines]


@pytest.mark.parametrize(("line", "reason"), [("KILL", "killed by SIGKILL"), ("EXIT", "exit code 7")])
def test_a_line_that_kills_its_workers_is_left_out(job: Run, tmp_path: Path, line: str, reason: str) -> None:
    lines = ["0", "1", "2", "3", "4", line, "6", "7", "8"]  # blocks of 2, 4 and 3
    result = job(write_lines(tmp_path / "a.txt", lines), "--workers", "2", "-o", tmp_path / "out")
    assert result.exit_code == 3
    assert f"a.txt:6: ended its worker process 3 times ({reason})" in result.stderr
    assert lines_of(tmp_path / "out") == ["0", "1", "2", "3", "4", "", "6", "7", "8"]


def test_a_lost_line_in_json(job: Run, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "a.txt", ["a", "KILL"])
    assert job(text, "--json", "-o", tmp_path / "out").exit_code == 3
    entry = json.loads(lines_of(tmp_path / "out")[1])
    assert entry["text"] == "" and "SIGKILL" in entry["error"]


def test_workers_that_die_with_every_line(job: Run, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "a.txt", ["fine", "fine", *["EXIT"] * 40])
    result = job(text, "-o", tmp_path / "out")
    assert result.exit_code == 6 and "die with every line (exit code 7)" in result.stderr
    assert "part-00000.tsv" in files_in(tmp_path / "out")


def test_a_model_that_cannot_be_loaded(job: Run, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LOAD", "4")
    monkeypatch.setenv("FAKE_STARTS", str(tmp_path / "starts"))
    result = job(words, "--workers", "4", "-o", tmp_path / "out")
    assert result.exit_code == 4
    assert (tmp_path / "starts").read_text().count("\n") == 1  # once, not by each worker


def test_workers_killed_while_they_load(job: Run, words: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_LOAD", "KILL")
    result = job(words, "--workers", "4", "-o", tmp_path / "out")
    assert result.exit_code == 137 and "killed by SIGKILL 3 times while it loaded" in result.stderr


def test_a_model_that_is_not_there_leaves_no_folder(job: Run, words: Path, tmp_path: Path) -> None:
    result = job(words, "-m", tmp_path / "nothing", "-o", tmp_path / "out")
    assert result.exit_code == 4 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("call", [1, 3, 5])
def test_a_full_disk(job: Run, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Parts 1 and 3, and the merge, find no space."""
    calls = 0

    def full(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*arguments)

    name = "sync_file" if call == 5 else "write_synced"
    calls = 4 if call == 5 else 0
    write = getattr(job_folder, name)
    monkeypatch.setattr(job_folder, name, full)
    result = job(words, "-o", tmp_path / "out")
    assert result.exit_code == 6 and "the disk is full" in result.stderr and "run the same command" in result.stderr
    parts = 4 if call == 5 else call - 1
    assert files_in(tmp_path / "out") == ["job.json", *(f"part-0000{i}.tsv" for i in range(parts))]
    assert job(words, "-o", tmp_path / "out").exit_code == 0
    assert lines_of(tmp_path / "out") == words.read_text().upper().split("\n")[:-1]


def test_another_job_in_the_folder(job: Run, words: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert job(words, "-o", out).exit_code == 0
    result = job(words, "-o", out, "--beam", "2")
    assert result.exit_code == 2 and "options: beam (None there, 2 in this command)" in result.stderr
    result = job(words, "-o", out, "-m", "fr-en")
    assert result.exit_code == 2 and "models: 2 (only in this command)" in result.stderr
    with words.open("a") as file:
        file.write("more\n")
    result = job(words, "-o", out)
    assert result.exit_code == 2 and "inputs: a.txt (other content)" in result.stderr


def test_the_order_of_the_files_matters(job: Run, words: Path, tmp_path: Path) -> None:
    other = write_lines(tmp_path / "b.txt", ["b"])
    assert job(words, other, "-o", tmp_path / "out").exit_code == 0
    result = job(other, words, "-o", tmp_path / "out")
    assert result.exit_code == 2 and "order (" in result.stderr


def test_nothing_is_overwritten(job: Run, words: Path, tmp_path: Path) -> None:
    content = words.read_text()
    result = job(words, "-o", tmp_path)
    assert result.exit_code == 2 and "is an input" in result.stderr and words.read_text() == content
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("mine")
    result = job(words, "-o", other)
    assert result.exit_code == 2 and "is not of this job" in result.stderr and (other / "a.txt").read_text() == "mine"
    (other / "job.json").write_text("[]")
    result = job(words, "-o", other)
    assert result.exit_code == 2 and "not the record of a job" in result.stderr


def test_wrong_options(job: Run, words: Path, tmp_path: Path) -> None:
    same = tmp_path / "folder" / "a.txt.gz"
    same.parent.mkdir()
    same.write_bytes(gzip.compress(b"a\n"))
    cases = {
        "--workers needs --out": (words, "--workers", "2"),
        "several files need --out": (words, words),
        "--out needs files": ("-o", tmp_path / "out"),
        "pass a file or --text": ("-t", "a", "-o", tmp_path / "out"),
        "both be written to a.txt": (words, same, "-o", tmp_path / "out"),
        "needs this name": (write_lines(tmp_path / "job.json", ["a"]), "-o", tmp_path / "out"),
    }
    for message, arguments in cases.items():
        result = job(*arguments)
        assert result.exit_code == 2 and message in result.stderr
    result = job(tmp_path / "a.tx", "-o", tmp_path / "out")
    assert result.exit_code == 3 and "did you mean" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_is_found_before_the_work(job: Run, words: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "b.gz"
    damaged.write_bytes(gzip.compress(b"a\n" * 999)[:-9])
    result = job(words, damaged, "-o", tmp_path / "out")
    assert result.exit_code == 3 and f"{damaged}, after line" in result.stderr
    assert files_in(tmp_path / "out") == ["job.json"]


def test_windows_is_refused(job: Run, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.scale.job.HAS_SEVERAL_PROCESSES", False)
    result = job(words, "-o", tmp_path / "out")
    assert result.exit_code == 2 and "not supported on Windows" in result.stderr


def test_a_damaged_part_is_made_again(job: Run, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(job_folder, "sync_file", fail)
        assert job(words, "-o", tmp_path / "out").exit_code == 6
    part = tmp_path / "out/part-00001.tsv"
    part.write_bytes(part.read_bytes()[:-4])
    (tmp_path / "out/part-00002.tsv").write_bytes((tmp_path / "out/part-00003.tsv").read_bytes())
    assert job(words, "-o", tmp_path / "out").exit_code == 0
    assert lines_of(tmp_path / "out") == words.read_text().upper().split("\n")[:-1]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_stopped_job_goes_on(tmp_path: Path, number: int, code: int) -> None:
    out, gate, starts = tmp_path / "out", tmp_path / "gate", tmp_path / "starts"
    lines = [*map(str, range(6)), f"wait:{gate}", *map(str, range(7, 20))]
    command = (write_lines(tmp_path / "a.txt", lines), "--batch", "2", "--workers", "2", "-o", out)
    running = JobProcess(*command, starts=starts)
    wait_until(lambda: Path(f"{gate}.reached").exists() and (out / "part-00001.tsv").exists(), "no part was written")
    second = JobProcess(*command, starts=tmp_path / "other")
    ended, messages = second.wait()  # two jobs in one folder
    assert ended == 2 and "in use: a translation job, process" in messages
    running.process.send_signal(number)
    ended, messages = running.wait()
    assert ended == code, messages
    wait_until(lambda: all(map(is_gone, running.workers())), "a worker is still there")
    sizes = {"part-00000.tsv": 2, "part-00001.tsv": 4, "part-00002.tsv": 8, "part-00003.tsv": 6}
    parts = sizes.keys() & set(files_in(out))
    assert {"part-00000.tsv", "part-00001.tsv"} <= parts and "part-00002.tsv" not in parts
    if code > 0:
        assert "run the same command again to continue" in messages
    gate.touch()
    ended, messages = JobProcess(*command, starts=starts).wait()
    assert ended == 0, messages
    assert lines_of(out) == [line.upper() for line in lines]
    assert f"this run translated {20 - sum(sizes[name] for name in parts)} in" in messages


def test_the_real_model_and_a_killed_worker(tmp_path: Path) -> None:
    """Byte for byte what `regard translate FILE` prints, with 2 workers of which one is killed in a block."""
    words = ["le chat", "noir", "dort", "dans la maison", "Jane", "visite", "l'Afrique", "", "en septembre"]
    text = write_lines(tmp_path / "a.txt", [" ".join(words[i % 9 : i % 9 + i * 7 % 4]) for i in range(500)])
    options = ("--batch", "16", "--beam", "2")
    with open(tmp_path / "plain", "wb") as plain:
        subprocess.run(
            [sys.executable, "-m", "regard", "translate", "-m", "lecture", str(text), *options],
            stdout=plain,
            check=True,
        )
    out = tmp_path / "out"
    running = JobProcess(text, *options, "--workers", "2", "-o", out, starts=tmp_path / "none", script=None)
    children = Path(f"/proc/{running.process.pid}/task")
    wait_until(lambda: (out / "part-00000.tsv").exists(), "no part was written")
    workers = {int(pid) for task in children.iterdir() for pid in (task / "children").read_text().split()}
    os.kill(min(workers), signal.SIGKILL)
    ended, messages = running.wait()
    assert ended == 0, messages
    assert (out / "a.txt").read_bytes() == (tmp_path / "plain").read_bytes() and len(lines_of(out)) == 500


def test_rows_survive_their_file() -> None:
    rows = [Row(1, "", "a\tb"), Row(2, "", "1\t0.5\tx\n1\t0.1\ty"), Row(3, "bad", ""), Row(4, "", "\u2028\x0b")]
    assert decode_rows(encode_rows(rows)) == rows
    for damaged in (encode_rows(rows)[:-1], b"\xff\n", b"x\n"):
        assert decode_rows(damaged) is None
