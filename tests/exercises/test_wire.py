"""The grader's messages: everything honest comes back equal, everything else is refused without harm."""
import io
import json
import pickle
import random

import numpy as np
import pytest
import torch

from course_lib.exercises.running.wire import DTYPES, Opaque, WireError, pack, unpack

SHAPES = [(), (0,), (1,), (3, 0, 2), (2, 3, 5)]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_tensors_come_back_bit_for_bit(dtype):
    for shape in SHAPES:
        size = torch.Size(shape).numel() * dtype.itemsize
        raw = torch.randint(0, 2 if dtype is torch.bool else 256, (size,), dtype=torch.uint8)
        x = raw.view(dtype).reshape(shape)
        y = unpack(pack(x))
        assert y.shape == x.shape and y.dtype == dtype
        assert torch.equal(y.reshape(-1).view(torch.uint8), x.reshape(-1).view(torch.uint8))


def test_views_parameters_and_subclasses_become_plain_tensors():
    class Liar(torch.Tensor):
        def __eq__(self, other):
            return True

    x = torch.arange(12.).reshape(3, 4)
    assert torch.equal(unpack(pack(x.T)), x.T)
    assert torch.equal(unpack(pack(x[:1].expand(5, 4))), x[:1].expand(5, 4))
    back = unpack(pack((torch.nn.Parameter(x), x.as_subclass(Liar))))
    assert [type(b) for b in back] == [torch.Tensor, torch.Tensor]
    assert back[0].requires_grad and not back[1].requires_grad


def test_numbers_texts_and_containers():
    value = {"a": [1, -2, 10 ** 400, 0.1, -0.0, float("inf"), True, None], 3: ("x", 1 + 2j, torch.bfloat16),
             "ü\n": []}
    back = unpack(pack(value))
    assert back == value and str(back["a"][4]) == "-0.0" and type(back[3]) is tuple
    assert (np.isnan(unpack(pack(float("nan")))) and unpack(pack(np.float32(0.5))) == 0.5
            and unpack(pack(np.int16(7))) == 7)
    assert unpack(pack("\ud800")) == "?"


def test_numpy_arrays_stay_arrays():
    for x in (np.arange(6).reshape(2, 3), np.array(1.5, "float32"), np.array([True, False]),
              np.arange(4, dtype=">i4")):
        y = unpack(pack(x))
        assert type(y) is np.ndarray and y.shape == x.shape and (y == x).all()


def test_anything_else_is_only_its_name():
    class Rude:
        def __repr__(self):
            raise RuntimeError

    opened = unpack(pack([Rude(), lambda: 1, io.StringIO(), torch.zeros(2, device="meta"),
                          torch.eye(2).to_sparse(), np.array(["text"])]))
    assert all(type(o) is Opaque for o in opened) and opened[0].type == "Rude"


def test_what_is_too_large_is_not_sent():
    loop = []
    loop.append(loop)
    for value in (loop, torch.zeros(1).expand(1 << 40), [0] * 300_000, 1 << 100_000, torch.zeros(1000)):
        with pytest.raises(WireError):
            pack(value, limit=1000)


def message(tree, blobs=b"") -> bytes:
    header = json.dumps(tree).encode()
    return b"WIRE" + len(header).to_bytes(4, "little") + header + blobs


@pytest.mark.parametrize("forged", [
    b"", b"WIRE", pickle.dumps(print), b"WIRE\xff\xff\xff\xff{}", message(["T", "float32", ["1000000000000"], None]),
    message(["T", "float32", ["2"], None], b"123"), message(["T", "float32", ["1"], None], b"12345"), message(["T", "float32", ["-1"], None]),
    message(["T", "object", ["1"], None], b"12345678"), message(["T", "float32", ["99999999"] * 16, None]), message(["T", "float32", "1", None]),
    message(["T", "float32", ["0"] * 400, None]), message(["N", "O", ["1"]], b"12345678"), message(["x", 1]), message([["s"]]),
    message(["i", "1e9"]), message(["i", "9" * 5000]), message(["f", "x"]), message(["f", "0x1p99999"]), message(["s", None]),
    message(["d", [["l", []]]]), message(["d", [[["l", []], None]]]), message(["y", "torch.load"]), message(["y", "__class__"]),
    message(3), message({"a": None}), message(["s"]), message(["l", [None] * 300_000]),
    b"WIRE" + (200_000).to_bytes(4, "little") + b"[" * 200_000, b"WIRE\x03\x00\x00\x00NaN", ], ids=range(30))
def test_a_forged_message_is_refused(forged):
    with pytest.raises(WireError):
        unpack(forged)


def test_a_byte_of_a_boolean_tensor_is_a_boolean():
    x = unpack(message(["T", "bool", ["3"], None], b"\x00\xff\x07"))
    assert x.tolist() == [False, True, True] and x.view(torch.uint8).tolist() == [0, 1, 1]


def test_garbled_messages_are_refused_or_read_as_plain_data():
    rng = random.Random(0)
    good = pack({"a": (torch.randn(3, 4), [1, 2.5, "x"], None)})
    for _ in range(3000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            unpack(bytes(bad[:rng.randint(0, len(bad))] if rng.random() < .3 else bad))
        except WireError:
            pass
