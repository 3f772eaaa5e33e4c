"""`regard train --nproc 2` and torchrun: what they start ends with them and says why, and nothing listens outside."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import (
    HERE,
    PATIENCE,
    Nursery,
    Team,
    below,
    code,
    contents,
    held,
    leftovers,
    wait_for,
    whole_checkpoints,
    write_recipe,
)

TWO = ("--nproc", "2")


def wait_until_gone(pids: list[int]) -> None:
    end = time.monotonic() + PATIENCE
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, f"{left} of {pids} are still there"
        time.sleep(0.05)


def listening(pids: list[int]) -> dict[str, int]:
    """The addresses on which processes listen, and how many sockets there are."""
    inodes = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(handle).removeprefix("socket:[").rstrip("]"))
    found: dict[str, int] = {}
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, _, state, inode = (line.split()[i] for i in (1, 2, 3, 9))
            if inode in inodes and (state == "0A" or table.startswith("udp")):
                address = local.partition(":")[0]
                found[address] = found.get(address, 0) + 1
    return found


LOOPBACK = {
    "0100007F",  # 127.0.0.1
    "00000000000000000000000001000000",  # ::1
    "0000000000000000FFFF00000100007F",  # ::ffff:127.0.0.1
}


def reached(nursery: Nursery, recipe: Path, folder: Path, where: str = "step") -> tuple[Team, list[int]]:
    """A launcher whose second process is held in step 5, and the processes that it has started."""
    team = nursery.train(recipe, folder / "run", *TWO, faults=held(where, 5, folder, rank=1, processes=2))
    wait_for(folder / "reached", child=team.children[0])
    processes = below(team.pid)
    assert len(processes) == 2
    return team, processes


def test_sigterm(nursery: Nursery, recipe: Path, wholes: Callable[[int], Path], tmp_path: Path) -> None:
    """Also: on what they listen, that the next start with one launcher goes on bitwise, and that at its end no thread
    of the process group is left, which could abort the process (exit code 134)."""
    team, processes = reached(nursery, recipe, tmp_path)
    found = listening([team.pid, *processes])
    assert found  # they do talk to each other
    assert found.keys() <= LOOPBACK
    team.send(signal.SIGTERM)
    wait_for(tmp_path / "interrupted")  # it was passed on
    (tmp_path / "go").touch()
    told = code(team, 143)
    assert told.count("stopped by SIGTERM after step 5") == 1  # one talks for all
    wait_until_gone(processes)
    assert max(whole_checkpoints(tmp_path / "run")) == 5
    assert left_behind(tmp_path / "run") == []
    threads = tmp_path / "threads"
    code(nursery.train(recipe, tmp_path / "run", *TWO, faults=({"kind": "note threads", "file": str(threads)},)), 0)
    assert contents(tmp_path / "run") == contents(wholes(2))
    assert left_behind(tmp_path / "run") == []
    assert len(threads.read_text().splitlines()) == 2
    assert "gloo" not in threads.read_text()


def left_behind(run: Path) -> list[str]:
    return leftovers(run) + [str(path) for path in run.rglob("*meeting*")] + [str(path) for path in run.rglob("*lock*")]


def test_ctrl_c_in_a_terminal(nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    """It reaches all processes of the foreground at once, and counts as one."""
    team, processes = reached(nursery, recipe, tmp_path)
    os.killpg(team.pid, signal.SIGINT)
    wait_for(tmp_path / "interrupted")
    time.sleep(0.3)  # time enough to pass it on a second time
    (tmp_path / "go").touch()
    assert "stopped by Ctrl-C after step 5" in code(team, 130)
    wait_until_gone(processes)
    assert max(whole_checkpoints(tmp_path / "run")) == 5


def test_ctrl_c_twice(nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    team, processes = reached(nursery, recipe, tmp_path)
    os.killpg(team.pid, signal.SIGINT)
    wait_for(tmp_path / "interrupted")
    os.killpg(team.pid, signal.SIGINT)
    code(team, 130)  # although a process never comes out of its step
    wait_until_gone(processes)
    assert whole_checkpoints(tmp_path / "run") == [3]
    assert left_behind(tmp_path / "run") in ([], [str(tmp_path / "run" / "training" / "lock")])


def test_one_process_is_killed(nursery: Nursery, recipe: Path, wholes: Callable[[int], Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    told = code(nursery.train(recipe, run, *TWO, faults=({"kind": "die", "at": 5, "rank": 1},)), 137)
    assert "process 1 of the training was killed by SIGKILL" in told
    assert "Traceback" not in told
    assert whole_checkpoints(run) == [3]
    code(nursery.train(recipe, run, processes=2), 0)
    assert contents(run) == contents(wholes(2))


def test_the_launcher_is_killed(nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    """Then its processes go, too, and do not keep the folder."""
    team, processes = reached(nursery, recipe, tmp_path)
    team.send(signal.SIGKILL)
    code(team, -9)
    (tmp_path / "go").touch()
    wait_until_gone(processes)
    assert max(whole_checkpoints(tmp_path / "run")) == 5  # they stopped as by SIGTERM
    code(nursery.train(recipe, tmp_path / "run"), 0)
    assert left_behind(tmp_path / "run") == []


def test_a_signal_in_the_first_moments(tmp_path: Path) -> None:
    """Before the launcher has imported anything that takes time: its exit code is that of the signal."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'regard.cli':\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "regard", "train", "demo", *TWO]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, cwd=tmp_path, timeout=60, check=False)
    assert ended.returncode == 143


def test_a_folder_that_is_no_run(nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    """It is refused as with one process, and nothing is left in it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    told = code(nursery.train(recipe, tmp_path / "mine", *TWO), 2)
    assert told.count("regard: ") == 1 and "is not a training run" in told
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


CODES = {
    3: ({"kind": "signal", "at": 99}, "no such file"),  # told by the first process, before the others do anything
    5: ({"kind": "spoil", "at": list(range(1, 41)), "rank": 0}, "training diverged"),
    6: ({"kind": "memory", "at": [5], "times": 99, "rank": 1}, "out of memory"),  # all end with it
}


@pytest.mark.slow  # exit codes 2, 130, 137 and 143 of other tests here come the same way
@pytest.mark.parametrize("wanted", CODES)
def test_exit_codes(wanted: int, nursery: Nursery, tmp_path: Path) -> None:
    """Those of the processes; the message is told once."""
    recipe = write_recipe(tmp_path / "recipe", changes={"steps = 12": "steps = 40"})
    fault, words = CODES[wanted]
    if wanted == 3:
        recipe.with_name("a.en").unlink()
    told = code(nursery.train(recipe, tmp_path / "run", *TWO, faults=(fault,)), wanted)
    assert (tmp_path / "run").exists() == (wanted != 3)  # a training that could not begin leaves no folder
    assert len([line for line in told.splitlines() if line.startswith("regard: ")]) == 1
    assert words in told
    assert "gloo" not in told


@pytest.mark.slow  # five processes that import torch
def test_torchrun_restarts(recipe: Path, wholes: Callable[[int], Path], tmp_path: Path) -> None:
    """One process is killed, all are started anew, go on from the checkpoint, and end with the same bits."""
    run = tmp_path / "run"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE / "inside"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "FAULTS": f'[{{"kind": "die", "at": 8, "rank": 1, "once": "{tmp_path / "killed"}"}}]',
        "FAULTS_FOLDER": str(run),
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    command = [*torchrun, "-m", "regard", "train", str(recipe), "--out", str(run)]
    with open(tmp_path / "err", "wb") as err:
        process = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=err, stderr=err, start_new_session=True
        )
        try:
            ended = process.wait(120)
        finally:
            for pid in [process.pid, *below(process.pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    told = (tmp_path / "err").read_text()
    assert ended == 0, told
    assert (tmp_path / "killed").exists()
    assert re.search("continuing from step 6", told)
    assert contents(run) == contents(wholes(2))
