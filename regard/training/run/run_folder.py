"""The folder of a run while a training uses it: locked, cleaned, and with errors that say what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import RegardError, ResourceError, UsageError
from regard.files import locked, remove_leftovers
from regard.machine import setting
from regard.training.checkpoint.files import disk_full_reason, recovery_advice
from regard.training.parallel.group import Group
from regard.training.parallel.launch import MEETING


@contextmanager
def locked_folder(folder: Path, group: Group) -> Iterator[str | None]:
    """Lock the run's folder so that no other training writes to it; yield the lock entry of a training that crashed."""
    if not group.first:
        yield None
        return
    lock = folder / "training" / "lock"
    created = [path for path in (lock.parent, folder, folder.parent) if not path.exists()]
    try:
        with locked(lock, holder="a training") as stale:
            remove_leftovers(folder)
            for path in lock.parent.glob(".meeting-*"):
                if str(path.absolute()) != setting(MEETING):
                    path.unlink(missing_ok=True)
            yield stale
    finally:
        for path in created:  # a training that could not begin leaves no empty folders
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
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
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
