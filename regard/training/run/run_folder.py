"""The folder of a run while a training run uses it: checked, locked, watched, and with errors that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import ModelError, RegardError, ResourceError, UsageError
from regard.system.files import locked, remove_leftovers
from regard.training.checkpoint.files import disk_full_reason, recovery_advice
from regard.training.parallel.group import Group

MAX_NAME_BYTES = 220  # file systems allow 255, and a folder that is being written has a longer name
CANNOT_WRITE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def run_folder(out: str | Path) -> Path:
    """Return the folder of a run; raise UsageError if no run can be written there. Nothing is created yet."""
    if not str(out):
        raise UsageError("--out is empty: name a folder for the run")
    folder = Path(out)
    if folder.name in ("", ".."):  # such as `--out .`
        folder = folder.resolve()
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{os.fsencode(folder)!r}: the name is not UTF-8, so models there could not be loaded; choose another --out"
        ) from error
    if not folder.name:
        raise UsageError(f"{folder} cannot be the folder of a run: choose another --out")
    if len(os.fsencode(folder.name)) > MAX_NAME_BYTES:
        raise UsageError(f"{folder}: a name may have at most {MAX_NAME_BYTES} bytes; choose a shorter --out")
    with explained_errors(folder):
        if folder.is_symlink() and not folder.exists():
            raise UsageError(f"{folder} is a link to {os.readlink(folder)}, which does not exist: choose another --out")
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file, not a folder: choose another --out")
        _refuse_foreign_folder(folder)
    return folder


def _refuse_foreign_folder(folder: Path) -> None:
    """Raise UsageError for a folder that exists and belongs to something else than a training run."""
    if not folder.exists() or (folder / "training" / "recipe.toml").exists():
        return
    if any(path.name != "training" for path in folder.iterdir()):
        raise UsageError(f"{folder} exists and is not a training run: it is left alone, choose another --out")


class FolderWatch:
    """Notices that a locked folder was moved or removed while a training run uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, folder / "training" / "lock"
        self.identity = self._lock_identity()

    def check(self) -> None:
        """Raise ModelError unless the lock is still the file that this training has locked, at the same path."""
        if self._lock_identity() != self.identity:
            raise ModelError(
                f"{self.folder} was moved or removed while a run was using it, so training has stopped. If it "
                f"was moved, move it back, or give its new name as --out, to continue from its last checkpoint"
            )

    def _lock_identity(self) -> tuple[int, int] | None:
        try:
            status = self.lock.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


@contextmanager
def locked_folder(folder: Path, group: Group) -> Iterator[str | None]:
    """Lock the run's folder so that no other training writes to it; yield the lock entry of a run that crashed."""
    if not group.first:
        yield None
        return
    lock = folder / "training" / "lock"
    created = [path for path in (lock.parent, folder, folder.parent) if not path.exists()]
    try:
        with locked(lock, holder="a training run") as stale:
            remove_leftovers(folder)
            yield stale
    finally:
        for path in created:  # a training run that could not begin leaves no empty folders
            with suppress(OSError):
                path.rmdir()


@contextmanager
def explained_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the operating system and of torch's compiler into ones that say what to do."""
    try:
        yield
    except RegardError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
            raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
        if (reason := disk_full_reason(error)) is not None:
            advice = recovery_advice(folder / "training")
            raise ResourceError(f"cannot write to {folder}: {reason}. {advice}") from error
        if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            first_line = next(iter(str(error).splitlines()), type(error).__name__)
            raise UsageError(
                f"torch's compiler failed ({first_line}); --set training.compile=false trains without it"
            ) from error
        raise
