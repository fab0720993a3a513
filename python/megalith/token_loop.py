"""The token loop inside a PersistentKernel: what goes on from token to token between launch and end.

The last node of such a graph, next_batch, takes in the tokens that the iteration made, ends and admits requests, and
lays out the next iteration's rows and pages in MPK's meta tensors, where all layers read them. It ends the loop when
nothing is left to do. The first rows are laid out by a kernel of that one node, run before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from megalith import _megalith
from megalith._megalith import UserError
from megalith.drafts import LoopCounts, PromptLookup
from megalith.dtensor import DTensor
from megalith.parameters import MAX_LAST_TOKENS

if TYPE_CHECKING:
    from megalith.persistent_kernel import PersistentKernel

LOOP_META = (
    "step", "tokens", "input_tokens", "output_tokens", "prompt_lengths", "qo_indptr_buffer", "paged_kv_indptr_buffer",
    "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer",
)  # fmt: skip
_NODE, _SERVING = "next_batch", "serve_batch"
_OPERANDS = (
    "output_tokens", "prompt_lengths", "config", "tokens", "step", "slots", "input_tokens", "qo_indptr_buffer",
    "paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer", "num_new_tokens", "stop",
)  # fmt: skip
# What a loop that takes requests while it runs has beside them, in memory that its runner makes.
_MAIL = ("loop.mailbox", "loop.inbox")
_MAILBOX_WORDS = 64  # at least: runtime/mailbox.h
# Places in the tables `config` and `slots`, of which the latter has _PER_SLOT of each slot and then what _STATE counts
# (kernels/cpu/next_batch.h).
_VOCABULARY, _LAST_TOKENS = 3, 4
_PER_SLOT, _STATE, _COUNTS = 4, 7, 2


class TokenLoop:
    """The loop's node and its tables."""

    def __init__(self, kernel: "PersistentKernel"):
        import numpy

        self.kernel = kernel
        self.serves = kernel.mode == "online_pinned"
        self.tensors: Dict[str, DTensor] = {name: kernel._meta(name, "PersistentKernel") for name in LOOP_META}
        slots, rows = kernel.max_num_batched_requests, kernel.max_num_batched_tokens
        self.pages_per_slot = -(-kernel.max_seq_length // kernel.page_size)
        self._check_sizes(slots, rows)
        self.num_requests = self.tensors["prompt_lengths"].num_elements
        for name, tensor in self.tensors.items():
            if name not in ("output_tokens", "prompt_lengths"):
                if tensor._storage.memory is not None and not tensor._storage.memory.writable:
                    raise UserError(
                        f'[PersistentKernel] the meta tensor "{name}" is read-only, but the token loop writes it'
                    )
                tensor._storage.writer, tensor._storage.is_read = "the token loop", True
        if kernel.meta_tensors.get("num_new_tokens") is not None:
            self.tensors["num_new_tokens"] = kernel._meta("num_new_tokens", "PersistentKernel")
            self._want(self.tensors["num_new_tokens"], slots, "max_num_batched_requests")
        config = [kernel.max_seq_length, kernel.page_size, self.pages_per_slot, 0] + [-1] * MAX_LAST_TOKENS
        self.tables: Dict[str, Any] = {
            "config": numpy.array(config, numpy.int32),
            "slots": numpy.zeros(_PER_SLOT * slots + _STATE, numpy.int32),
            "stop": numpy.zeros(1, numpy.int32),
            "num_new_tokens": numpy.zeros(slots, numpy.int32),
        }
        self.has_work = False
        self._lookup: Optional[PromptLookup] = None
        self._first: Optional[_megalith.GraphRunner] = None

    def _add(self, graph: _megalith.Graph, ids: Dict[str, int]) -> str:
        """Adds the node; its name."""
        name = _NODE
        operands: Tuple[str, ...] = _OPERANDS
        if self.serves:
            name, operands = _SERVING, _OPERANDS + _MAIL
            sizes = (_MAILBOX_WORDS, self.tensors["tokens"].num_elements)
            ids.update({one: graph.state(one, "i32", [size]) for one, size in zip(_MAIL, sizes)})
        match, drafts = self._lookup or (0, 0)
        attributes = {"draft_tokens": float(drafts), "draft_match": float(match)}
        graph.add(name, name, [ids[one] for one in operands], attributes=attributes)
        return name

    def finish(self, what: str) -> _megalith.Graph:
        """A copy of the kernel's graph with the loop's node behind its layers."""
        output = self.tensors["output_tokens"]
        if output._storage.writer is None:
            raise UserError(
                f'[{what}] no layer writes the meta tensor "output_tokens", which the token loop takes in: '
                "attach it and "
                "end with argmax_layer, argmax_reduce_layer or sampling_layer on it"
            )
        kernel = self.kernel
        self._lookup = kernel._checked_lookup(what)
        ids = {name: kernel._graph_tensor(t, (t.num_elements,)) for name, t in self.tensors.items()}
        graph = kernel._graph.copy()
        for name, table in self.tables.items():
            if name not in ids:
                kernel._internals[name] = table
                ids[name] = graph.state(name, "i32", list(table.shape))
        graph.set_gate(self._add(graph, ids), ids["stop"])
        return graph

    def bind(self, memory: Dict[str, Tuple[int, bool, int, int]]) -> None:
        """Makes the kernel that lays out the first rows, on the same memory."""
        graph = _megalith.Graph(_NODE)
        ids: Dict[str, int] = {}
        for name, tensor in self.tensors.items():
            ids[name] = graph.state(tensor._storage.name, tensor.dtype, [tensor.num_elements])
        for name, table in self.tables.items():
            if name not in ids:
                ids[name] = graph.state(name, "i32", [table.size])
        self._add(graph, ids)
        compiled = _megalith.compile(graph, target=self.kernel.target, num_workers=1)
        self._first = _megalith.GraphRunner(graph, compiled, memory)

    def _want(self, tensor: DTensor, size: int, why: str) -> None:
        if tensor.num_elements != size:
            raise UserError(
                f'[PersistentKernel] the meta tensor "{tensor.name}" has {tensor.num_elements} entries, want '
                f"{size}: {why}"
            )

    def _check_sizes(self, slots: int, rows: int) -> None:
        kernel, tensors = self.kernel, self.tensors
        requests = tensors["prompt_lengths"].num_elements
        for name, size, why in (
            ("step", requests, "as prompt_lengths"),
            ("input_tokens", rows, "max_num_batched_tokens"),
            ("output_tokens", rows, "max_num_batched_tokens"),
            ("qo_indptr_buffer", slots + 1, "one more than max_num_batched_requests"),
            ("paged_kv_indptr_buffer", slots + 1, "one more than max_num_batched_requests"),
            ("paged_kv_last_page_len_buffer", slots, "max_num_batched_requests"),
        ):
            self._want(tensors[name], size, why)
        tokens = tensors["tokens"]
        if tokens.num_dims != 2 or tokens.dims[0] != requests or tokens.dims[1] < kernel.max_seq_length:
            raise UserError(
                f'[PersistentKernel] the meta tensor "tokens" is {list(tokens.dims)}, want [{requests}, '
                f"{kernel.max_seq_length}]: a sequence of max_seq_length tokens for each entry of prompt_lengths"
            )
        if self.serves and requests < slots:
            raise UserError(
                f'[PersistentKernel] the meta tensor "tokens" has rows for {requests} requests, want '
                f"{slots}: max_num_batched_requests, each of which has a row while it is worked on"
            )
        pages = slots * self.pages_per_slot
        have = min(kernel.max_num_pages, tensors["paged_kv_indices_buffer"].num_elements)
        if have < pages:
            raise UserError(
                f"[PersistentKernel] there are {have} pages (max_num_pages, paged_kv_indices_buffer), want {pages}: "
                f"{slots} requests of {kernel.max_seq_length} tokens in pages of {kernel.page_size}"
            )

    def begin(self, values: Dict[str, List[int]]) -> None:
        """Checks the texts, whose numbers are ``values`` by meta tensor, and readies the tables for a launch."""
        kernel = self.kernel
        if not self.serves:
            self._check_texts(values)
        tables = self.tables
        last = kernel._last_tokens
        tables["config"][_LAST_TOKENS:] = last + [-1] * (MAX_LAST_TOKENS - len(last))
        tables["config"][_VOCABULARY] = kernel._vocabulary
        tables["slots"][:] = 0
        tables["slots"][: kernel.max_num_batched_requests] = -1
        tables["stop"][0] = 0

    def _check_texts(self, values: Dict[str, List[int]]) -> None:
        kernel = self.kernel
        longest, text = kernel.max_seq_length, self.tensors["tokens"].dims[1]
        slots, is_chat = kernel.max_num_batched_requests, kernel.mode == "online_multi_turn"
        self.has_work = False
        for r in range(self.num_requests):
            step, prompt = values["step"][r], values["prompt_lengths"][r]
            if is_chat and 1 <= prompt <= step < longest:
                continue  # it has no turn
            self.has_work = True
            if is_chat and step > 0 and self.num_requests > slots:
                raise UserError(
                    f'the meta tensor "step" has {step} at [{r}], want 0: the keys of earlier turns are kept where each of '
                    f"the {self.num_requests} requests has a slot, and max_num_batched_requests is {slots}"
                )
            if not 1 <= prompt < longest:
                raise UserError(
                    f'the meta tensor "prompt_lengths" has {prompt} at [{r}], want 1 to {longest - 1}: '
                    "max_seq_length is "
                    f"{longest}, and a token is to be made"
                )
            if not 0 <= step < prompt:
                raise UserError(
                    f'the meta tensor "step" has {step} at [{r}], want 0 to {prompt - 1}: the prompt has '
                    f"{prompt} tokens"
                )
            for i in range(step, prompt):
                token = values["tokens"][r * text + i]
                if not 0 <= token < kernel._vocabulary:
                    raise UserError(
                        f'the meta tensor "tokens" has the token {token} at [{r}, {i}], but the vocabulary has '
                        f"{kernel._vocabulary}"
                    )

    def counts(self) -> LoopCounts:
        counts = self.tables["slots"][_COUNTS - _STATE :]
        return LoopCounts(*(int(counts[i]) for i in range(len(LoopCounts._fields))))

    @property
    def first(self) -> _megalith.GraphRunner:
        """Runs the loop's node alone, which lays out the first rows."""
        assert self._first is not None
        return self._first
