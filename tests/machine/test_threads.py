"""The number of threads: what a process may use, and what --threads sets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import COMMANDS, app
from regard.machine import is_out_of_memory, number_of_cores, one_thread, set_threads, threads_in_use


@pytest.fixture(autouse=True)
def _restore_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # restored at the end, whatever the test sets
        monkeypatch.delenv(name)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Eight visible cores, and the control groups of a container; the fixture is the folder of the inner group."""
    monkeypatch.setattr("regard.machine.devices.usable_cores", lambda: 8)
    monkeypatch.setattr("regard.machine.control_groups.PROCESS", tmp_path / "self")
    monkeypatch.setattr("regard.machine.control_groups.CONTROL_GROUPS", tmp_path / "groups")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/job/step\n")
    (tmp_path / "groups/job/step").mkdir(parents=True)
    return tmp_path / "groups/job/step"


@pytest.mark.parametrize(
    ("inner", "outer", "cores"),
    [
        ("max 100000", "max 100000", 8),
        ("300000 100000", "max 100000", 3),
        ("max 100000", "250000 100000", 2),  # the tightest group counts
        ("50000 100000", "max 100000", 1),  # half a core is one thread
        ("1600000 100000", "", 8),
        ("damaged", "", 8),
    ],
)
def test_cores_heed_the_quota(quota: Path, inner: str, outer: str, cores: int) -> None:
    (quota / "cpu.max").write_text(inner)
    (quota.parent / "cpu.max").write_text(outer)
    assert number_of_cores() == cores


def test_cores_heed_the_quota_of_version_1(quota: Path, tmp_path: Path) -> None:
    (tmp_path / "self/cgroup").write_text("5:memory:/job\n4:cpu,cpuacct:/job\n")
    group = tmp_path / "groups/cpu,cpuacct/job"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("200000\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    assert number_of_cores() == 2
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    assert number_of_cores() == 8


def test_threads_follow_the_quota_unless_they_are_set(quota: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    (quota / "cpu.max").write_text("200000 100000")
    with monkeypatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "5")
        set_threads(None)
        assert torch.get_num_threads() == 1  # as torch was started
    set_threads(None)
    assert torch.get_num_threads() == 2
    set_threads(3)
    assert torch.get_num_threads() == 3


def test_without_a_quota_the_choice_is_openmps(quota: Path) -> None:
    torch.set_num_threads(1)
    set_threads(None)
    assert torch.get_num_threads() == 1


def test_one_thread_inside_a_block_and_the_others_after_it() -> None:
    def fail() -> None:
        with one_thread():
            with one_thread():
                pass
            assert torch.get_num_threads() == 1
            raise KeyError

    torch.set_num_threads(3)
    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 3


def test_every_command_that_computes_takes_threads() -> None:
    others = {"check", "export", "import", "info", "lectures"}  # they read and write files
    for name in [*COMMANDS.keys() - others, "plot trace"]:
        result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
        assert "--threads" in result.stdout, name


def test_a_command_uses_the_threads() -> None:
    result = CliRunner().invoke(app, ["translate", "-t", "Bonjour.", "--threads", "2"])
    assert result.exit_code == 0, result.stderr
    assert torch.get_num_threads() == 2
    assert CliRunner().invoke(app, ["translate", "-t", "Bonjour.", "--threads", "0"]).exit_code == 2


def test_torch_may_be_imported_by_another_thread_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a server translates in C and imports torch beside it: the module has no attributes yet."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_in_use() == 3
    assert is_out_of_memory(MemoryError()) and not is_out_of_memory(ValueError())
