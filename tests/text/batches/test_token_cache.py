"""Arrays kept on disk: whole and of the right key, or made anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.text.batches import token_cache as store
from regard.text.batches.token_cache import Arrays, cache_key, cached_arrays, read_arrays

ARRAYS = {
    "tokens": np.arange(100, dtype=np.int32).reshape(20, 5),
    "lengths": np.array([2**40, -1]),
    "limits": np.array([0.25, 1e300]),
    "none": np.empty(0, np.int32),
}


class Maker:
    """Counts how often it had to make the arrays."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Arrays:
        self.made += 1
        return ARRAYS


def same(found: Arrays) -> bool:
    return list(found) == list(ARRAYS) and all(
        found[name].dtype == values.dtype and np.array_equal(found[name], values) for name, values in ARRAYS.items()
    )


def test_made_once(tmp_path: Path) -> None:
    make = Maker()
    for _ in range(3):
        found = cached_arrays(tmp_path / "new" / "cache", "k", make)
        assert same(found)
        assert isinstance(found["tokens"], np.memmap)
    assert make.made == 1
    assert not [path for path in (tmp_path / "new/cache").iterdir() if path.name.startswith(".")]
    assert same(cached_arrays(None, "", make))
    assert make.made == 2


def test_another_key_makes_them_anew(tmp_path: Path) -> None:
    make = Maker()
    for key in ("one", "two", "two", "one"):
        assert same(cached_arrays(tmp_path, key, make))
    assert make.made == 3


def test_what_is_written_into_them_never_reaches_the_file(tmp_path: Path) -> None:
    found = cached_arrays(tmp_path, "k", Maker())
    found["tokens"][0] = 99
    again = read_arrays(tmp_path, "k")
    assert again is not None
    assert same(again)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[17] ^= 1
    path.write_bytes(content)


def change(**values: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        manifest["arrays"]["tokens"] |= values
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return damage


def rename(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder.parent / "tokens").write_bytes((folder / "tokens").read_bytes())
    (folder / "manifest.json").write_text(text.replace('"tokens"', '"../tokens"'))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda folder: flip(folder / "tokens"),
    "cut off": lambda folder: (folder / "tokens").write_bytes((folder / "tokens").read_bytes()[:-1]),
    "empty": lambda folder: (folder / "tokens").write_bytes(b""),
    "missing": lambda folder: (folder / "tokens").unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "half a manifest": lambda folder: (folder / "manifest.json").write_bytes(
        (folder / "manifest.json").read_bytes()[:99]
    ),
    "not the manifest": lambda folder: (folder / "manifest.json").write_bytes(b"[]"),
    "no arrays": lambda folder: (folder / "manifest.json").write_bytes(b'{"key": "k", "arrays": 3}'),
    "another shape": change(shape=[21, 5]),
    "no shape": change(shape=None),
    "another type": change(type="<u4"),
    "objects": change(type="|O"),
    "outside": rename,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_costs_time_and_nothing_more(damage: str, tmp_path: Path) -> None:
    make, folder = Maker(), tmp_path / "cache"
    cached_arrays(folder, "k", make)
    DAMAGES[damage](folder)
    assert read_arrays(folder, "k") is None
    for _ in range(2):
        assert same(cached_arrays(folder, "k", make))
    assert make.made == 2


def test_a_write_that_is_cut_off_leaves_nothing_to_believe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old manifest goes first, and the new one comes last."""
    cached_arrays(tmp_path, "k", Maker())

    def stop(path: Path, content: bytes) -> None:
        if path.name == "lengths":
            raise KeyboardInterrupt
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(store, "replace_file", stop)
        with pytest.raises(KeyboardInterrupt):
            cached_arrays(tmp_path, "other", Maker())
    assert not (tmp_path / "manifest.json").exists()


def test_a_folder_that_cannot_be_written_is_no_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="tokens cannot be cached there"):
        assert same(cached_arrays(tmp_path / "file" / "cache", "k", Maker()))


def test_keys() -> None:
    assert cache_key("a", b"bc") == cache_key("a", "bc") != cache_key("ab", "c")
    assert cache_key("a") != cache_key("a", "")
    assert len({cache_key("\ud800"), cache_key("\ufffd"), cache_key("?")}) == 3  # half a surrogate pair is fine
