"""Tensors that are not what they say, or that change after they were attached: an error that names them, never a crash."""

import array
import ctypes
import gc
import mmap
import weakref

import numpy as np
import pytest
from conftest import BF16
from numpy.lib.stride_tricks import as_strided

import megalith

F32 = np.float32


def ones(*shape):
    return np.ones(shape, F32)


class Doubling:
    """y = x + x, on tensors called "x" and "y"."""

    def __init__(self, x, y=None):
        self.kernel = megalith.PersistentKernel(test_mode=True, num_workers=2)
        x = self.kernel.attach_input(x, name="x")
        self.y = np.zeros(x.dims, F32) if y is None else y
        self.kernel.elementwise_add_layer(input_a=x, input_b=x, output=self.kernel.attach_input(self.y, name="y"))

    def run(self):
        self.kernel.compile()
        self.kernel.run_test_mode()
        return self.y


# ---- what __dlpack__ gives ----------------------------------------------------------------------------------------

_api = ctypes.pythonapi
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Managed(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("release", ctypes.c_void_p),
    ]  # fmt: skip


class Fake:
    """Says whatever it is told to."""

    def __init__(self, shape=(8, 64), strides=None, name=b"dltensor", **fields):
        self.array, self.name = ones(8, 64), name
        self.shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        said = dict(data=self.array.ctypes.data, device_type=1, ndim=len(shape), code=2, bits=32, lanes=1)
        said.update(shape=self.shape, strides=self.strides, **fields)
        self.managed = Managed(**{name: value for name, value in said.items() if value is not None})

    def __dlpack__(self, **_):
        return _api.PyCapsule_New(ctypes.addressof(self.managed), self.name, None)


def test_a_true_one_works():
    assert np.all(Doubling(Fake()).run() == 2)
    assert np.all(Doubling(Fake(shape=(7, 64), byte_offset=256)).run() == 2)


@pytest.mark.parametrize(
    "fields,message",
    [
        (dict(data=0), "has no memory"),
        (dict(data=4096), "nothing is mapped at its address"),
        (dict(data=0xDEADBEEFDEAD0000), "nothing is mapped at its address"),
        (dict(byte_offset=2), "between two elements of f32"),
        (dict(byte_offset=2**63), "nothing is mapped at its address"),
        (dict(byte_offset=2**64 - 8), "has no memory"),
        (dict(shape=(2**20, 64)), r"is not all there: only \d+ of its 268435456 bytes are mapped"),
        (dict(shape=(2**40, 2**40)), "more than memory can hold"),
        (dict(shape=(2**63 - 1,)), "more than memory can hold"),
        (dict(shape=(-8, -64)), r"says by DLPack that its shape is \[-8, -64\]"),
        (dict(shape=(0, 64)), "it has no elements"),
        (dict(shape=(0, 2**62, 2**62)), "it has no elements"),
        (dict(shape=()), "is a single number, without dimensions"),
        (dict(ndim=2**30), "1073741824 dimensions"),
        (dict(ndim=-1), "-1 dimensions"),
        (dict(strides=(0, 0)), "is not row-major"),
        (dict(strides=(-64, -1)), "is not row-major"),
        (dict(strides=(1, 1)), "is not row-major"),
        (dict(strides=(2**62, 1)), "is not row-major"),
        (dict(device_type=10), "lies on the device 10 of DLPack"),
        (dict(lanes=4), "the dtype of DLPack, 2 of 32 bits, 4 at a time, is not known"),
        (dict(code=99), "the dtype of DLPack, 99 of 32 bits"),
        (dict(bits=64), "the dtype f64 is not known"),
        (dict(name=b"something"), 'a capsule called "something"'),
        (dict(name=b"used_dltensor"), "a capsule that was taken before"),
        (dict(name=None), 'a capsule called ""'),
    ],
)
def test_a_lie(fields, message):
    with pytest.raises(megalith.UserError, match=f'the tensor "x".*{message}'):
        Doubling(Fake(**fields)).run()


def test_a_shape_that_is_missing():
    fake = Fake()
    fake.managed.shape = None
    with pytest.raises(megalith.UserError, match='the tensor "x" says by DLPack that it has 2 dimensions, and not which'):
        Doubling(fake)


class Dlpack:
    """Whose __dlpack__ is a function of nothing."""

    def __init__(self, give):
        self.give = give

    def __dlpack__(self, **_):
        return self.give()


def test_a_capsule_that_is_handed_out_twice():
    def renamed():
        _api.PyCapsule_SetName(again, b"dltensor")
        return again

    numpys = ones(8, 64).__dlpack__()
    fake = Fake()
    again = fake.__dlpack__()
    for give, message in (
        (lambda: numpys, "a capsule that was taken before, want a new one for each call"),
        (renamed, "gave what is attached already, want a new capsule for each call"),
        (lambda: Fake.__dlpack__(fake), "gave what is attached already"),
    ):
        kernel = megalith.PersistentKernel(test_mode=True)
        tensor = Dlpack(give)
        kernel.attach_input(tensor, name="first")
        with pytest.raises(megalith.UserError, match=f'the tensor "second": its __dlpack__ .*{message}'):
            kernel.attach_input(tensor, name="second")
        kernel.finalize()
        gc.collect()


def test_what_gives_no_capsule():
    def fails():
        raise OSError("gone")

    for tensor, message in (
        (Dlpack(lambda: None), "gave NoneType, want a capsule"),
        (Dlpack(fails), "cannot be taken: OSError: gone"),
        (type("T", (), {"__dlpack__": 5})(), "cannot be taken: TypeError"),
    ):
        with pytest.raises(megalith.UserError, match=f'the tensor "x".*{message}'):
            Doubling(tensor)
    fake = Fake()
    fake.__class__ = type("Elsewhere", (Fake,), {"__dlpack_device__": lambda self: (2, 0)})
    with pytest.raises(megalith.UserError, match=r'the tensor "x" lies on the device \(2, 0\) as __dlpack_device__ has it'):
        Doubling(fake)


# ---- arrays -------------------------------------------------------------------------------------------------------


class Made:
    __array_interface__ = {"data": (4096, False), "shape": (8, 64), "typestr": "<f4", "version": 3}


@pytest.mark.parametrize(
    "made,message",
    [
        (lambda: np.broadcast_to(F32(1), (8, 64)), "is not row-major"),
        (lambda: ones(8, 64)[::-1], "is not row-major"),
        (lambda: as_strided(ones(8, 64), (8, 64), (4, 4)), "is not row-major"),
        (lambda: as_strided(ones(8, 64), (2**16, 64), (256, 4)), "reaches beyond what it is a view of: that has 2048 bytes"),
        (lambda: as_strided(ones(8, 64)[4:], (8, 64), (256, 4)), "reaches beyond what it is a view of"),
        (lambda: as_strided(ones(8, 64), (2**40, 2**20), (2**22, 4)), "reaches beyond what it is a view of"),
        (lambda: np.ctypeslib.as_array(ctypes.cast(4096, ctypes.POINTER(ctypes.c_float)), (8, 64)), "nothing is mapped"),
        (lambda: np.asarray(Made()), "nothing is mapped"),
        (lambda: np.zeros(2049, np.uint8)[1:].view(F32).reshape(8, 64), "between two elements of f32"),
        (lambda: np.ones((8, 64), ">f4"), "the dtype >f4 is not known"),
        (lambda: np.ones((8, 64), object), "the dtype object is not known"),
        (lambda: np.zeros((8, 64), [("a", "f4")]), "the dtype void32 is not known"),
        (lambda: np.ma.ones((8, 64), F32), "is a masked array"),
        (lambda: np.array(3, F32), "is a single number, without dimensions"),
        (lambda: ones(0, 64), "it has no elements"),
    ],
)
def test_an_array_that_cannot_be_taken(made, message):
    with pytest.raises(megalith.UserError, match=f'the tensor "x".*{message}'):
        Doubling(made()).run()


def read_only(kind):
    if kind == "flag":
        made = ones(8, 64)
        made.flags.writeable = False
        return made
    if kind == "bytes":
        return np.frombuffer(bytes(2048), F32).reshape(8, 64)
    return np.ndarray((8, 64), F32, buffer=mmap.mmap(-1, 4096, prot=mmap.PROT_READ))


@pytest.mark.parametrize("kind", ["flag", "bytes", "pages"])
def test_a_read_only_output(kind):
    with pytest.raises(megalith.UserError, match='the tensor "y" is read-only, but this layer writes it'):
        Doubling(ones(8, 64), read_only(kind))


def test_pages_that_cannot_be_written_whatever_the_tensor_says():
    pages = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)
    fake = Fake(data=np.frombuffer(pages, np.uint8).ctypes.data)
    with pytest.raises(megalith.UserError, match='the memory of the tensor "y".*its pages are read-only'):
        Doubling(ones(8, 64), fake).run()


def test_an_owner_that_is_gone():
    x = ones(8, 64)
    doubling = Doubling(weakref.proxy(x))
    del x
    gc.collect()
    assert np.all(doubling.run() == 2)


# ---- what changes after it was attached ---------------------------------------------------------------------------


def resized(holder):
    holder["x"].resize((2, 2), refcheck=False)


def owned(view):
    """A large array, whose memory goes back to the system when it is let go, and a part of it."""
    large = ones(4096, 64)
    return {"x": large}, view(large)


def mapped():
    pages = mmap.mmap(-1, 4096)
    return {"x": pages}, np.ndarray((8, 64), F32, buffer=pages)


def bytes_of(kind):
    content = bytearray(2048) if kind == "bytearray" else array.array("f", [0] * 512)
    return {"x": content}, np.ndarray((8, 64), F32, buffer=content)


CHANGES = {
    "array": (lambda: owned(lambda large: large), resized),
    "view": (lambda: owned(lambda large: large[10:18]), resized),
    "grown": (lambda: owned(lambda large: large), lambda h: h["x"].resize((1 << 16, 64), refcheck=False)),
    "closed": (mapped, lambda h: h["x"].close()),
    "remapped": (mapped, lambda h: h["x"].resize(1 << 20)),
    "bytearray": (lambda: bytes_of("bytearray"), lambda h: h["x"].extend(bytes(1 << 24))),
    "bytearray.clear": (lambda: bytes_of("bytearray"), lambda h: h["x"].clear()),
    "array.array": (lambda: bytes_of("array"), lambda h: h["x"].extend([0] * (1 << 22))),
}


@pytest.mark.parametrize("where", ["compile", "run_test_mode"])
@pytest.mark.parametrize("role", ["x", "y"])
@pytest.mark.parametrize("change", CHANGES)
def test_memory_that_changes(change, role, where):
    make, do = CHANGES[change]
    holder, tensor = make()
    doubling = Doubling(tensor) if role == "x" else Doubling(np.zeros(tensor.shape, F32), tensor)
    if where == "run_test_mode":
        doubling.run()
    do(holder)
    with pytest.raises(megalith.UserError, match=rf'\[{where}\] the memory of the tensor "{role}" (has changed|is gone)'):
        doubling.run() if where == "compile" else doubling.kernel.run_test_mode()


def test_an_array_may_get_another_shape():
    x = ones(8, 64)
    doubling = Doubling(x)
    doubling.run()
    x.shape = (64, 8)
    doubling.kernel.run_test_mode()
    assert np.all(doubling.y == 2)


def test_a_meta_tensor_that_changes():
    step, tokens = np.zeros(4, np.int32), np.zeros((1, 64), np.int64)
    kernel = megalith.PersistentKernel(test_mode=True, meta_tensors=dict(step=step, tokens=tokens))
    w, i, y = (
        kernel.attach_input(a, name=n)
        for a, n in ((ones(10, 64), "w"), (np.zeros((4, 1), np.int64), "i"), (ones(4, 64), "y"))
    )
    kernel.embed_layer(input=i, weight=w, output=y)
    kernel.compile()
    tokens.resize((1, 1), refcheck=False)
    with pytest.raises(megalith.UserError, match=r'\[run_test_mode\] the memory of the tensor "tokens" has changed'):
        kernel.run_test_mode()


class Storage:
    """As much of a torch tensor as is looked at."""

    __module__ = "torch"

    class Device:
        type, index = "cpu", None

    device, dtype = Device(), "torch.float32"

    def __init__(self, content):
        self.content = content

    @property
    def shape(self):
        return self.content.shape

    def data_ptr(self):
        return self.content.ctypes.data if self.content is not None else 0

    def stride(self):
        return tuple(stride // 4 for stride in self.content.strides)


def test_a_storage_that_is_replaced():
    tensor = Storage(ones(8, 64))
    doubling = Doubling(tensor)
    doubling.run()
    kept, tensor.content = tensor.content, ones(8, 64)
    with pytest.raises(megalith.UserError, match='the memory of the tensor "x" has changed since it was attached'):
        doubling.kernel.run_test_mode()
    tensor.content = kept
    doubling.kernel.run_test_mode()


def test_a_storage_that_was_freed():
    tensor = Storage(ones(8, 64))
    tensor.data_ptr = lambda: 0
    with pytest.raises(megalith.UserError, match='the tensor "x" has no memory: its storage was freed'):
        Doubling(tensor)


def test_what_only_looks_like_torch():
    with pytest.raises(megalith.UserError, match='"x" is a Size, which is no tensor'):
        Doubling(type("Size", (), {"__module__": "torch"})())


# ---- addresses, for GraphRunner -----------------------------------------------------------------------------------


def test_addresses_that_are_wrong():
    graph = megalith.Graph("g")
    graph.add("copy", "c", [graph.state("x", "f32", [8, 64])])
    compiled, x = megalith.compile(graph), ones(8, 64)
    for address in (8, 4096, 2**47, 2**64 - 4096):
        with pytest.raises(megalith.UserError, match='the memory of the tensor "x".*is not there'):
            megalith.GraphRunner(graph, compiled, {"x": (address, False, 8, -1)})
    runner = megalith.GraphRunner(graph, compiled, {"x": (x.ctypes.data, False, 8, -1)})
    runner.run()
    for address in (0, 8, 2**47, 2**64 - 8):
        with pytest.raises(megalith.UserError, match='the memory that "c" is to be copied to'):
            runner.read_activation(1, address)
    y = np.zeros_like(x)
    runner.read_activation(1, y.ctypes.data)
    assert np.all(y == 1)


def test_a_kernel_of_another_graph():
    graph = megalith.Graph("g")
    graph.add("copy", "c", [graph.state("x", "f32", [8, 64])])
    compiled, x = megalith.compile(graph), np.ones((16, 64), BF16)
    graph.add("copy", "d", [graph.find("c")])
    with pytest.raises(megalith.UserError, match='the kernel "g" was not compiled from the graph "g" as it is now'):
        megalith.GraphRunner(graph, compiled, {"x": (x.ctypes.data, False, 8, -1)})
