"""PersistentKernel: a graph built layer by layer, compiled into one persistent kernel, run on the caller's tensors."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from megalith import _megalith, arguments, gates, meta, sources
from megalith._megalith import UserError
from megalith.attention_layers import AttentionLayers
from megalith.drafts import LoopCounts, lookup_of
from megalith.dtensor import DTensor
from megalith.kernel_tensors import KernelTensors
from megalith.layers import DenseLayers
from megalith.meta_tensors import MetaTensors
from megalith.missing_layers import MissingLayers
from megalith.mpk_graph import KNGraph, check_saved, save
from megalith.operator_layers import OperatorLayers
from megalith.parameters import DEFAULTS, MODES, SETTLED, SINGLE_PASS, UNTIL_COMPILE, checked, last_tokens, whole
from megalith.served_requests import ServedRequests
from megalith.speculation import SpeculationLayers
from megalith.tensors import memory_of, numpy_dtype
from megalith.token_layers import TokenLayers
from megalith.token_loop import LOOP_META, TokenLoop


_PROFILED_ITERATIONS = 64  # that a trace has at most


class _Bound:
    """A compiled kernel and all that it runs on. Whoever runs it holds it, so that a finalize() elsewhere frees nothing
    that is in use."""

    def __init__(self, runner: _megalith.GraphRunner, owners: List[Any], watched: sources.Sources):
        self.run = runner.run
        self.runner = runner
        self.trace, self.page = runner.trace, runner.page
        self.read_activation = runner.read_activation
        self.turn = _megalith.Turn("kernel")  # looking at tables, laying out rows and running belong together
        self.sources = watched
        self._owners = owners


class PersistentKernel(DenseLayers, AttentionLayers, TokenLayers, SpeculationLayers, OperatorLayers, MissingLayers):
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
    multiprocessors. Schedulers there are none; their numbers are taken and ignored, like use_cutlass_kernel and
    pinned_ring_capacity.

    ``spec_decode_config``: what spec_decode_class("promptlookup", ...) gives, for a kernel with the layers of
    speculation; ``counts`` says what it gained.

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
        eos_token_id: Any = -1,
        test_mode: bool = False,
        *,
        target: Optional[str] = None,
        profile: bool = False,
        pinned_ring_capacity: int = 8,
    ):
        if not isinstance(mode, str) or mode not in MODES:
            raise UserError(f"[PersistentKernel] mode is {arguments.shown(mode)}, want one of {', '.join(MODES)}")
        if whole("world_size", world_size, 1) != 1:
            raise UserError(f"[PersistentKernel] world_size is {world_size}: several GPUs are not built yet, want 1")
        if whole("mpi_rank", mpi_rank, 0) != 0:
            raise UserError(f"[PersistentKernel] mpi_rank is {mpi_rank}, want 0: world_size is 1")
        if spec_decode_config is not None:
            lookup_of("PersistentKernel", spec_decode_config)
        if target is not None and not (isinstance(target, str) and (target == "cpu" or target.startswith("cuda"))):
            raise UserError(f"[PersistentKernel] target is {arguments.shown(target)}, want cpu or cuda")
        self.mode = mode
        self.world_size = 1
        self.mpi_rank = 0
        self.num_workers = num_workers
        self.num_local_schedulers = num_local_schedulers
        self.num_remote_schedulers = num_remote_schedulers
        self.max_seq_length = max_seq_length
        self.max_num_batched_requests = max_num_batched_requests
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_num_pages = max_num_pages
        self.page_size = page_size
        self.trace_name = trace_name
        self.profiler_tensor = profiler_tensor
        self.profile = profile
        self.pinned_ring_capacity = pinned_ring_capacity
        self.spec_decode_config = spec_decode_config
        self.use_cutlass_kernel = use_cutlass_kernel
        self.eos_token_id = eos_token_id
        self.test_mode = test_mode

        KernelTensors.__init__(self, target)
        self._runner: Optional[_Bound] = None
        self._loop: Optional[TokenLoop] = None
        self._served: Optional[ServedRequests] = None
        self.meta_tensors = MetaTensors(self, meta_tensors)
        self._meta_changed()

    def __setattr__(self, name: str, value: Any) -> None:
        """An attribute that is changed counts, or is refused."""
        if name in SETTLED and name in self.__dict__:
            raise UserError(
                f"[PersistentKernel] {name} is settled when the kernel is made: pass {name}=... to PersistentKernel"
            )
        if name in UNTIL_COMPILE and self.__dict__.get("_compiled") is not None:
            raise UserError(f"[PersistentKernel] the kernel is compiled: change {name} before compile()")
        object.__setattr__(self, name, checked(name, value))

    def _meta_changed(self) -> None:
        """Makes the token loop once all of its tables are there: scripts that run step by step need not have them."""
        if self._loop is None and not self.test_mode and self.mode not in SINGLE_PASS and not self._missing_for_loop():
            self._loop = TokenLoop(self)

    @property
    def eos_token_id(self) -> Any:
        """What ends a sequence in a token loop: a token, or a list of up to 16; -1: none. It may be set between runs."""
        return self._eos_token_id

    @eos_token_id.setter
    def eos_token_id(self, value: Any) -> None:
        self._last_tokens = last_tokens("PersistentKernel", value)
        is_one = value is None or arguments.as_whole(value) is not None
        self._eos_token_id = value if is_one else list(self._last_tokens)  # of an iterator nothing would be left

    def _missing_for_loop(self) -> List[str]:
        return [name for name in LOOP_META if self.meta_tensors.get(name) is None]

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
        self.eos_token_id = kwargs.get("eos_token_id", self.eos_token_id)
        try:
            self._is_compiling = True
            self._compile_and_bind(output_dir)
        finally:
            self._is_compiling = False

    def _compile_and_bind(self, output_dir: Any) -> None:
        graph = self._whole_graph("compile")
        compiled = self._compile(graph)
        if output_dir is not None:
            save("compile", output_dir, compiled)
        memory = self._memory()
        watched = self._sources()
        with sources.in_place("compile", watched):
            runner = _megalith.GraphRunner(graph, compiled, memory)
            if self._is_profiled():
                runner.profile(_PROFILED_ITERATIONS)
            if self._loop is not None:
                self._loop.bind(memory)
        self._runner = _Bound(runner, [*self._places.values(), *self._internals.values()], watched)
        self._graph, self._compiled = graph, compiled

    def _graph_of_layers(self, what: str) -> _megalith.Graph:
        """The layers and, in a token loop, its node: a graph of its own, so that layers may still follow."""
        if self._graph.num_nodes == 0:
            raise UserError(f"[{what}] the kernel has no layers: call some first")
        graph = self._graph.copy() if self._loop is None else self._loop.finish(what)
        if not self.test_mode:  # in which every tensor can be read: so none may go
            gates.take_apart(graph, self._gates)
        return graph

    def _whole_graph(self, what: str) -> _megalith.Graph:
        """What is compiled."""
        graph = self._graph_of_layers(what)
        self._check_overlaps()
        return graph if self.test_mode else _megalith.optimize(graph, target=self.target)

    def _compile(self, graph: _megalith.Graph, plan_only: bool = False) -> _megalith.CompiledKernel:
        return _megalith.compile(
            graph,
            target=self.target,
            num_workers=self.num_workers,
            plan_only=plan_only,
            reuse_arena=not self.test_mode,
        )

    def load_mpk_kernel(self, output_dir: str, **kwargs: Any) -> None:
        """compile() for a kernel that was written to ``output_dir`` before: UserError if these layers make another one
        (``skip_validation=True`` does not look). Machine code is found in the cache, as always. ``eos_token_id`` is
        compile()'s."""
        self._check_building("load_mpk_kernel")
        unknown = set(kwargs) - {"eos_token_id", "skip_validation"}
        if unknown:
            raise UserError(
                f"[load_mpk_kernel] there is no option {min(unknown)!r}; there are output_dir, skip_validation and "
                "eos_token_id"
            )
        if not arguments.flag("load_mpk_kernel", "skip_validation", kwargs.pop("skip_validation", False)):
            check_saved(output_dir, self._compile(self._whole_graph("load_mpk_kernel"), plan_only=True))
        self.compile(**kwargs)

    # ---- running ----------------------------------------------------------------------------------------------

    def _ready(self, what: str) -> _Bound:
        self._check_alive(what)
        if self._runner is None:
            raise UserError(f"[{what}] the kernel is not compiled: call compile() first")
        self.meta_tensors.follow()
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
        with runner.turn("run_test_mode"), sources.in_place("run_test_mode", runner.sources):
            meta.check(self)
            runner.run(1)
            self._write_profiles(runner)

    def __call__(self, default_stream: Any = None, **kwargs: Any) -> None:
        """Runs the kernel. Returns when it has ended and all tensors are written.

        In the modes "offline", "online" and "online_multi_turn" it goes on from token to token: each request of
        ``tokens`` begins at ``step`` with the rest of its prompt, and ends with ``eos_token_id`` or at max_seq_length;
        then ``tokens[r, :step[r] + 1]`` is its sequence. As many requests as max_num_batched_requests work at a time,
        the others follow. In the modes "onepass" and "online_notoken", and in test mode, it runs the layers once, on
        what the meta tensors say now. In the mode "online_pinned" it returns at once, and the kernel runs until it is
        told to end: requests come through ``megalith.mirage.mpk.OnlinePinnedRuntime``, and wait() waits for the end.
        What torch's current stream, or ``default_stream``, was given before is done first.
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
        if loop is not None and loop.serves:
            self.served.launch(functools.partial(self._serve, runner, loop))
            return
        with runner.turn("kernel()"), sources.in_place("kernel()", runner.sources):
            meta.check(self)
            if loop is None:
                runner.run(1)
            elif loop.has_work:
                loop.first.run(1)
                runner.run(0)
            self._write_profiles(runner)

    def _serve(self, runner: _Bound, loop: TokenLoop, served: ServedRequests) -> None:
        with runner.turn("kernel()"), sources.in_place("kernel()", runner.sources):
            meta.check(self)
            if served.first_requests(loop.first):
                served.serve(runner.runner)
                self._write_profiles(runner)

    @property
    def served(self) -> ServedRequests:
        """What a kernel of mode="online_pinned" is asked for while it runs."""
        if self._served is None:
            if self.mode != "online_pinned":
                raise UserError(
                    f'[served] mode is "{self.mode}", want "online_pinned": others take no requests while they run'
                )
            self._served = ServedRequests(self.max_num_batched_requests, self.max_seq_length)
        return self._served

    def wait(self) -> None:
        """Until a run of mode="online_pinned" is over: OnlinePinnedRuntime.shutdown() ends it. Raises what ended it
        otherwise. In other modes a call returns when its run is over, so there is nothing to wait for."""
        if self._served is not None:
            self._served.wait()

    def _is_profiled(self) -> bool:
        return self.profile or self.profiler_tensor is not None

    def _write_profiles(self, runner: _Bound) -> None:
        if self._is_profiled():
            self._write_profile(".perfetto-trace", runner.trace())
            self._write_profile(".profile.html", runner.page())

    def _write_profile(self, ending: str, text: str) -> None:
        path = f"{self.trace_name or 'mirage_0'}{ending}"
        try:
            _megalith.write_file(os.fspath(path), text)
        except (_megalith.SystemError, TypeError, ValueError) as error:
            raise UserError(f'[trace_name] the trace cannot be written to "{path}": {error}') from None

    def read(self, tensor: DTensor) -> Any:
        """What a new tensor held after the last run, as a numpy array (bf16 needs ml_dtypes). In test mode only: else
        tensors that are done with share their memory with others."""
        import numpy

        runner = self._ready("read")
        if not isinstance(tensor, DTensor) or tensor._kernel is not self:
            raise UserError(f"[read] {arguments.shown(tensor)} is no tensor of this kernel")
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
        """Frees everything and lets the tensors go; ends a run of mode="online_pinned". Calling it again does nothing."""
        if self._served is not None:
            self._served.close()
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
        self.meta_tensors.let_go()

    def __enter__(self) -> "PersistentKernel":
        return self

    def __exit__(self, *_: object) -> None:
        self.finalize()

    # ---- looking at it ----------------------------------------------------------------------------------------

    @property
    def graph(self) -> _megalith.Graph:
        """The graph that the layers made; str() prints it."""
        return self._graph

    def to_file(self) -> str:
        """The layers so far as a text that `megalith bench graph` reads: with the operators that Python declares, and
        with what the integer tensors hold now. UserError for a token loop, and once the kernel is compiled."""
        self._check_building("to_file")
        graph = self._graph_of_layers("to_file")
        graph.tidy()
        values = {name: [int(v) for v in table.flat] for name, table in self._internals.items()}
        for storage in self._places.values():
            if storage.memory is not None and storage.graph_id is not None and storage.dtype in ("i32", "i64"):
                values[storage.name] = meta.held(storage)
        return graph.to_file(values)

    @property
    def compiled(self) -> _megalith.CompiledKernel:
        """The compiled kernel: ``.tasks``, ``.source``, ``.report``."""
        self._ready("compiled")
        assert self._compiled is not None
        return self._compiled

    @property
    def kn_graph(self) -> KNGraph:
        """For scripts that write the task graph and the source to files themselves."""
        return KNGraph(self)

    @property
    def counts(self) -> LoopCounts:
        """Of the last run of a token loop: its iterations, and what became of drafts in them."""
        self._ready("counts")
        if self._loop is None:
            raise UserError(
                '[counts] only a token loop counts: make the kernel with mode="offline" and its meta tensors'
            )
        return self._loop.counts()

    @property
    def total_num_requests(self) -> int:
        """Requests that the token loop works through: the rows of the meta tensor ``tokens``."""
        tokens = self.meta_tensors.get("tokens")
        return self.max_num_batched_requests if tokens is None else memory_of(tokens, "tokens").shape[0]

    def init_func(self, *_: Any, **__: Any) -> None:
        """Nothing is to be prepared between runs: each begins with what the meta tensors say."""
        self._ready("init_func")

    init_request_func = init_func

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_layer"):
            if name[: -len("_layer")] in _megalith.Registry.shared():
                return functools.partial(self.operator_layer, name[: -len("_layer")])
            layers = sorted(
                n for n in dir(type(self)) if n.endswith("_layer") and n[0] != "_" and not hasattr(MissingLayers, n)
            )
            raise AttributeError(f"PersistentKernel has no {name} yet; there are {', '.join(layers)}")
        raise AttributeError(f"PersistentKernel has no attribute {name!r}")

    def __repr__(self) -> str:
        state = "finalized" if self._finalized else "compiled" if self._compiled else "being built"
        return f"<PersistentKernel for {self.target}, {state}: {self._graph.num_nodes} nodes>"


# Scripts for MPK cut the columns of their padded vocabulary into a task a worker.
_PADDED_VOCABULARY = 153600


def get_configurations_from_gpu(rank: int = 0) -> Tuple[int, int]:
    """(workers, schedulers) for the GPU of that rank, or for the usable cores without a GPU: as many workers as there
    are multiprocessors or cores, but no more than divide 153,600, to which scripts for MPK pad the vocabulary (128 of
    an H100's 132); no schedulers."""
    rank = arguments.whole("get_configurations_from_gpu", "rank", rank, 0)
    try:
        devices = _megalith.cuda_devices()
    except _megalith.SystemError:
        devices = []
    if not devices:
        most = _megalith.default_num_workers("cpu")
    elif rank >= len(devices):
        raise UserError(f"[get_configurations_from_gpu] there is no GPU {rank}: there are {len(devices)}")
    else:
        most = devices[rank].num_multiprocessors
    return next(n for n in range(most, 0, -1) if _PADDED_VOCABULARY % n == 0), 0
