"""Files and folders that are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dragoman.config import InputError

try:
    import fcntl
except ImportError:  # not a Unix: two processes in one folder aren't noticed there
    fcntl = None  # type: ignore[assignment]

_HOLDER = re.compile(r"\..+\.[a-z0-9_]{8}|\.step-\d+")
"""What `replacing` works in, as `tempfile.mkdtemp` names it, and checkpoints being removed."""
_OLD = "old"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Yields whether a folder is this process's alone, until the end of the block or a kill."""
    if fcntl is None:
        yield True
        return
    descriptor, mine = os.open(folder, os.O_RDONLY), True
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mine = False
        except OSError:  # a file system without locks
            pass
        yield mine
    finally:
        os.close(descriptor)


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Keeps other processes that ask for it out of a folder.

    Raises:
        InputError: if another one holds it.
    """
    with _locked(folder) as mine:
        if not mine:
            raise InputError(f"{folder}: another process is at work there", "wait for its end")
        yield


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a name to write a file or a folder under; it takes the place of path when whole.

    Nothing that is there is touched before that, nor if the block raises. Folders missing above
    path are made, and go again if the block raises.
    """
    made = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    partial = holder / path.name
    try:
        with _locked(holder):
            yield partial
        for written in (*partial.rglob("*"), partial) if partial.is_dir() else (partial,):
            _sync(written)
        if partial.is_dir() and path.exists():  # a folder can't be renamed onto another
            path.rename(holder / _OLD)
        partial.replace(path)
        _sync(path.parent)
    except BaseException:
        if (holder / _OLD).exists() and not path.exists():
            (holder / _OLD).rename(path)
        shutil.rmtree(holder, ignore_errors=True)
        for parent in made:
            with suppress(OSError):  # another process may have put something there
                parent.rmdir()
        raise
    shutil.rmtree(holder)


def remove_leftovers(folder: Path) -> None:
    """Removes what a kill in the middle of `replacing` left in a folder and in those below it.

    A folder that was out of the way for a new one, which never came, is put back.
    """
    for path in [path for path in folder.rglob(".*") if _HOLDER.fullmatch(path.name)]:
        name = path.name[1:]
        old, target = path / _OLD, path.with_name(name.rpartition(".")[0] or name)
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(path, ignore_errors=True)


def remove_abandoned(path: Path) -> None:
    """Removes what killed processes left of what they would have put at a path."""
    for holder in path.parent.glob(f".{glob.escape(path.name)}.*"):
        if _HOLDER.fullmatch(holder.name) and holder.is_dir() and os.listdir(holder) == [path.name]:
            with _locked(holder) as mine:
                if mine:
                    shutil.rmtree(holder, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes a whole file or nothing."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
