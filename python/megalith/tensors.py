"""Tensors of other libraries, without a copy: torch, numpy (with ml_dtypes' bfloat16), anything with ``__dlpack__``."""

from __future__ import annotations

import math
import sys
from typing import Any, Optional, Sequence, Tuple

from megalith import _megalith
from megalith._megalith import UserError
from megalith.arguments import shown
from megalith.dims import check_dims
from megalith.sources import Source, TorchSource, source_of_array

__all__ = ["DeviceTensor", "TensorMemory", "dtype_name", "memory_of", "to_device"]

# What other libraries call the element types that Megalith knows.
_NAMES = {
    "bf16": "bf16", "bfloat16": "bf16",
    "f16": "f16", "float16": "f16", "half": "f16",
    "f32": "f32", "float32": "f32", "float": "f32",
    "i8": "i8", "int8": "i8",
    "i32": "i32", "int32": "i32", "int": "i32",
    "i64": "i64", "int64": "i64", "long": "i64",
}  # fmt: skip


def dtype_name(dtype: Any) -> str:
    """Megalith's name of an element type: ``"bf16"``, ``"f16"``, ``"f32"``, ``"i8"``, ``"i32"`` or ``"i64"``.

    Takes such a name, a type of torch, numpy or ml_dtypes, or one of ``megalith.mirage``. UserError for others.
    """
    try:
        text = getattr(dtype, "__name__", None) or str(dtype)
    except Exception:
        text = shown(dtype)
    name = _NAMES.get(text.rpartition(".")[2]) if isinstance(text, str) else None
    if name is None:
        called = shown(text).strip("'")
        raise UserError(f"the dtype {called} is not known; known are bf16, f16, f32, i8, i32 and i64")
    return name


def numpy_dtype(name: str) -> Any:
    """numpy's type for one of Megalith's names; that of bf16 is ml_dtypes'."""
    import numpy

    if name != "bf16":
        return numpy.dtype({"f16": "float16", "f32": "float32", "i8": "int8", "i32": "int32", "i64": "int64"}[name])
    try:
        import ml_dtypes
    except ImportError:
        raise UserError("bf16 as a numpy array needs the package ml_dtypes: pip install ml_dtypes") from None
    return numpy.dtype(ml_dtypes.bfloat16)


class TensorMemory:
    """Where a tensor lies: address, shape, dtype, device, and which one of those (-1: of no matter). Holds on to its
    owner, so the memory stays; ``source`` is what may move it all the same, None if nothing can."""

    __slots__ = ("address", "shape", "dtype", "device", "device_id", "writable", "owner", "source")

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        dtype: str,
        device: str,
        writable: bool,
        owner: Any,
        device_id: int = -1,
        source: Optional[Source] = None,
    ):
        self.address = address
        self.shape: Tuple[int, ...] = tuple(shape)
        self.dtype = dtype
        self.device = device
        self.device_id = device_id
        self.writable = writable
        self.owner = owner
        self.source = source

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _megalith.dtype_bytes(self.dtype)


class DeviceTensor:
    """A tensor on the GPU, for scripts without a library that owns one. ``numpy()`` copies it back.

    ``megalith.to_device(array)`` makes one. It is attached like any other tensor.
    """

    def __init__(self, shape: Sequence[int], dtype: Any):
        import numpy

        self.shape: Tuple[int, ...] = check_dims("[DeviceTensor] it", shape)
        try:
            self.dtype = numpy.dtype(dtype)
        except Exception as error:
            raise UserError(f"[DeviceTensor] dtype is {shown(dtype)}: {error}") from None
        self._array = _megalith.DeviceArray(math.prod(self.shape) * self.dtype.itemsize)

    @property
    def address(self) -> int:
        return self._array.address

    def copy_from(self, array: Any) -> None:
        """Copies a numpy array of the same shape and dtype to the GPU."""
        import numpy

        source = numpy.ascontiguousarray(array)
        if source.shape != self.shape or source.dtype != self.dtype:
            raise UserError(f"the array is {source.dtype} {source.shape}, want {self.dtype} {self.shape}")
        self._array.upload(source.ctypes.data)

    def numpy(self) -> Any:
        """A copy in the host's memory."""
        import numpy

        array = numpy.empty(self.shape, self.dtype)
        self._array.download(array.ctypes.data)
        return array

    def __repr__(self) -> str:
        return f"<device tensor {self.dtype} {list(self.shape)}>"


def to_device(array: Any) -> DeviceTensor:
    """A copy of a numpy array in the GPU's memory. SystemError if there is no GPU."""
    if not _is_numpy(array):
        raise UserError(f"[to_device] it is a {type(array).__name__}, want a numpy array")
    tensor = DeviceTensor(array.shape, array.dtype)
    tensor.copy_from(array)
    return tensor


def _is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides (in elements) are those of a row-major tensor; dimensions of size 1 may have any."""
    want = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != want:
            return False
        want *= size
    return True


def _is_numpy(tensor: Any) -> bool:
    """By its type: a weak reference's proxy says that it is an array, too, and holds none."""
    numpy = sys.modules.get("numpy")  # whoever has an array has imported it
    return numpy is not None and issubclass(type(tensor), numpy.ndarray)


def _numpy_memory(array: Any, name: str) -> Tuple[TensorMemory, Sequence[int]]:
    if hasattr(array, "mask"):
        raise UserError(f'the tensor "{name}" is a masked array, and masks are not looked at: attach .filled() of it')
    size = array.itemsize
    strides = [stride // size if stride % size == 0 else -1 for stride in array.strides]
    dtype = array.dtype.name if array.dtype.isnative else str(array.dtype)  # ">f4" is called float32 as well
    writable = array.flags.writeable
    source = source_of_array(array)
    return TensorMemory(array.ctypes.data, array.shape, dtype, "cpu", writable, array, -1, source), strides


def _torch_memory(tensor: Any) -> Tuple[TensorMemory, Sequence[int]]:
    device, index = tensor.device.type, tensor.device.index
    device_id = -1 if index is None else index
    memory = TensorMemory(tensor.data_ptr(), tensor.shape, str(tensor.dtype), device, True, tensor, device_id)
    if memory.dtype.rpartition(".")[2] in _NAMES:
        memory.source = TorchSource(tensor, _megalith.dtype_bytes(dtype_name(memory.dtype)))
    return memory, tensor.stride()


def _dlpack_memory(tensor: Any, name: str) -> Tuple[TensorMemory, Sequence[int]]:
    try:
        capsule = tensor.__dlpack__(max_version=(1, 0))  # which says what is read-only
    except TypeError:
        capsule = tensor.__dlpack__()
    view = _megalith.TensorView(capsule, name)
    device = getattr(tensor, "__dlpack_device__", None)
    says = tuple(int(part) for part in device()) if device is not None else view.where
    if says != view.where:
        raise UserError(
            f'the tensor "{name}" lies on the device {says} as __dlpack_device__ has it, and on {view.where} as '
            "__dlpack__ has it"
        )
    owner = (view, tensor)
    memory = TensorMemory(view.address, view.shape, view.dtype, view.device, view.writable, owner, view.device_id)
    return memory, view.strides


def _memory_as_said(tensor: Any, name: str) -> Tuple[TensorMemory, Optional[Sequence[int]]]:
    """The memory of a tensor and its strides in elements, as its library has them."""
    if isinstance(tensor, DeviceTensor):
        return TensorMemory(tensor.address, tensor.shape, str(tensor.dtype), "cuda", True, tensor), None
    if _is_numpy(tensor):
        return _numpy_memory(tensor, name)
    try:
        if type(tensor).__module__.partition(".")[0] == "torch" and hasattr(tensor, "data_ptr"):
            return _torch_memory(tensor)
        if hasattr(tensor, "__dlpack__") and not isinstance(tensor, type):
            return _dlpack_memory(tensor, name)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f'the tensor "{name}" cannot be taken: {type(error).__name__}: {error}') from error
    raise UserError(
        f'"{name}" is a {type(tensor).__name__}, which is no tensor: want one of torch or numpy, or anything with '
        "__dlpack__"
    )


def memory_of(tensor: Any, name: str) -> TensorMemory:
    """The memory of a tensor that is called ``name`` in messages.

    UserError for what is no tensor, is not row-major, has an element type that Megalith does not know, lies neither in
    the host's memory nor on a GPU, or reaches beyond the memory of what it is a view of.
    """
    memory, strides = _memory_as_said(tensor, name)
    try:
        memory.dtype = dtype_name(memory.dtype)
    except UserError as error:
        raise UserError(f'the tensor "{name}": {error}') from None
    if memory.device not in ("cpu", "cuda"):
        raise UserError(f'the tensor "{name}" lies on the device {memory.device}; known are cpu and cuda')
    if not memory.shape:
        raise UserError(f'the tensor "{name}" is a single number, without dimensions: attach .reshape(1) of it')
    if math.prod(memory.shape) == 0:
        raise UserError(f'the tensor "{name}" has the shape {list(memory.shape)}: it has no elements')
    if strides is not None and not _is_row_major(memory.shape, strides):
        raise UserError(
            f'the tensor "{name}" is not row-major: its shape is {list(memory.shape)}, its strides are '
            f"{list(strides)}; "
            "attach .contiguous() (torch) or numpy.ascontiguousarray() of it"
        )
    if memory.address == 0:
        raise UserError(f'the tensor "{name}" has no memory: its storage was freed')
    if memory.source is not None:
        begin, nbytes = memory.source.place
        if not (begin <= memory.address and memory.address + memory.nbytes <= begin + nbytes):
            raise UserError(
                f'the tensor "{name}" of shape {list(memory.shape)} reaches beyond what it is a view of: that has '
                f"{nbytes} bytes"
            )
    return memory
