"""The tensors of a PersistentKernel and the graph that its layers make of them: what layers stand on."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Optional, Sequence, Tuple

from megalith import _megalith, arguments, sources
from megalith._megalith import UserError
from megalith.dims import check_dims
from megalith.drafts import Drafting
from megalith.dtensor import DTensor, Storage
from megalith.gates import Gate
from megalith.layer import Layer
from megalith.meta_tensors import MetaTensors
from megalith.parameters import whole
from megalith.strides import check_strides
from megalith.tensors import TensorMemory, dtype_name, memory_of


@functools.lru_cache(maxsize=1)
def _gpu_generation() -> int:
    try:
        architecture = _megalith.cuda_devices()[0].architecture
    except (_megalith.SystemError, IndexError):
        return 90
    return int("".join(c for c in architecture if c.isdigit()))


class KernelTensors:
    """Attached and new tensors, by name and by the memory that they share; the graph, in the order of the layers."""

    meta_tensors: MetaTensors
    mode: str
    spec_decode_config: Any
    test_mode: bool
    max_seq_length: int
    max_num_batched_requests: int
    max_num_batched_tokens: int
    max_num_pages: int
    page_size: int

    def __init__(self, target: Optional[str]) -> None:
        self._target = target
        self._graph = _megalith.Graph("test")
        self._tensors: Dict[str, DTensor] = {}
        self._places: Dict[Tuple[int, Tuple[int, ...], str], Storage] = {}
        self._internals: Dict[str, Any] = {}
        self._num_layers = 0
        self._gates: List[Gate] = []
        self._drafting: Optional[Drafting] = None
        # What meta tensors may hold, as the layers need it (meta.py).
        self._paged: Dict[Tuple[int, int, int], Tuple[int, int, int, Any]] = {}
        self._paged_limits: List[Tuple[int, int, int]] = []
        self._step_limits: List[Tuple[DTensor, int]] = []
        self._token_limits: List[Tuple[DTensor, int, Optional[DTensor], Optional[int]]] = []
        self._vocabulary = 2**31 - 1  # of the embedding that tokens go through
        self._compiled: Optional[_megalith.CompiledKernel] = None
        self._is_compiling = False
        self._finalized = False

    # ---- the state that it is in ------------------------------------------------------------------------------

    @property
    def target_cc(self) -> int:
        """The GPU's generation, as in 90 for sm_90a; 90 where there is no GPU, so that scripts take Hopper's values."""
        return 90 if self._target in (None, "cpu") else _gpu_generation()

    @property
    def block_dim(self) -> Tuple[int, int, int]:
        """What scripts for MPK give as ``block_dim`` on this GPU."""
        return (256, 1, 1) if self.target_cc >= 90 else (128, 1, 1)

    @property
    def target(self) -> str:
        """What it compiles for: "cpu" or "cuda"."""
        return self._target or "cpu"

    def _check_alive(self, what: str) -> None:
        if self._finalized:
            raise UserError(f"[{what}] the kernel was finalized: make a new PersistentKernel")

    def _check_building(self, what: str) -> None:
        self._check_alive(what)
        if self._is_compiling:
            raise UserError(f"[{what}] the kernel is being compiled: wait until compile() has returned")
        if self._compiled is not None:
            raise UserError(f"[{what}] the kernel is compiled: add tensors and layers before compile()")
        self.meta_tensors.follow()

    # ---- tensors ----------------------------------------------------------------------------------------------

    def _new_name(self, what: str, name: Optional[str]) -> str:
        if not isinstance(name, str) or not name:
            raise UserError(f"[{what}] the tensor needs a name: pass name=")
        arguments.text(what, "name", name)
        if name in self._tensors:
            raise UserError(f'[{what}] there is a tensor "{name}" already: take another name')
        return name

    def _check_side(self, memory: TensorMemory, name: str, what: str) -> None:
        """A kernel runs on one side, that of its first tensor if nobody says which."""
        if self._target is None:
            self._target = memory.device
        if memory.device != self._target.partition(":")[0]:
            side = {"cpu": "the host's memory", "cuda": "a GPU's memory"}
            move = (
                "move it there first (torch's .cuda(), or megalith.to_device)" if memory.device == "cpu" else "copy it"
            )
            raise UserError(
                f'[{what}] the tensor "{name}" lies in {side[memory.device]}, but the kernel is for '
                f"{self._target}: {move}"
            )

    def _place(self, memory: TensorMemory, name: str, what: str) -> Storage:
        """The storage of a piece of memory: the same one, if that memory was attached before."""
        self._check_side(memory, name, what)
        key = (memory.address, memory.shape, memory.dtype)
        storage = self._places.get(key)
        if storage is None:
            storage = self._places[key] = Storage(name, memory.dtype, memory)
        return storage

    def attach_input(self, torch_tensor: Any, name: Optional[str] = None) -> DTensor:
        """Takes a tensor of torch, numpy or anything with ``__dlpack__``, without a copy; for reading or writing.

        It must be row-major, of bf16, f16, f32, i8, i32 or i64, and lie where the kernel runs. Attached twice it is one
        tensor with two names. UserError naming it otherwise.
        """
        self._check_building("attach_input")
        name = self._new_name("attach_input", name)
        memory = memory_of(torch_tensor, name)
        storage = self._place(memory, name, "attach_input")
        tensor = self._tensors[name] = DTensor(self, name, memory.shape, storage)
        return tensor

    def new_tensor(
        self,
        dims: Sequence[int],
        strides: Optional[Sequence[int]] = None,
        dtype: Any = "bf16",
        name: Optional[str] = None,
        io_category: str = "cuda_tensor",
    ) -> DTensor:
        """A tensor that lives within a run. The kernel finds memory for it and lays it out as it likes: ``strides`` may
        be any with which no two elements overlap, and change nothing."""
        self._check_building("new_tensor")
        name = self._new_name("new_tensor", name)
        shape = check_dims(f'[new_tensor] the tensor "{name}"', dims)
        if isinstance(io_category, str) and io_category == "nvshmem_tensor":
            raise UserError(
                f'[new_tensor] "{name}": io_category is nvshmem_tensor, but several GPUs are not built yet, '
                "want cuda_tensor"
            )
        if not isinstance(io_category, str) or io_category != "cuda_tensor":
            raise UserError(f'[new_tensor] "{name}": io_category is {arguments.shown(io_category)}, want cuda_tensor')
        if strides is not None:
            check_strides(f'[new_tensor] the tensor "{name}"', shape, strides)
        try:
            storage = Storage(name, dtype_name(dtype), None)
        except UserError as error:
            raise UserError(f'[new_tensor] "{name}": {error}') from None
        tensor = self._tensors[name] = DTensor(self, name, shape, storage)
        return tensor

    def _stack(self, what: str, inputs: Sequence[DTensor], dim: int, num_groups: int, name: Optional[str]) -> DTensor:
        self._check_building(what)
        name = self._new_name(what, name)
        if arguments.as_whole(dim) != 0:
            raise UserError(f'[{what}] "{name}" is to be put together along dimension {arguments.shown(dim)}, want 0')
        inputs = arguments.many(what, "inputs", inputs, len(self._tensors), "a list of tensors")
        if not inputs:
            raise UserError(f'[{what}] "{name}" is to be made of no tensors')
        groups = whole("num_groups", num_groups, 1)
        for part in inputs:
            if not isinstance(part, DTensor) or part._kernel is not self:
                raise UserError(f'[{what}] "{name}": {arguments.shown(part)} is no tensor of this kernel')
            if part._storage.memory is None or part._storage.writer is not None:
                raise UserError(f'[{what}] "{name}": "{part.name}" is not an attached tensor that no layer writes')
            if part.dtype != inputs[0].dtype or part.dims[1:] != inputs[0].dims[1:] or part.num_dims != 2:
                raise UserError(
                    f'[{what}] "{name}": "{part.name}" is {part.dtype} {list(part.dims)}, which does not go with '
                    f'"{inputs[0].name}", {inputs[0].dtype} {list(inputs[0].dims)}: want matrices with as many columns'
                )
            if part.dims[0] % groups != 0:
                raise UserError(
                    f'[{what}] "{name}": the {part.dims[0]} rows of "{part.name}" do not divide into {groups} groups'
                )
        storage = Storage(name, inputs[0].dtype, None)
        storage.parts = list(inputs)
        storage.groups = groups
        for part in inputs:
            part._storage.weight_of = part._storage.weight_of or name
        dims = (sum(part.dims[0] for part in inputs), inputs[0].dims[1])
        tensor = self._tensors[name] = DTensor(self, name, dims, storage)
        return tensor

    def fuse_tensors(
        self, inputs: Sequence[DTensor], fused_dim: int, num_groups: int, name: Optional[str] = None
    ) -> DTensor:
        """One matrix of the rows of several attached ones, dealt in ``num_groups`` rounds: of each in turn the next
        share of its rows. ``fused_dim`` must be 0. compile() makes a copy."""
        return self._stack("fuse_tensors", inputs, fused_dim, num_groups, name)

    def shuffle_tensors(
        self, inputs: Sequence[DTensor], shuffled_dim: int, num_groups: int, name: Optional[str] = None
    ) -> DTensor:
        """The same as fuse_tensors."""
        return self._stack("shuffle_tensors", inputs, shuffled_dim, num_groups, name)

    # ---- the graph, for layers --------------------------------------------------------------------------------

    def _layer(self, kind: str, grid_dim: object, block_dim: object) -> Layer:
        return Layer(self, kind, grid_dim, block_dim)

    def _graph_tensor(self, tensor: DTensor, shape: Tuple[int, ...], dtype: Optional[str] = None) -> int:
        """The graph's tensor, made when a layer first needs it, in the shape that it needs; a new one of ``dtype``, if
        that is given."""
        storage = tensor._storage
        if storage.graph_id is None:
            dims = list(shape)
            if storage.parts:
                names = []
                for part in storage.parts:
                    names.append(part._storage.name)
                storage.graph_id = self._graph.stacked(storage.name, storage.dtype, dims, names, storage.groups)
            elif storage.memory is None:
                storage.graph_id = self._graph.activation(storage.name, dtype or storage.dtype, dims)
            else:
                storage.graph_id = self._graph.state(storage.name, storage.dtype, dims)
            storage.graph_shape = shape
        if storage.graph_shape != shape:
            raise UserError(
                f'the tensor "{tensor.name}" is used as {list(shape)} by one layer and as '
                f"{list(storage.graph_shape)} by "
                "another: attach it twice, or take a tensor for each"
            )
        return storage.graph_id

    def _graph_tensor_anew(self, tensor: DTensor, shape: Tuple[int, ...], dtype: Optional[str]) -> int:
        """Another tensor of the graph for one that a layer writes once more; the layer's ``done`` puts it in place."""
        storage = tensor._storage
        self._graph_tensor(tensor, shape)
        storage.versions += 1
        return self._graph.activation(f"{storage.name}#{storage.versions}", dtype or storage.dtype, list(shape))

    def _embedded(self, layer: Layer, ids: DTensor, source: object) -> DTensor:
        """What embed_layer reads in the place of ``ids``: of drafts the rows that the token loop lays out."""
        if self._drafting is None or ids._storage is not self._drafting.tokens:
            return ids
        if source != 1:
            raise UserError(
                f'[{layer.kind}] input "{ids.name}" has drafts, which are not looked at with input_source={source}: '
                "want input_source=1"
            )
        self._drafting.is_embedded = True
        return self._meta("input_tokens", layer.kind)

    def _make_constant(self, tensor: DTensor) -> None:
        storage = tensor._storage
        if not storage.parts and storage.graph_id is not None:
            self._graph.make_constant(storage.graph_id)

    def _internal(self, name: str, values: Sequence[int], shape: Optional[Sequence[int]] = None) -> int:
        """A small i32 table of the kernel's own, as a state of the graph."""
        import numpy

        table = self._internals[name] = numpy.array(values, numpy.int32).reshape(shape or (-1,))
        return self._graph.state(name, "i32", list(table.shape))

    def _meta(self, name: str, what: str) -> DTensor:
        """A meta tensor that a layer cannot do without."""
        key = f"meta.{name}"
        if key not in self._tensors:
            if self.meta_tensors.get(name) is None:
                raise UserError(
                    f'[{what}] the meta tensor "{name}" is missing: pass meta_tensors={{"{name}": ...}} to '
                    "PersistentKernel"
                )
            memory = self._meta_memory(name, self.meta_tensors[name], what)
            self._tensors[key] = DTensor(self, name, memory.shape, self._place(memory, key, what))
        return self._tensors[key]

    @staticmethod
    def _meta_memory(name: str, tensor: Any, what: str) -> TensorMemory:
        memory = memory_of(tensor, name)
        if memory.dtype not in ("i32", "i64"):
            raise UserError(f'[{what}] the meta tensor "{name}" is {memory.dtype}, want i32 or i64')
        return memory

    def _meta_changed(self) -> None:
        """Called when a meta tensor came or was replaced."""

    def _replace_meta(self, name: str, tensor: Any) -> None:
        """Another tensor takes the place of a meta tensor: before anything uses that, and before compile() if only
        layers and the token loop do, which know it by name. UserError where it would have no effect."""
        what = "meta_tensors"
        self._check_alive(what)
        used = self._tensors.get(f"meta.{name}")
        if used is None:
            return
        storage = used._storage
        assert storage.memory is not None
        if self._compiled is not None:
            raise UserError(
                f'[{what}] "{name}" is in use by a compiled kernel: write into the tensor that is there, or make a new '
                "PersistentKernel"
            )
        if tensor is None:
            raise UserError(f'[{what}] "{name}" is in use by a layer or the token loop: it cannot be taken away')
        memory = self._meta_memory(name, tensor, what)
        self._check_side(memory, name, what)
        if memory.shape != storage.memory.shape or memory.dtype != storage.dtype:
            raise UserError(
                f'[{what}] "{name}" is in use by a layer or the token loop as {storage.dtype} {list(used.dims)}, and '
                f"the new one is {memory.dtype} {list(memory.shape)}: pass it to PersistentKernel"
            )
        key, old = (memory.address, memory.shape, memory.dtype), storage.memory
        shared = (storage, self._places.get(key))
        attached = [t.name for t in self._tensors.values() if t is not used and t._storage in shared]
        if attached and memory.address != old.address:
            raise UserError(
                f'[{what}] "{name}" is in use by a layer or the token loop, and attached as "{attached[0]}", too: '
                "replace it before attach_input()"
            )
        if storage.writer is not None and not memory.writable:
            raise UserError(f'[{what}] the new "{name}" is read-only, but {storage.writer} writes it')
        del self._places[(old.address, old.shape, old.dtype)]
        self._places[key] = storage
        storage.memory = memory

    def _check_step(self, step: DTensor, limit: int) -> None:
        self._step_limits.append((step, limit))

    def _check_tokens(
        self, tokens: DTensor, vocabulary: int, step: Optional[DTensor] = None, rows: Optional[int] = None
    ) -> None:
        """Tokens are looked at before each run: all, or those of ``rows`` rows from ``step`` on."""
        self._vocabulary = min(self._vocabulary, vocabulary)
        if tokens._storage.memory is not None and tokens._storage.writer is None:
            self._token_limits.append((tokens, vocabulary, step, rows))

    # ---- for compiling ----------------------------------------------------------------------------------------

    def _check_overlaps(self) -> None:
        """Two tensors that share some of their bytes are two things to the compiler: it would order nothing."""
        used = [(s.memory, s) for s in self._places.values() if s.memory is not None and s.graph_id is not None]
        used.sort(key=lambda place: place[0].address)
        reaching: List[Tuple[TensorMemory, Storage]] = []  # those before that end behind the one looked at
        for memory, second in used:
            reaching = [(m, s) for m, s in reaching if m.address + m.nbytes > memory.address]
            for _, first in reaching:
                if first.writer or second.writer:
                    written = first if first.writer else second
                    raise UserError(
                        f'[compile] "{first.name}" and "{second.name}" share memory, and {written.writer} writes '
                        f'"{written.name}": attach tensors that lie apart'
                    )
            reaching.append((memory, second))

    def _sources(self) -> sources.Sources:
        """What may move the memory that the kernel runs on."""
        memories = [(s.name.replace("meta.", "", 1), s.memory) for s in self._places.values() if s.memory is not None]
        return sources.distinct((name, m.source) for name, m in memories if m.source is not None)

    def _memory(self) -> Dict[str, Tuple[int, bool, int, int]]:
        memory = {name: (array.ctypes.data, False, 0, -1) for name, array in self._internals.items()}
        for storage in {id(t._storage): t._storage for t in self._tensors.values()}.values():
            if storage.memory is not None:
                where = storage.memory
                memory[storage.name] = (where.address, where.device == "cuda", where.shape[0], where.device_id)
        return memory
