"""Which files a source names: one, a folder, or a pattern with * or ?; rows in many files are read in their order."""

from __future__ import annotations

from glob import glob
from pathlib import Path

from ..core.errors import InvalidInput
from ..core.names import visible

TEXT = frozenset({".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"})
BINARY = frozenset({".parquet", ".feather", ".arrow", ".npy", ".npz"})


def suffix_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return "".join(suffixes) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def is_many(source: str | Path) -> bool:
    """Whether this is a folder or a pattern rather than a file."""
    path = Path(source)
    return not path.is_file() and (path.is_dir() or any(sign in str(source) for sign in "*?"))


def files_of(source: str | Path) -> list[str]:
    """The files, sorted by name; a folder's and a pattern's are those that can be read."""
    text, shown = str(source), visible(str(source))
    if not is_many(source):
        if not Path(text).is_file():
            raise InvalidInput(f"cannot read '{shown}': there is no such file")
        return [text]
    found = sorted(glob(str(Path(text) / "*") if Path(text).is_dir() else text, recursive=True))
    files = [file for file in found if suffix_of(Path(file)) in TEXT | BINARY and Path(file).is_file()]
    if not files:
        kinds = ", ".join(sorted(TEXT | BINARY))
        raise InvalidInput(f"'{shown}' names no file that can be read; file types are {kinds}")
    return files
