"""PersistentKernel: a graph built layer by layer, compiled into one persistent kernel, run on tensors of the caller's."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

from megalith import _megalith, meta
from megalith._megalith import UserError
from megalith.attention_layers import AttentionLayers
from megalith.dtensor import DTensor, Storage, check_dims
from megalith.layers import DenseLayers
from megalith.tensors import TensorMemory, dtype_name, memory_of
from megalith.token_loop import LOOP_META, TokenLoop

_MODES = ("offline", "online", "online_notoken", "onepass", "online_multi_turn")
_SINGLE_PASS = ("online_notoken", "onepass")
_META = (
    "step", "tokens", "input_tokens", "output_tokens", "num_new_tokens", "prompt_lengths", "qo_indptr_buffer",
    "paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer", "paged_kv_indices_snapshot",
)  # fmt: skip
_DEFAULTS: Dict[str, Any] = {
    "mode": "offline",
    "world_size": 1,
    "mpi_rank": 0,
    "num_workers": 1,
    "num_local_schedulers": 4,
    "num_remote_schedulers": 0,
    "max_seq_length": 1,
    "max_num_batched_requests": 1,
    "max_num_batched_tokens": 1,
    "max_num_pages": 1,
    "page_size": 1,
    "meta_tensors": None,
    "profiler_tensor": None,
    "trace_name": "",
    "spec_decode_config": None,
    "use_cutlass_kernel": False,
    "eos_token_id": -1,
}


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise UserError(f"[PersistentKernel] {name} is {value!r}, want a whole number of at least {least}")
    return int(value)


class _Bound:
    """A compiled kernel and all that it runs on. Whoever runs it holds it, so that a finalize() elsewhere frees nothing
    that is in use."""

    def __init__(self, runner: _megalith.GraphRunner, owners: List[Any]):
        self.run = runner.run
        self.read_activation = runner.read_activation
        self.lock = threading.Lock()  # looking at tables, laying out rows and running belong together
        self._owners = owners


class PersistentKernel(DenseLayers, AttentionLayers):
    """A graph of layers that becomes one persistent kernel.

    Attach tensors, call layers, compile, run::

        kernel = PersistentKernel(**params)
        x = kernel.attach_input(x_tensor, name="x")        # (8, 64) bf16
        w = kernel.attach_input(w_tensor, name="w")        # (64,) bf16
        y = kernel.attach_input(y_tensor, name="y")        # (8, 64) bf16, written
        kernel.rmsnorm_layer(input=x, weight=w, output=y)
        kernel.compile()
        kernel.run_test_mode()                             # y_tensor has the result
        kernel.finalize()

    Tensors are used where they are; the kernel holds on to them until finalize(). What a layer takes as a weight is laid
    out by compile(): change it later, and nobody may see it. Everything else is read and written in place.

    ``target`` is "cpu" or "cuda"; left out, it is where the first attached tensor lies. ``num_workers``: threads, or
    multiprocessors. Schedulers there are none; their numbers are taken and ignored, like use_cutlass_kernel.
    """

    def __init__(
        self,
        mode: str = "offline",
        world_size: int = 1,
        mpi_rank: int = 0,
        num_workers: int = 1,
        num_local_schedulers: int = 4,
        num_remote_schedulers: int = 0,
        max_seq_length: int = 1,
        max_num_batched_requests: int = 1,
        max_num_batched_tokens: int = 1,
        max_num_pages: int = 1,
        page_size: int = 1,
        meta_tensors: Optional[Dict[str, Any]] = None,
        profiler_tensor: Any = None,
        trace_name: str = "",
        spec_decode_config: Any = None,
        use_cutlass_kernel: bool = False,
        eos_token_id: int = -1,
        test_mode: bool = False,
        *,
        target: Optional[str] = None,
    ):
        if mode not in _MODES:
            raise UserError(f'[PersistentKernel] mode is {mode!r}, want one of {", ".join(_MODES)}')
        if _whole("world_size", world_size, 1) != 1:
            raise UserError(
                f"[PersistentKernel] world_size is {world_size}: several GPUs are not built yet, want 1"
            )
        if _whole("mpi_rank", mpi_rank, 0) != 0:
            raise UserError(f"[PersistentKernel] mpi_rank is {mpi_rank}, want 0: world_size is 1")
        if spec_decode_config is not None:
            raise UserError("[PersistentKernel] spec_decode_config: speculative decoding is not built yet, want None")
        if profiler_tensor is not None:
            raise UserError("[PersistentKernel] profiler_tensor: profiling from Python is not built yet, want None")
        if target is not None and target != "cpu" and not target.startswith("cuda"):
            raise UserError(f"[PersistentKernel] target is {target!r}, want cpu or cuda")
        self.mode = mode
        self.world_size = 1
        self.mpi_rank = 0
        self.num_workers = _whole("num_workers", num_workers, 1)
        self.num_local_schedulers = _whole("num_local_schedulers", num_local_schedulers, 0)
        self.num_remote_schedulers = _whole("num_remote_schedulers", num_remote_schedulers, 0)
        self.max_seq_length = _whole("max_seq_length", max_seq_length, 1)
        self.max_num_batched_requests = _whole("max_num_batched_requests", max_num_batched_requests, 1)
        self.max_num_batched_tokens = _whole("max_num_batched_tokens", max_num_batched_tokens, 1)
        self.max_num_pages = _whole("max_num_pages", max_num_pages, 1)
        self.page_size = _whole("page_size", page_size, 1)
        self.trace_name = trace_name
        self.use_cutlass_kernel = bool(use_cutlass_kernel)
        self.eos_token_id = int(eos_token_id)
        self.test_mode = bool(test_mode)

        self._target = target
        self._graph = _megalith.Graph("test")
        self._tensors: Dict[str, DTensor] = {}
        self._places: Dict[Tuple[int, Tuple[int, ...], str], Storage] = {}
        self._internals: Dict[str, Any] = {}
        self._num_layers = 0
        self._paged: Dict[Tuple[int, int, int], Tuple[int, int, int, Any]] = {}
        self._paged_limits: List[Tuple[int, int, int]] = []
        self._step_limits: List[Tuple[DTensor, int]] = []
        self._token_limits: List[Tuple[DTensor, int, Optional[DTensor], Optional[int]]] = []
        self._vocabulary = 2**31 - 1  # of the embedding that tokens go through
        self._compiled: Optional[_megalith.CompiledKernel] = None
        self._runner: Optional[_Bound] = None
        self._finalized = False
        self._meta_tensors = self._check_meta(meta_tensors)
        self.meta_tensors: Dict[str, Any] = dict(self._meta_tensors)
        # Scripts that run their kernel step by step need not have all of it.
        self._loop: Optional[TokenLoop] = None
        if not self.test_mode and mode not in _SINGLE_PASS and not self._missing_for_loop():
            self._loop = TokenLoop(self)

    @staticmethod
    def _check_meta(meta_tensors: Optional[Dict[str, Any]]) -> Dict[str, Any]:
        if meta_tensors is None:
            return {}
        if not isinstance(meta_tensors, dict):
            raise UserError(
                f"[PersistentKernel] meta_tensors is a {type(meta_tensors).__name__}, want a dict of tensors by name"
            )
        for name in meta_tensors:
            if name not in _META:
                raise UserError(
                    f'[PersistentKernel] there is no meta tensor "{name}"; there are {", ".join(_META)}'
                )
        return dict(meta_tensors)

    def _missing_for_loop(self) -> List[str]:
        return [name for name in LOOP_META if self._meta_tensors.get(name) is None]

    @classmethod
    def get_default_init_parameters(cls) -> Dict[str, Any]:
        """Arguments that do for one layer in test mode: set ``test_mode`` and what you need besides."""
        return dict(_DEFAULTS, meta_tensors={})

    # ---- the state that it is in ------------------------------------------------------------------------------

    @property
    def target_cc(self) -> int:
        """The GPU's generation, as in 90 for sm_90a; 90 where there is no GPU, so that scripts take Hopper's values."""
        if self._target is None or self._target == "cpu":
            return 90
        try:
            architecture = _megalith.cuda_devices()[0].architecture
        except (_megalith.SystemError, IndexError):
            return 90
        return int("".join(c for c in architecture if c.isdigit()))

    @property
    def block_dim(self) -> Tuple[int, int, int]:
        """What ``block_dim`` must be where a script gives it."""
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
        if self._compiled is not None:
            raise UserError(f"[{what}] the kernel is compiled: add tensors and layers before compile()")

    # ---- tensors ----------------------------------------------------------------------------------------------

    def _new_name(self, what: str, name: Optional[str]) -> str:
        if not isinstance(name, str) or not name:
            raise UserError(f"[{what}] the tensor needs a name: pass name=")
        if name in self._tensors:
            raise UserError(f'[{what}] there is a tensor "{name}" already: take another name')
        return name

    def _place(self, memory: TensorMemory, name: str, what: str) -> Storage:
        """The storage of a piece of memory: the same one, if that memory was attached before."""
        if self._target is None:
            self._target = memory.device
        if memory.device != self._target.partition(":")[0]:
            side = {"cpu": "the host's memory", "cuda": "a GPU's memory"}
            move = "move it there first (torch's .cuda(), or megalith.to_device)" if memory.device == "cpu" else "copy it"
            raise UserError(
                f'[{what}] the tensor "{name}" lies in {side[memory.device]}, but the kernel is for {self._target}: {move}'
            )
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
        """A tensor that lives within a run, in memory that the kernel finds for it. Row-major."""
        self._check_building("new_tensor")
        name = self._new_name("new_tensor", name)
        shape = check_dims(f'[new_tensor] the tensor "{name}"', dims)
        if io_category == "nvshmem_tensor":
            raise UserError(
                f'[new_tensor] "{name}": io_category is nvshmem_tensor, but several GPUs are not built yet, want cuda_tensor'
            )
        if io_category != "cuda_tensor":
            raise UserError(f'[new_tensor] "{name}": io_category is {io_category!r}, want cuda_tensor')
        if strides is not None:
            want = [1] * len(shape)
            for d in range(len(shape) - 2, -1, -1):
                want[d] = want[d + 1] * shape[d + 1]
            if list(strides) != want:
                raise UserError(
                    f'[new_tensor] "{name}" is to have the strides {tuple(strides)}, want {tuple(want)}: row-major'
                )
        try:
            storage = Storage(name, dtype_name(dtype), None)
        except UserError as error:
            raise UserError(f'[new_tensor] "{name}": {error}') from None
        tensor = self._tensors[name] = DTensor(self, name, shape, storage)
        return tensor

    def _stack(self, what: str, inputs: Sequence[DTensor], dim: int, num_groups: int, name: Optional[str]) -> DTensor:
        self._check_building(what)
        name = self._new_name(what, name)
        if dim != 0:
            raise UserError(f'[{what}] "{name}" is to be put together along dimension {dim}, want 0')
        if not inputs:
            raise UserError(f'[{what}] "{name}" is to be made of no tensors')
        groups = _whole("num_groups", num_groups, 1)
        for part in inputs:
            if not isinstance(part, DTensor) or part._kernel is not self:
                raise UserError(f'[{what}] "{name}": {part!r} is no tensor of this kernel')
            if part._storage.memory is None or part._storage.writer is not None:
                raise UserError(f'[{what}] "{name}": "{part.name}" is not an attached tensor that no layer writes')
            if part.dtype != inputs[0].dtype or part.dims[1:] != inputs[0].dims[1:] or part.num_dims != 2:
                raise UserError(
                    f'[{what}] "{name}": "{part.name}" is {part.dtype} {list(part.dims)}, which does not go with '
                    f'"{inputs[0].name}", {inputs[0].dtype} {list(inputs[0].dims)}: want matrices with as many columns'
                )
            if part.dims[0] % groups != 0:
                raise UserError(
                    f'[{what}] "{name}": the {part.dims[0]} rows of "{part.name}" cannot be dealt in {groups} groups'
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

    def _graph_tensor(self, tensor: DTensor, shape: Tuple[int, ...]) -> int:
        """The graph's tensor, made when a layer first needs it, in the shape that it needs."""
        storage = tensor._storage
        if storage.graph_id is None:
            dims = list(shape)
            if storage.parts:
                names = []
                for part in storage.parts:
                    names.append(part._storage.name)
                storage.graph_id = self._graph.stacked(storage.name, storage.dtype, dims, names, storage.groups)
            elif storage.memory is None:
                storage.graph_id = self._graph.activation(storage.name, storage.dtype, dims)
            else:
                storage.graph_id = self._graph.state(storage.name, storage.dtype, dims)
            storage.graph_shape = shape
        if storage.graph_shape != shape:
            raise UserError(
                f'the tensor "{tensor.name}" is used as {list(shape)} by one layer and as {list(storage.graph_shape)} by '
                "another: attach it twice, or take a tensor for each"
            )
        return storage.graph_id

    def _make_constant(self, tensor: DTensor) -> None:
        storage = tensor._storage
        if not storage.parts and storage.graph_id is not None:
            self._graph.make_constant(storage.graph_id)

    def _internal(self, name: str, values: Sequence[int], shape: Optional[Sequence[int]] = None) -> int:
        """A small i32 table of the kernel's own, as a state of the graph."""
        import numpy

        return self._internal_table(name, numpy.array(values, numpy.int32).reshape(shape or (-1,)))

    def _internal_table(self, name: str, table: Any) -> int:
        self._internals[name] = table
        return self._graph.state(name, "i32", list(table.shape))

    def _meta(self, name: str, what: str) -> DTensor:
        """A meta tensor that a layer cannot do without."""
        key = f"meta.{name}"
        if key not in self._tensors:
            if self._meta_tensors.get(name) is None:
                raise UserError(
                    f'[{what}] the meta tensor "{name}" is missing: pass meta_tensors={{"{name}": ...}} to '
                    "PersistentKernel"
                )
            memory = memory_of(self._meta_tensors[name], name)
            if memory.dtype not in ("i32", "i64"):
                raise UserError(f'[{what}] the meta tensor "{name}" is {memory.dtype}, want i32 or i64')
            self._tensors[key] = DTensor(self, name, memory.shape, self._place(memory, key, what))
        return self._tensors[key]

    def _check_step(self, step: DTensor, limit: int) -> None:
        self._step_limits.append((step, limit))

    def _check_tokens(
        self, tokens: DTensor, vocabulary: int, step: Optional[DTensor] = None, rows: Optional[int] = None
    ) -> None:
        """Tokens are looked at before each run: all, or those of ``rows`` rows from ``step`` on."""
        self._vocabulary = min(self._vocabulary, vocabulary)
        if tokens._storage.memory is not None and tokens._storage.writer is None:
            self._token_limits.append((tokens, vocabulary, step, rows))

    # ---- compiling --------------------------------------------------------------------------------------------

    def _check_overlaps(self) -> None:
        """Two tensors that share some of their bytes are two things to the compiler: it would order nothing."""
        places = sorted(
            (s for s in self._places.values() if s.graph_id is not None), key=lambda s: s.memory.address  # type: ignore[union-attr]
        )
        for first, second in zip(places, places[1:]):
            assert first.memory is not None and second.memory is not None
            if first.memory.address + first.memory.nbytes > second.memory.address and (first.writer or second.writer):
                written = first if first.writer else second
                raise UserError(
                    f'[compile] "{first.name}" and "{second.name}" share memory, and {written.writer} writes '
                    f'"{written.name}": attach tensors that lie apart'
                )

    def _memory(self) -> Dict[str, Tuple[int, bool, int]]:
        memory = {name: (array.ctypes.data, False, 0) for name, array in self._internals.items()}
        for storage in {id(t._storage): t._storage for t in self._tensors.values()}.values():
            if storage.memory is not None:
                on_device = storage.memory.device == "cuda"
                memory[storage.name] = (storage.memory.address, on_device, storage.memory.shape[0])
        return memory

    def compile(self, output_dir: Optional[str] = None, **kwargs: Any) -> None:
        """Compiles the layers into one kernel and binds it to the tensors.

        ``output_dir``: a folder, made if need be, for the generated source (``test_rank0.cpp``, or ``.cu``) and the task
        graph (``task_graph_rank0.json``). ``eos_token_id`` takes the place of the constructor's. UserError if there are
        no layers, or if two tensors share memory; SystemError if the compiler fails or memory does not suffice.
        """
        self._check_building("compile")
        unknown = set(kwargs) - {"eos_token_id"}
        if unknown:
            raise UserError(f"[compile] there is no option {min(unknown)!r}; there are output_dir and eos_token_id")
        self.eos_token_id = int(kwargs.get("eos_token_id", self.eos_token_id))
        if self._graph.num_nodes == 0:
            raise UserError("[compile] the kernel has no layers: call some first")
        if self._loop is not None:
            self._loop.finish()
        self._check_overlaps()
        compiled = _megalith.compile(
            self._graph, target=self.target, num_workers=self.num_workers, reuse_arena=not self.test_mode
        )
        if output_dir is not None:
            os.makedirs(output_dir, exist_ok=True)
            source = "test_rank0.cu" if compiled.is_cuda else "test_rank0.cpp"
            with open(os.path.join(output_dir, source), "w", encoding="utf-8") as file:
                file.write(compiled.source)
            with open(os.path.join(output_dir, "task_graph_rank0.json"), "w", encoding="utf-8") as file:
                file.write(compiled.tasks.to_json())
        memory = self._memory()
        runner = _megalith.GraphRunner(self._graph, compiled, memory)
        if self._loop is not None:
            self._loop.bind(memory)
        self._runner = _Bound(runner, [*self._places.values(), *self._internals.values()])
        self._compiled = compiled

    # ---- running ----------------------------------------------------------------------------------------------

    def _ready(self, what: str) -> _Bound:
        self._check_alive(what)
        if self._runner is None:
            raise UserError(f"[{what}] the kernel is not compiled: call compile() first")
        return self._runner

    def run_test_mode(self) -> None:
        """Runs the layers once. Returns when all tensors are written. Threads that call at once take turns."""
        runner = self._ready("run_test_mode")
        if not self.test_mode:
            raise UserError("[run_test_mode] the kernel was made without test_mode=True")
        with runner.lock:
            meta.check(self)
            runner.run(1)

    def __call__(self, default_stream: Any = None, **kwargs: Any) -> None:
        """Runs the kernel. Returns when it has ended and all tensors are written.

        In the modes "offline", "online" and "online_multi_turn" it goes on from token to token: each request of
        ``tokens`` begins at ``step`` with the rest of its prompt, and ends with ``eos_token_id`` or at max_seq_length;
        then ``tokens[r, :step[r] + 1]`` is its text. As many requests as max_num_batched_requests work at a time, the
        others follow. In the modes "onepass" and "online_notoken", and in test mode, it runs the layers once, on what
        the meta tensors say now. ``default_stream`` is taken and ignored: what the GPU was given before is done first.
        """
        if kwargs:
            raise UserError(f"[__call__] there is no option {min(kwargs)!r}; there is default_stream")
        runner = self._ready("__call__")
        if self._loop is None and not self.test_mode and self.mode not in _SINGLE_PASS:
            raise UserError(
                f'[__call__] mode="{self.mode}" goes on from token to token, but the meta tensor '
                f'"{self._missing_for_loop()[0]}" is missing: pass it to PersistentKernel, or take mode="onepass" for a step'
            )
        loop = self._loop
        with runner.lock:
            meta.check(self)
            if loop is None:
                runner.run(1)
            else:
                loop.lay_out_first_rows()
                runner.run(0)

    def read(self, tensor: DTensor) -> Any:
        """What a new tensor held after the last run, as a numpy array (bf16 needs ml_dtypes). In test mode only: else
        tensors that are done with share their memory with others."""
        import numpy

        runner = self._ready("read")
        if not isinstance(tensor, DTensor) or tensor._kernel is not self:
            raise UserError(f"[read] {tensor!r} is no tensor of this kernel")
        storage = tensor._storage
        if storage.memory is not None or storage.parts or storage.graph_id is None:
            raise UserError(f'[read] "{tensor.name}" is no new tensor that a layer writes: look at what you attached')
        if not self.test_mode:
            raise UserError(f'[read] "{tensor.name}" shares its memory with others: make the kernel with test_mode=True')
        from megalith.tensors import numpy_dtype

        array = numpy.empty(tensor.dims, numpy_dtype(tensor.dtype))
        runner.read_activation(storage.graph_id, array.ctypes.data)
        return array

    def finalize(self) -> None:
        """Frees everything and lets the tensors go. Calling it again does nothing."""
        self._finalized = True
        self._runner = None
        self._compiled = None
        self._loop = None
        self._tensors.clear()
        self._places.clear()
        self._internals.clear()
        self._paged_limits.clear()
        self._step_limits.clear()
        self._token_limits.clear()
        self._meta_tensors.clear()

    def __enter__(self) -> "PersistentKernel":
        return self

    def __exit__(self, *_: object) -> None:
        self.finalize()

    # ---- looking at it ----------------------------------------------------------------------------------------

    @property
    def graph(self) -> _megalith.Graph:
        """The graph that the layers made; str() prints it."""
        return self._graph

    @property
    def compiled(self) -> _megalith.CompiledKernel:
        """The compiled kernel: ``.tasks``, ``.source``, ``.report``."""
        self._ready("compiled")
        assert self._compiled is not None
        return self._compiled

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_layer"):
            layers = sorted(n for n in dir(type(self)) if n.endswith("_layer") and not n.startswith("_"))
            raise AttributeError(f"PersistentKernel has no {name} yet; there are {', '.join(layers)}")
        raise AttributeError(f"PersistentKernel has no attribute {name!r}")

    def __repr__(self) -> str:
        state = "finalized" if self._finalized else "compiled" if self._compiled else "being built"
        return f"<PersistentKernel for {self.target}, {state}: {self._graph.num_nodes} nodes>"


def get_configurations_from_gpu(rank: int = 0) -> Tuple[int, int]:
    """(workers, schedulers) for the GPU of that rank: one worker for each of its multiprocessors, no schedulers. Without
    a GPU: a worker for each usable core."""
    try:
        devices = _megalith.cuda_devices()
    except _megalith.SystemError:
        devices = []
    if not devices:
        return _megalith.default_num_workers("cpu"), 0
    if not 0 <= rank < len(devices):
        raise UserError(f"[get_configurations_from_gpu] there is no GPU {rank}: there are {len(devices)}")
    return devices[rank].num_multiprocessors, 0
