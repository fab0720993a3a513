"""PersistentKernel: a graph built layer by layer, compiled into one persistent kernel, run on the caller's tensors."""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import Any, Dict, List, Optional, Tuple

from megalith import _megalith, meta
from megalith._megalith import UserError
from megalith.attention_layers import AttentionLayers
from megalith.dtensor import DTensor
from megalith.kernel_tensors import KernelTensors
from megalith.layers import DenseLayers
from megalith.operator_layers import OperatorLayers
from megalith.parameters import DEFAULTS, MODES, SINGLE_PASS, check_meta, whole
from megalith.tensors import numpy_dtype
from megalith.token_layers import TokenLayers
from megalith.token_loop import LOOP_META, TokenLoop


_PROFILED_ITERATIONS = 64  # that a trace has at most


class _Bound:
    """A compiled kernel and all that it runs on. Whoever runs it holds it, so that a finalize() elsewhere frees nothing
    that is in use."""

    def __init__(self, runner: _megalith.GraphRunner, owners: List[Any]):
        self.run = runner.run
        self.trace, self.page = runner.trace, runner.page
        self.read_activation = runner.read_activation
        self.lock = threading.Lock()  # looking at tables, laying out rows and running belong together
        self._owners = owners


class PersistentKernel(DenseLayers, AttentionLayers, TokenLayers, OperatorLayers):
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

    Tensors are used where they are; the kernel holds on to them until finalize(). What a layer takes as a weight is
    laid out by compile(): change it later, and nobody may see it. Everything else is read and written in place.

    ``target`` is "cpu" or "cuda"; left out, it is where the first attached tensor lies. ``num_workers``: threads, or
    multiprocessors. Schedulers there are none; their numbers are taken and ignored, like use_cutlass_kernel.

    With ``profile`` (or a ``profiler_tensor``, whose memory is not needed) every run writes ``TRACE_NAME.perfetto-trace``
    into the working directory ("mirage_0" without a trace_name): when each task waited, ran and ended, on each worker, in
    the newest iterations. https://ui.perfetto.dev opens it. ``TRACE_NAME.profile.html`` beside it is a page to look at
    in any browser.
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
        profile: bool = False,
    ):
        if mode not in MODES:
            raise UserError(f"[PersistentKernel] mode is {mode!r}, want one of {', '.join(MODES)}")
        if whole("world_size", world_size, 1) != 1:
            raise UserError(f"[PersistentKernel] world_size is {world_size}: several GPUs are not built yet, want 1")
        if whole("mpi_rank", mpi_rank, 0) != 0:
            raise UserError(f"[PersistentKernel] mpi_rank is {mpi_rank}, want 0: world_size is 1")
        if spec_decode_config is not None:
            raise UserError("[PersistentKernel] spec_decode_config: speculative decoding is not built yet, want None")
        if target is not None and target != "cpu" and not target.startswith("cuda"):
            raise UserError(f"[PersistentKernel] target is {target!r}, want cpu or cuda")
        self.mode = mode
        self.world_size = 1
        self.mpi_rank = 0
        self.num_workers = whole("num_workers", num_workers, 1)
        self.num_local_schedulers = whole("num_local_schedulers", num_local_schedulers, 0)
        self.num_remote_schedulers = whole("num_remote_schedulers", num_remote_schedulers, 0)
        self.max_seq_length = whole("max_seq_length", max_seq_length, 1)
        self.max_num_batched_requests = whole("max_num_batched_requests", max_num_batched_requests, 1)
        self.max_num_batched_tokens = whole("max_num_batched_tokens", max_num_batched_tokens, 1)
        self.max_num_pages = whole("max_num_pages", max_num_pages, 1)
        self.page_size = whole("page_size", page_size, 1)
        self.trace_name = trace_name
        self.profile = bool(profile) or profiler_tensor is not None
        self.use_cutlass_kernel = bool(use_cutlass_kernel)
        self.eos_token_id = int(eos_token_id)
        self.test_mode = bool(test_mode)

        KernelTensors.__init__(self, target)
        self._runner: Optional[_Bound] = None
        self._meta_tensors = check_meta(meta_tensors)
        self.meta_tensors: Dict[str, Any] = dict(self._meta_tensors)
        # Scripts that run their kernel step by step need not have all of it.
        self._loop: Optional[TokenLoop] = None
        if not self.test_mode and mode not in SINGLE_PASS and not self._missing_for_loop():
            self._loop = TokenLoop(self)

    def _missing_for_loop(self) -> List[str]:
        return [name for name in LOOP_META if self._meta_tensors.get(name) is None]

    @classmethod
    def get_default_init_parameters(cls) -> Dict[str, Any]:
        """Arguments that do for one layer in test mode: set ``test_mode`` and what you need besides."""
        return dict(DEFAULTS, meta_tensors={})

    # ---- compiling --------------------------------------------------------------------------------------------

    def compile(self, output_dir: Optional[str] = None, **kwargs: Any) -> None:
        """Compiles the layers into one kernel and binds it to the tensors.

        ``output_dir``: a folder, made if need be, for the generated source (``test_rank0.cpp``, or ``.cu``) and the
        task graph (``task_graph_rank0.json``). ``eos_token_id`` takes the place of the constructor's. UserError if
        there are no layers, or if two tensors share memory; SystemError if the compiler fails or memory does not
        suffice.
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
        if self.profile:
            runner.profile(_PROFILED_ITERATIONS)
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

    def _finish_earlier_work(self, stream: Any) -> None:
        """The kernel's stream waits for the default one alone: work on others is waited for here."""
        if self.target == "cpu":
            return
        torch = sys.modules.get("torch")
        if stream is None and torch is not None and torch.cuda.is_initialized():
            stream = torch.cuda.current_stream()
        if hasattr(stream, "synchronize"):
            stream.synchronize()

    def run_test_mode(self) -> None:
        """Runs the layers once. Returns when all tensors are written. Threads that call at once take turns."""
        runner = self._ready("run_test_mode")
        if not self.test_mode:
            raise UserError("[run_test_mode] the kernel was made without test_mode=True")
        self._finish_earlier_work(None)
        with runner.lock:
            meta.check(self)
            runner.run(1)
            self._write_profiles(runner)

    def __call__(self, default_stream: Any = None, **kwargs: Any) -> None:
        """Runs the kernel. Returns when it has ended and all tensors are written.

        In the modes "offline", "online" and "online_multi_turn" it goes on from token to token: each request of
        ``tokens`` begins at ``step`` with the rest of its prompt, and ends with ``eos_token_id`` or at max_seq_length;
        then ``tokens[r, :step[r] + 1]`` is its text. As many requests as max_num_batched_requests work at a time, the
        others follow. In the modes "onepass" and "online_notoken", and in test mode, it runs the layers once, on what
        the meta tensors say now. What torch's current stream, or ``default_stream``, was given before is done first.
        """
        if kwargs:
            raise UserError(f"[__call__] there is no option {min(kwargs)!r}; there is default_stream")
        runner = self._ready("__call__")
        if self._loop is None and not self.test_mode and self.mode not in SINGLE_PASS:
            raise UserError(
                f'[__call__] mode="{self.mode}" goes on from token to token, but the meta tensor '
                f'"{self._missing_for_loop()[0]}" is missing: pass it to PersistentKernel, or take '
                'mode="onepass" for a step'
            )
        loop = self._loop
        self._finish_earlier_work(default_stream)
        with runner.lock:
            meta.check(self)
            if loop is None:
                runner.run(1)
            else:
                loop.lay_out_first_rows()
                runner.run(0)
            self._write_profiles(runner)

    def _write_profiles(self, runner: _Bound) -> None:
        if self.profile:
            self._write_profile(".perfetto-trace", runner.trace())
            self._write_profile(".profile.html", runner.page())

    def _write_profile(self, ending: str, text: str) -> None:
        path = f"{self.trace_name or 'mirage_0'}{ending}"
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise UserError(f'[trace_name] the trace cannot be written to "{path}": {error}') from None

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
            raise UserError(
                f'[read] "{tensor.name}" shares its memory with others: make the kernel with test_mode=True'
            )
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
            if name[: -len("_layer")] in _megalith.Registry.shared():
                return functools.partial(self.operator_layer, name[: -len("_layer")])
            layers = sorted(n for n in dir(type(self)) if n.endswith("_layer") and not n.startswith("_"))
            raise AttributeError(f"PersistentKernel has no {name} yet; there are {', '.join(layers)}")
        raise AttributeError(f"PersistentKernel has no attribute {name!r}")

    def __repr__(self) -> str:
        state = "finalized" if self._finalized else "compiled" if self._compiled else "being built"
        return f"<PersistentKernel for {self.target}, {state}: {self._graph.num_nodes} nodes>"


def get_configurations_from_gpu(rank: int = 0) -> Tuple[int, int]:
    """(workers, schedulers) for the GPU of that rank: one worker for each of its multiprocessors, no schedulers.
    Without a GPU: a worker for each usable core."""
    try:
        devices = _megalith.cuda_devices()
    except _megalith.SystemError:
        devices = []
    if not devices:
        return _megalith.default_num_workers("cpu"), 0
    if not 0 <= rank < len(devices):
        raise UserError(f"[get_configurations_from_gpu] there is no GPU {rank}: there are {len(devices)}")
    return devices[rank].num_multiprocessors, 0
