"""The folders of temporary files of tests: in memory where there is room, since a busy disk delays
each write of a store by seconds."""

import contextlib
import os
import pathlib
import shutil
import tempfile

MEMORY = pathlib.Path("/dev/shm")
MIN_FREE = 6 << 30
FOLDER = "sszip."


def parent_of_folders():
    """The folder for folders of tests."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK):
        memory = os.statvfs(MEMORY)
        has_room = memory.f_bavail * memory.f_frsize >= MIN_FREE
        if has_room and not memory.f_flag & os.ST_NOEXEC:
            return MEMORY
    return pathlib.Path(tempfile.gettempdir())


def remove_left_folders(parent):
    """Removes the folders of runs that were killed."""
    for folder in parent.glob(f"{FOLDER}[0-9]*"):
        if not pathlib.Path("/proc", folder.name.removeprefix(FOLDER)).exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def temporary_folder():
    """A folder for temporary files of this process and its children, as TMPDIR."""
    parent = parent_of_folders()
    remove_left_folders(parent)
    folder = parent / f"{FOLDER}{os.getpid()}"
    folder.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
