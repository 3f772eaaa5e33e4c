"""Files of torch.save are read without unpickling: the same tensors come out, and no program ever runs."""

from __future__ import annotations

import collections
import contextlib
import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_models import make_original

from regard.errors import ModelError
from regard.interop import read
from regard.interop.files.torch_file import TorchFile

SHARED = torch.arange(24.0)


def state_dict() -> dict[str, Any]:
    module = torch.nn.Linear(3, 2)
    state: Any = collections.OrderedDict(module.state_dict(keep_vars=True))  # with parameters and _metadata
    state._metadata = {"": {"version": 1}}
    return state | {
        "half": torch.randn(4).half()[1:3],
        "bfloat16": torch.randn(2, 3, dtype=torch.bfloat16),
        "turned": SHARED.view(4, 6).T,
        "part": SHARED.view(4, 6)[1:3, ::2],
        "number": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
        "doubled": torch.arange(3.0).double(),
    }


@pytest.fixture(params=["zip", "old"])
def form(request: pytest.FixtureRequest) -> bool:
    return request.param == "zip"


def test_tensors(form: bool, tmp_path: Path) -> None:
    state = state_dict()
    torch.save(state, tmp_path / "a.bin", _use_new_zipfile_serialization=form)
    file = TorchFile(tmp_path / "a.bin")
    assert file.keys() == list(state)
    for name, tensor in state.items():
        assert torch.equal(file.get_tensor(name), tensor) and file.get_tensor(name).dtype == tensor.dtype
        assert file.shape(name) == tuple(tensor.shape)
    assert (file.dtype("half"), file.dtype("bfloat16"), file.dtype("number")) == ("F16", "BF16", "I64")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol(protocol: int, tmp_path: Path) -> None:
    state = state_dict()
    torch.save(state, tmp_path / "a.bin", pickle_protocol=protocol)
    file = TorchFile(tmp_path / "a.bin")
    assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in state.items())


def test_a_folder_with_such_weights(tmp_path: Path) -> None:
    """One file, then two with an index; both give what model.safetensors gives."""
    folder = make_original("gpt2", tmp_path / "m").folder
    expected = dict(read(folder).weights())
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(stored, folder / "pytorch_model.bin")

    def check() -> None:
        weights = dict(read(folder).weights())
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in expected)

    check()
    (folder / "pytorch_model.bin").unlink()
    index = {}
    for number in range(2):
        part = dict(list(stored.items())[number::2])
        torch.save(part, folder / f"pytorch_model-{number}.bin", _use_new_zipfile_serialization=bool(number))
        index |= dict.fromkeys(part, f"pytorch_model-{number}.bin")
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}), encoding="utf-8")
    check()


class Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return print, ("unpickled",)


def test_programs_never_run(form: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (Evil(), {"a": Evil()}, {"a": torch.zeros(2), "b": [Evil()]}):
        torch.save(content, tmp_path / "a.bin", _use_new_zipfile_serialization=form)
        with pytest.raises(ModelError, match=r"it asks to call __builtin__\.print, and regard never calls"):
            TorchFile(tmp_path / "a.bin")
    (tmp_path / "a.bin").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ModelError):
        TorchFile(tmp_path / "a.bin")
    assert capsys.readouterr().out == ""


def test_what_is_no_table_of_weights(form: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for content, message in (
        ({"a": 3}, "'a' is not a weight"),
        ([torch.zeros(2)], "not a table of weights"),
        ({"a": {"b": torch.zeros(2)}}, "'a' is not a weight|belong to no weight"),
        ({3: torch.zeros(2)}, "3 is not a weight"),
        ({"a": torch.zeros(2, dtype=torch.complex64)}, "is a ComplexFloatStorage|belong to no weight"),
        (torch.nn.Linear(1, 1), "would call|no storage of numbers|instruction 0x81"),
    ):
        torch.save(content, path, _use_new_zipfile_serialization=form)
        with pytest.raises(ModelError, match=message):
            TorchFile(path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="it is empty"):
        TorchFile(path)


def rewritten(path: Path, change: Callable[[str, bytes], bytes], **options: Any) -> None:
    """Write the archive again with changed contents."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: change(name, archive.read(name)) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def test_archives_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"

    def refused(
        message: str, change: Callable[[str, bytes], bytes] = lambda name, content: content, **options: Any
    ) -> None:
        torch.save({"a": torch.arange(6.0).view(2, 3)}, path)
        rewritten(path, change, **options)
        with pytest.raises(ModelError, match=message):
            TorchFile(path)

    def program(old: bytes, new: bytes) -> Callable[[str, bytes], bytes]:
        return lambda name, content: content.replace(old, new) if name.endswith("data.pkl") else content

    refused("is compressed", compression=zipfile.ZIP_DEFLATED)
    refused("has 4 bytes, and its weight 24", lambda name, content: content[:4] if name.endswith("data/0") else content)
    refused("big-endian", lambda name, content: b"big" if name.endswith("byteorder") else content)
    refused("does not fit into its 6 numbers", program(b"K\x02K\x03\x86", b"K\x09K\x03\x86"))  # the shape
    refused("does not fit into its 6 numbers", program(b"K\x03K\x01\x86", b"K\x04K\x01\x86"))  # the strides
    refused("is a QuantizedStorage", program(b"FloatStorage", b"QuantizedStorage"))
    refused(r"the numbers '\.\./0' are missing", program(b"X\x01\x00\x00\x000", b"X\x04\x00\x00\x00../0"))


def check_case(original: bytes, path: Path, number: int) -> None:
    """Change a few bytes, most often in the program; only a ModelError may come of it."""
    draw = random.Random(number)
    content = bytearray(original)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(min(len(content), 1000) if draw.random() < 0.8 else len(content))
        content[place] = draw.randrange(256)
    if draw.random() < 0.1:
        del content[draw.randrange(len(content)) :]
    path.write_bytes(content)
    with contextlib.suppress(ModelError):
        file = TorchFile(path)
        for name in file.keys():  # noqa: SIM118  # not a dict
            file.get_tensor(name)


def saved(form: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(state_dict(), buffer, _use_new_zipfile_serialization=form)
    return buffer.getvalue()


def test_damaged_files(form: bool, tmp_path: Path) -> None:
    original = saved(form)
    for number in range(300):
        check_case(original, tmp_path / "a.bin", number)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_damaged_files(form: bool, tmp_path: Path) -> None:
    original = saved(form)
    for number in range(300, 10_000):
        check_case(original, tmp_path / "a.bin", number)
