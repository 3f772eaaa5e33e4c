"""`regard translate --ray` and `translate_dataset`, on a cluster of two nodes on this machine."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_process import JobProcess, is_gone, wait_until
from typer.testing import Result

from regard.cli.use import translate_job
from regard.scale import job_folder

Run = Callable[..., Result]
MODEL_THAT_FAILS = """
import sys
with open(sys.argv[-1], "a") as starts: starts.write("x")
sys.exit("regard: the model is damaged")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a CPU each, so that each has one worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        import ray
        from ray.cluster_utils import Cluster

        node = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=node)
        cluster.add_node(**node)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def ray_job(job: Run, cluster: Any) -> Run:
    return lambda *arguments: job(*arguments, "--workers", "2", "--ray", cluster.address)


def write_lines(file: Path, lines: list[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def lines_of(folder: Path) -> list[str]:
    return (folder / "a.txt").read_text().split("\n")[:-1]


def test_killed_workers_and_a_line_that_fails(ray_job: Run, tmp_path: Path) -> None:
    """Each line is in its place, although two workers die in the middle of a block."""
    lines = [*map(str, range(9)), f"once:{tmp_path / 'first'}", f"once:{tmp_path / 'second'}", "BAD", *"abcdef"]
    text = write_lines(tmp_path / "a.txt", lines)
    result = ray_job(text, "-o", tmp_path / "out")
    assert result.exit_code == 3 and f"{text}:12: this line is bad" in result.stderr
    assert lines_of(tmp_path / "out") == ["" if line == "BAD" else line.upper() for line in lines]


def test_a_model_that_cannot_be_loaded(ray_job: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the job at once: no worker tries again."""
    starts = tmp_path / "starts"
    monkeypatch.setattr(translate_job, "option_words", lambda *context: [str(starts)])
    monkeypatch.setattr(translate_job, "WORKER_COMMAND", (sys.executable, "-c", MODEL_THAT_FAILS))
    result = ray_job(write_lines(tmp_path / "a.txt", ["a"] * 40), "-o", tmp_path / "out")
    assert result.exit_code == 1 and "the model is damaged" in result.stderr and starts.read_text() == "x"


@pytest.mark.slow
def test_another_model_on_a_node(ray_job: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.system.files.fingerprint", lambda path: {"sha256": "of this machine"})
    result = ray_job(write_lines(tmp_path / "a.txt", ["a"]), "-o", tmp_path / "out")
    assert result.exit_code == 4 and "is not the model of this job" in result.stderr


@pytest.mark.slow
def test_a_line_that_kills_its_workers_is_left_out(ray_job: Run, tmp_path: Path) -> None:
    lines = ["0", "1", "2", "3", "4", "KILL", "6", "7", "8"]
    result = ray_job(write_lines(tmp_path / "a.txt", lines), "-o", tmp_path / "out")
    assert result.exit_code == 3
    assert "a.txt:6: ended its worker process 3 times (killed by SIGKILL)" in result.stderr
    assert lines_of(tmp_path / "out") == ["0", "1", "2", "3", "4", "", "6", "7", "8"]


@pytest.mark.slow
def test_a_full_disk(ray_job: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def full(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*arguments)

    write = job_folder.write_synced
    monkeypatch.setattr(job_folder, "write_synced", full)
    text = write_lines(tmp_path / "a.txt", [*map(str, range(29))])
    result = ray_job(text, "-o", tmp_path / "out")
    assert result.exit_code == 6 and "the disk is full" in result.stderr
    assert len(list((tmp_path / "out").glob("part-*.tsv"))) == 2
    assert ray_job(text, "-o", tmp_path / "out").exit_code == 0
    assert lines_of(tmp_path / "out") == [*map(str, range(29))]


@pytest.mark.slow
def test_a_node_that_is_lost(ray_job: Run, cluster: Any, tmp_path: Path) -> None:
    """The other node does its work, and there is none left that could take a new worker."""
    gate = tmp_path / "gate"
    lines = [*map(str, range(6)), f"wait:{gate}", *map(str, range(7, 40))]
    text = write_lines(tmp_path / "a.txt", lines)
    (lost,) = cluster.worker_nodes

    def lose() -> None:
        wait_until(lambda: Path(f"{gate}.reached").exists(), "the line was not reached")
        cluster.remove_node(lost, allow_graceful=False)
        gate.touch()

    losing = threading.Thread(target=lose)
    losing.start()
    result = ray_job(text, "-o", tmp_path / "out")
    losing.join()
    cluster.add_node(num_cpus=1)
    assert result.exit_code == 0, result.stderr
    assert lines_of(tmp_path / "out") == [line.upper() for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_stopped_job_goes_on(cluster: Any, tmp_path: Path, number: int, code: int) -> None:
    out, gate = tmp_path / "out", tmp_path / "gate"
    lines = [*map(str, range(6)), f"wait:{gate}", *map(str, range(7, 20))]
    text = write_lines(tmp_path / "a.txt", lines)
    command = (text, "--batch", "2", "--workers", "2", "--ray", cluster.address, "-o", out)
    running = JobProcess(*command, starts=tmp_path / "none")
    wait_until(lambda: Path(f"{gate}.reached").exists() and (out / "part-00001.tsv").exists(), "no part was written")
    waiting = int(Path(f"{gate}.reached").read_text())
    os.killpg(running.process.pid, number)  # as a terminal does
    ended, messages = running.wait()
    assert ended == code, messages
    wait_until(lambda: is_gone(waiting), "a worker is still there")
    assert (out / "part-00000.tsv").exists() and not (out / "part-00002.tsv").exists()
    gate.touch()
    ended, messages = JobProcess(*command, starts=tmp_path / "none").wait()
    assert ended == 0, messages
    assert lines_of(out) == [line.upper() for line in lines]
    assert "this run translated 20 in" not in messages


@pytest.mark.slow
def test_the_real_model_and_a_killed_actor(cluster: Any, tmp_path: Path) -> None:
    """Byte for byte what `regard translate FILE` prints, on a cluster of its own."""
    words = ["le chat", "noir", "dort", "dans la maison", "Jane", "visite", "l'Afrique", "", "en septembre"]
    text = write_lines(tmp_path / "a.txt", [" ".join(words[i % 9 : i % 9 + i * 7 % 4]) for i in range(500)])
    options = (text, "--batch", "16", "--beam", "2")
    plain, out = JobProcess(*options, "-o", tmp_path / "plain", starts=tmp_path / "none", script=None), tmp_path / "out"
    assert plain.wait()[0] == 0
    running = JobProcess(*options, "--workers", "2", "-o", out, "--ray", starts=tmp_path / "none", script=None)
    wait_until(lambda: (out / "part-00000.tsv").exists(), "no part was written")
    os.kill(next(pid for pid in descendants(running.process.pid) if "RemoteWorker" in title(pid)), signal.SIGKILL)
    ended, messages = running.wait()
    assert ended == 0, messages
    assert (out / "a.txt").read_bytes() == (tmp_path / "plain/a.txt").read_bytes()


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and those that these have."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.slow
def test_a_column_of_a_dataset(cluster: Any) -> None:
    import ray
    import ray.data

    from regard import load
    from regard.scale import translate_dataset

    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        texts = ["le chat dort", "", "jane visite l'afrique en septembre", "42"] * 5
        rows = ray.data.from_items([{"number": i, "french": text} for i, text in enumerate(texts)])
        dataset = translate_dataset(rows, "lecture", column="french", output="english", workers=2, batch=3, beam=2)
        found = sorted(dataset.take_all(), key=lambda row: row["number"])
    finally:
        ray.shutdown()
    expected = load("lecture").translate(texts, beam=2)
    assert [row["english"] for row in found] == [translation.text for translation in expected]
    assert {row["english_error"] for row in found} == {""} and [row["french"] for row in found] == texts
