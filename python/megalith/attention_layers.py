"""The attention layers of a PersistentKernel, over a contiguous cache and over pages.

All take a fused projection: of each key head's group the query heads, then the key, then the value, as
``shuffle_tensors([w_q, w_k, w_v], 0, num_kv_heads, ...)`` stacks the weights. Each layer is a handful of nodes: the
heads are taken apart, normalised and rotated if weights and tables are given, appended to the cache, and attended to
chunk by chunk of the positions. What lies between the nodes is f32.
"""

from __future__ import annotations

import math
from typing import Dict, List, NamedTuple, Optional, Tuple

from megalith import attention_operators, layer_operators
from megalith._megalith import UserError
from megalith.arguments import as_whole, shown
from megalith.dtensor import DTensor
from megalith.kernel_tensors import KernelTensors
from megalith.layer import Layer
from megalith.partition import Axis

Dims = Optional[Tuple[int, int, int]]

# Positions that one task attends to, as the rule split_kv deals them. Part of the meaning (sums are formed chunk by
# chunk), not of the partition.
_CHUNK = 256

# What fuse_attention looks for: of each row the position at which its request begins in this iteration.
_ROW_START = "row_start"

PAGED_META = (
    "qo_indptr_buffer",
    "paged_kv_indptr_buffer",
    "paged_kv_indices_buffer",
    "paged_kv_last_page_len_buffer",
)


class _Heads(NamedTuple):
    groups: int  # key heads
    per_group: int  # query heads of each
    size: int


class _Operands(NamedTuple):
    """What all attention layers take."""

    input: DTensor
    k_cache: DTensor
    v_cache: DTensor
    norms: Optional[Tuple[DTensor, DTensor]]
    tables: Optional[Tuple[DTensor, DTensor]]
    heads: _Heads


class _Rows(NamedTuple):
    """Tensors of the graph that say whose the rows are."""

    request: int
    position: int
    page_table: int
    dim: object  # the dimension that counts rows: a number, or (largest, dynamic size)
    reads: List[DTensor]


class AttentionLayers(KernelTensors):
    """The layers with attention; a part of PersistentKernel."""

    # ---- what they share --------------------------------------------------------------------------------------

    def _attention_operands(
        self, layer: Layer, input, k_cache, v_cache, q_norm, k_norm, cos_pos_embed, sin_pos_embed, num_q_heads: int
    ) -> _Operands:
        input = layer.floats(input, "input")
        k_cache = layer.floats(k_cache, "k_cache", rank=4)
        v_cache = layer.floats(v_cache, "v_cache", rank=4)
        layer.want_dims(v_cache, "v_cache", k_cache.dims, f'as k_cache "{k_cache.name}"')
        layer.apart(k_cache=k_cache, v_cache=v_cache)
        groups, size = k_cache.dims[2:]
        if num_q_heads < 1 or num_q_heads % groups != 0:
            raise UserError(
                f"[{layer.kind}] {num_q_heads} query heads cannot be shared among the {groups} key heads of k_cache "
                f'"{k_cache.name}" {list(k_cache.dims)}'
            )
        heads = _Heads(groups, num_q_heads // groups, size)
        columns = groups * (heads.per_group + 2) * size
        if input.dims[1] != columns:
            raise UserError(
                f'[{layer.kind}] input "{input.name}" has {input.dims[1]} columns, want {columns}: '
                f"{num_q_heads} query, "
                f"{groups} key and {groups} value heads of {size}"
            )
        if input._dealt is not None and input._dealt != (3, groups):
            raise UserError(
                f'[{layer.kind}] input "{input.name}" comes from {input._dealt[0]} weights stacked in '
                f"{input._dealt[1]} "
                f"groups, but there are {groups} key heads: stack q, k and v with num_groups={groups}"
            )
        norms = self._pair(layer, "q_norm", q_norm, "k_norm", k_norm, 1)
        for norm in norms or ():
            if norm.dims != (size,):
                raise UserError(
                    f'[{layer.kind}] the norm "{norm.name}" is {list(norm.dims)}, want [{size}]: one head of '
                    f'"{k_cache.name}"'
                )
        tables = self._pair(layer, "cos_pos_embed", cos_pos_embed, "sin_pos_embed", sin_pos_embed, 2)
        if tables is not None:
            layer.want_dims(tables[1], "sin_pos_embed", tables[0].dims, f'as cos_pos_embed "{tables[0].name}"')
            if tables[0].dims[1] != size or size % 2 != 0:
                raise UserError(
                    f'[{layer.kind}] the table "{tables[0].name}" is {list(tables[0].dims)}, want [positions, {size}]: '
                    f'as wide as a head of "{k_cache.name}", which must be even'
                )
        return _Operands(input, k_cache, v_cache, norms, tables, heads)

    @staticmethod
    def _pair(layer: Layer, first_role, first, second_role, second, rank) -> Optional[Tuple[DTensor, DTensor]]:
        if first is None and second is None:
            return None
        if first is None or second is None:
            given, missing = (second_role, first_role) if first is None else (first_role, second_role)
            raise UserError(f"[{layer.kind}] {given} is given without {missing}: give both, or neither")
        return layer.floats(first, first_role, rank=rank), layer.floats(second, second_role, rank=rank)

    @staticmethod
    def _chunks(positions: int, chunks: Optional[int] = None) -> Tuple[int, int]:
        """How many chunks, and positions in each, so that together they hold at least ``positions``."""
        if chunks is None:
            return -(-positions // _CHUNK), _CHUNK
        return chunks, -(-positions // chunks)

    def _append(self, layer: Layer, o: _Operands, rows: _Rows) -> int:
        """Nodes from the fused projection to the cache: the queries."""
        groups, per_group, size = o.heads

        def scratch(name: str, *shape: int) -> int:
            return layer.scratch(name, "f32", (rows.dim, *shape))

        q, k, v = layer.node(
            "split_heads",
            [layer.id(o.input)],
            {
                "q": scratch("q", groups * per_group * size),
                "k": scratch("k", groups * size),
                "v": scratch("v", groups * size),
            },
            suffix="split",
            sizes={"G": groups, "E": per_group + 2},
        )
        if o.norms is not None:
            q = layer.node("head_norm", [q, layer.id(o.norms[0])], suffix="q_norm")[0]
            k = layer.node("head_norm", [k, layer.id(o.norms[1])], suffix="k_norm")[0]
        if o.tables is not None:
            tables = [layer.id(table) for table in o.tables]
            heads = {"M": size // 2}
            q = layer.node("rope", [q, *tables, rows.position], suffix="q_rope", sizes=heads)[0]
            k = layer.node("rope", [k, *tables, rows.position], suffix="k_rope", sizes=heads)[0]
        caches = [layer.id(o.k_cache), layer.id(o.v_cache)]
        layer.node("kv_append", [k, v, rows.page_table, rows.request, rows.position, *caches], suffix="append")
        return q

    def _attend_to_chunks(
        self, layer: Layer, o: _Operands, rows: _Rows, q: int, chunks: int, length: int, pieces: Dict[str, int]
    ) -> List[int]:
        """The chunks' parts."""
        return layer.node(
            "attention_partial",
            [q, layer.id(o.k_cache), layer.id(o.v_cache), rows.page_table, rows.request, rows.position],
            suffix="part",
            sizes={"C": chunks, "L": length},
            attributes={"scale": 1 / math.sqrt(o.heads.size)},
            pieces=pieces,
        )

    def _attend(
        self, layer: Layer, o: _Operands, rows: _Rows, output: DTensor, positions: int, pieces: Dict[str, int]
    ) -> None:
        """Nodes from the fused projection to the output, of which rows behind the last request's are left alone."""
        q = self._append(layer, o, rows)
        y = layer.id(output)
        if not self.test_mode:  # a rule makes of it what the target runs
            layer.node(
                "attention",
                [q, layer.id(o.k_cache), layer.id(o.v_cache), rows.page_table, rows.request, rows.position],
                {"y": y},
                sizes={"S": positions},
                attributes={"scale": 1 / math.sqrt(o.heads.size)},
                pieces=pieces,
            )
            return
        chunks, length = self._chunks(positions)
        parts = self._attend_to_chunks(layer, o, rows, q, chunks, length, pieces)
        merged = {"a" if axis == "g" else axis: count for axis, count in pieces.items()}
        layer.node("attention_merge", [*parts, rows.position], {"y": y}, sizes={"L": length}, pieces=merged)

    def _attention_reads(self, layer: Layer, o: _Operands, rows_read: List[DTensor]) -> List[DTensor]:
        reads = [o.input, *(o.norms or ()), *(o.tables or ()), *rows_read]
        layer.reads(*reads)
        layer.writes(o.k_cache, o.v_cache, fresh=False)
        return [*reads, o.k_cache, o.v_cache]

    @staticmethod
    def _attention_pieces(layer: Layer, o: _Operands, x: Axis, chunks: Optional[int] = None) -> Dict[str, int]:
        """grid_dim.x cuts requests, which rows know only at run time; y cuts key heads; z chunks."""
        z = Axis("c", chunks, f"the {chunks} chunks of positions") if chunks is not None else None
        y = Axis("g", o.heads.groups, f'the {o.heads.groups} key heads of "{o.k_cache.name}"')
        return layer.pieces(x=x, y=y, z=z)

    # ---- a contiguous cache -----------------------------------------------------------------------------------

    def attention_layer(
        self,
        input: DTensor,
        k_cache: DTensor,
        v_cache: DTensor,
        q_norm: Optional[DTensor],
        k_norm: Optional[DTensor],
        cos_pos_embed: Optional[DTensor],
        sin_pos_embed: Optional[DTensor],
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """Attention of one new token per request, over a cache that is one stretch per request.

        ``input``: (requests, (query heads + 2 key heads) * head_dim), group by group. ``k_cache``, ``v_cache``:
        (requests, positions, key heads, head_dim); the new keys and values are written into them. ``q_norm``,
        ``k_norm``: (head_dim,), or None. ``cos_pos_embed``, ``sin_pos_embed``: (positions, head_dim), or None.
        ``output``: (requests, query heads * head_dim). The meta tensor ``step``, i32 (requests,), has each request's
        position. grid_dim.x cuts requests, y key heads.
        """
        layer = self._layer("attention_layer", grid_dim, block_dim)
        output = layer.floats(output, "output")
        size = layer.floats(k_cache, "k_cache", rank=4).dims[3]
        o = self._attention_operands(
            layer, input, k_cache, v_cache, q_norm, k_norm, cos_pos_embed, sin_pos_embed, output.dims[1] // size
        )
        num_rows, positions = o.input.dims[0], o.k_cache.dims[1]
        layer.want_dims(
            output, "output", (num_rows, o.heads.groups * o.heads.per_group * size), f'rows of "{o.input.name}"'
        )
        if o.k_cache.dims[0] != num_rows:
            raise UserError(
                f'[attention_layer] k_cache "{o.k_cache.name}" holds {o.k_cache.dims[0]} requests, but input '
                f'"{o.input.name}" has {num_rows} rows: one a request'
            )
        step = self._meta("step", layer.kind)
        if step.num_elements != num_rows:
            raise UserError(
                f'[attention_layer] the meta tensor "step" has {step.num_elements} entries, but input '
                f'"{o.input.name}" has '
                f"{num_rows} rows: one a request"
            )
        pieces = self._attention_pieces(layer, o, Axis("t", num_rows, f'the {num_rows} rows of "{o.input.name}"'))
        chunks, length = self._chunks(positions)
        reads = self._attention_reads(layer, o, [step])
        layer.writes(output)
        self._check_step(step, min(positions, o.tables[0].dims[0] if o.tables else positions))

        # One page a request, as long as its stretch of the cache; further ones are there only for whole chunks.
        pages = -(-chunks * length // positions)
        table = [r if page == 0 else 0 for r in range(num_rows) for page in range(pages)]
        position = layer.narrow(step)
        if not self.test_mode:  # a request has one row, which begins where it is
            start = layer.scratch(_ROW_START, "i32", (num_rows,))
            layer.node(layer_operators.copy_tokens, [position], {"y": start}, suffix=_ROW_START)
        rows = _Rows(
            self._internal(f"{layer.name}.request", list(range(num_rows))),
            position,
            self._internal(f"{layer.name}.pages", table, (num_rows, pages)),
            num_rows,
            [],
        )
        self._attend(layer, o, rows, output, positions, pieces)
        layer.done(reads=reads, writes=[output, o.k_cache, o.v_cache])
        self._keep_caches_readable(o)

    @staticmethod
    def _keep_caches_readable(o: _Operands) -> None:
        # A cache lives on: that nobody reads it again in this iteration loses nothing.
        o.k_cache._storage.is_read = o.v_cache._storage.is_read = True

    # ---- pages ------------------------------------------------------------------------------------------------

    def _paged_rows(self, layer: Layer, o: _Operands, positions: int) -> _Rows:
        """From the meta tensors to rows. Made once, and shared by all layers with the same needs."""
        metas = [self._meta(name, layer.kind) for name in PAGED_META]
        first_row, first_page, indices, last_length = metas
        requests, page_size = self.max_num_batched_requests, o.k_cache.dims[1]
        for meta, size in ((first_row, requests + 1), (first_page, requests + 1), (last_length, requests)):
            if meta.num_elements != size:
                raise UserError(
                    f'[{layer.kind}] the meta tensor "{meta.name}" has {meta.num_elements} entries, want {size}: '
                    f"max_num_batched_requests is {requests}"
                )
            if meta.dtype != "i32":
                raise UserError(f'[{layer.kind}] the meta tensor "{meta.name}" is {meta.dtype}, want i32')
        num_rows = o.input.dims[0]
        pages = -(-positions // page_size)
        key = (num_rows, page_size, pages)
        if key not in self._paged:
            count = f"rows_{num_rows}"
            if not any(rows == num_rows for rows, _, _ in self._paged):
                self._graph.dynamic_size(count, layer.flat(first_row), requests)
            dim = (num_rows, count)
            name = f"paged_{len(self._paged)}"
            request, position, start, table = (
                self._graph.activation(f"{name}.request", "i32", [dim]),
                self._graph.activation(f"{name}.position", "i32", [dim]),
                self._graph.activation(f"{name}.{_ROW_START}", "i32", [dim]),
                self._graph.activation(f"{name}.pages", "i32", [requests, pages]),
            )
            # In front of everything that does not make the tables itself: all of it is done meanwhile.
            is_made = any(meta._storage.writer not in (None, "the token loop") for meta in metas)
            self._graph.insert(
                self._graph.num_nodes if is_made else 0,
                attention_operators.paged_rows.name,
                name,
                [layer.flat(meta) for meta in metas],
                sizes={"B": page_size},
                outputs={"request": request, "position": position, "start": start, "page_table": table},
            )
            self._paged[key] = (request, position, table, dim)
        return _Rows(*self._paged[key], metas)

    def _paged_cache(self, layer: Layer, o: _Operands) -> None:
        for index, name, value in ((0, "max_num_pages", self.max_num_pages), (1, "page_size", self.page_size)):
            if o.k_cache.dims[index] != value:
                raise UserError(
                    f'[{layer.kind}] k_cache "{o.k_cache.name}" is {list(o.k_cache.dims)}, want (pages, page_size, key '
                    f"heads, head_dim) with dimension {index} equal to {name}, which is {value}"
                )

    def _longest(self, o: _Operands) -> int:
        """Positions that a request may have: what all pages of the cache hold, even if max_seq_length is larger."""
        return min(self.max_seq_length, o.k_cache.dims[0] * o.k_cache.dims[1])

    def _check_paged(self, o: _Operands, positions: int) -> None:
        limit = min(positions, o.tables[0].dims[0]) if o.tables else positions
        self._paged_limits.append((o.input.dims[0], o.k_cache.dims[0], limit))

    def paged_attention_layer(
        self,
        input: DTensor,
        k_cache: DTensor,
        v_cache: DTensor,
        q_norm: Optional[DTensor],
        k_norm: Optional[DTensor],
        cos_pos_embed: Optional[DTensor],
        sin_pos_embed: Optional[DTensor],
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """Attention of a batch of requests, each with any number of new tokens, over a cache in pages.

        ``input``: (rows, (query heads + 2 key heads) * head_dim), group by group. ``k_cache``, ``v_cache``:
        (max_num_pages, page_size, key heads, head_dim); new keys and values are written into them. ``q_norm``,
        ``k_norm``: (head_dim,), or None. ``cos_pos_embed``, ``sin_pos_embed``: (positions, head_dim), or None.
        ``output``: (rows, query heads * head_dim); rows behind the last request's are left alone. The meta tensors
        qo_indptr_buffer, paged_kv_indptr_buffer, paged_kv_indices_buffer and paged_kv_last_page_len_buffer, all i32,
        say whose the rows and pages are; they are read anew in every run. grid_dim.x cuts requests, y key heads.
        """
        self._paged_attention(
            "paged_attention_layer", input, k_cache, v_cache, q_norm, k_norm, cos_pos_embed, sin_pos_embed, output,
            grid_dim, block_dim,
        )  # fmt: skip

    def single_batch_extend_attention_layer(
        self,
        input: DTensor,
        k_cache: DTensor,
        v_cache: DTensor,
        q_norm: Optional[DTensor],
        k_norm: Optional[DTensor],
        cos_pos_embed: Optional[DTensor],
        sin_pos_embed: Optional[DTensor],
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """Attention of requests whose last tokens have drafts behind them: paged_attention_layer, which takes any number
        of new tokens of each of (max_num_batched_requests) requests. Caches are as there. Keys of drafts that were wrong are
        written anew before anybody looks at them. grid_dim.x cuts requests, y key heads."""
        self._paged_attention(
            "single_batch_extend_attention_layer", input, k_cache, v_cache, q_norm, k_norm, cos_pos_embed,
            sin_pos_embed, output, grid_dim, block_dim,
        )  # fmt: skip

    def _paged_attention(
        self, kind: str, input, k_cache, v_cache, q_norm, k_norm, cos_pos_embed, sin_pos_embed, output, grid_dim, block_dim
    ) -> None:
        layer = self._layer(kind, grid_dim, block_dim)
        output = layer.floats(output, "output")
        size = layer.floats(k_cache, "k_cache", rank=4).dims[3]
        o = self._attention_operands(
            layer, input, k_cache, v_cache, q_norm, k_norm, cos_pos_embed, sin_pos_embed, output.dims[1] // size
        )
        self._paged_cache(layer, o)
        num_rows = o.input.dims[0]
        layer.want_dims(
            output, "output", (num_rows, o.heads.groups * o.heads.per_group * size), f'rows of "{o.input.name}"'
        )
        requests = self.max_num_batched_requests
        pieces = self._attention_pieces(layer, o, Axis("", requests, f"the {requests} requests"))
        chunks, length = self._chunks(self._longest(o))
        rows = self._paged_rows(layer, o, chunks * length)
        reads = self._attention_reads(layer, o, rows.reads)
        layer.writes(output, covers=rows.dim)
        self._attend(layer, o, rows, output, self._longest(o), pieces)
        self._check_paged(o, self._longest(o))
        layer.done(reads=reads, writes=[output, o.k_cache, o.v_cache])
        self._keep_caches_readable(o)

    @staticmethod
    def _check_chunks(layer: Layer, lse: DTensor, part: DTensor, heads: _Heads, part_role: str, chunks: int) -> None:
        """(rows, chunks * heads a group, groups) and (rows, chunks * heads a group * head_dim, groups)."""
        rows = part.dims[0]
        why = f"{chunks} chunks of {heads.per_group} heads a group, {heads.groups} groups"
        layer.want_dims(lse, "lse", (rows, chunks * heads.per_group, heads.groups), why)
        layer.want_dims(part, part_role, (rows, chunks * heads.per_group * heads.size, heads.groups), why)

    @staticmethod
    def _attention_params(layer: Layer, attention_params: object, second: str) -> Tuple[int, int]:
        """(query heads, ``second``), as MPK's tasks have them."""
        pair = attention_params[:2] if isinstance(attention_params, (tuple, list)) else ()
        if len(pair) != 2 or not all((as_whole(value) or 0) > 0 for value in pair):
            raise UserError(
                f"[{layer.kind}] attention_params is {shown(attention_params)}, want two whole numbers: (query heads, "
                f"{second})"
            )
        return int(pair[0]), int(pair[1])

    def paged_attention_split_kv_layer(
        self,
        input: DTensor,
        k_cache: DTensor,
        v_cache: DTensor,
        q_norm: Optional[DTensor],
        k_norm: Optional[DTensor],
        cos_pos_embed: Optional[DTensor],
        sin_pos_embed: Optional[DTensor],
        lse: DTensor,
        output: DTensor,
        attention_params: Tuple[int, ...],
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """The first half of paged_attention_layer: each chunk of positions by itself.

        As paged_attention_layer, but for: ``attention_params``: (query heads, chunks). ``lse``: (rows, chunks * query
        heads a key head, key heads), the logarithm of each chunk's total weight; -inf where a chunk is empty.
        ``output``: (rows, chunks * query heads a key head * head_dim, key heads), each chunk's result. Both are what
        paged_attention_split_kv_merge_layer takes. The chunks are of one length: max_seq_length, or what the cache
        holds if that is less, over their number. grid_dim.x cuts requests, y key heads, z chunks.
        """
        layer = self._layer("paged_attention_split_kv_layer", grid_dim, block_dim)
        lse = layer.floats(lse, "lse", rank=3)
        output = layer.floats(output, "output", rank=3)
        num_q_heads, chunks = self._attention_params(layer, attention_params, "chunks of the positions")
        if chunks > self.max_seq_length:
            raise UserError(
                f"[{layer.kind}] attention_params has {chunks} chunks, want 1 to {self.max_seq_length}: max_seq_length"
            )
        o = self._attention_operands(
            layer, input, k_cache, v_cache, q_norm, k_norm, cos_pos_embed, sin_pos_embed, num_q_heads
        )
        self._paged_cache(layer, o)
        self._check_chunks(layer, lse, output, o.heads, "output", chunks)
        layer.apart(lse=lse, output=output)
        if output.dims[0] != o.input.dims[0]:
            raise UserError(
                f'[{layer.kind}] output "{output.name}" has {output.dims[0]} rows, input "{o.input.name}" '
                f"{o.input.dims[0]}"
            )
        requests = self.max_num_batched_requests
        pieces = self._attention_pieces(layer, o, Axis("", requests, f"the {requests} requests"), chunks)
        chunks, length = self._chunks(self._longest(o), chunks)
        rows = self._paged_rows(layer, o, chunks * length)
        reads = self._attention_reads(layer, o, rows.reads)
        layer.writes(lse, output)
        q = self._append(layer, o, rows)
        part, top, total = self._attend_to_chunks(layer, o, rows, q, chunks, length, pieces)
        layer.node(
            attention_operators.attention_chunks_out,
            [part, top, total, rows.position],
            {"lse": layer.id(lse), "y": layer.id(output)},
            sizes={"L": length, "M": o.heads.per_group},
            pieces=pieces,
        )
        self._check_paged(o, self._longest(o))
        layer.done(reads=reads, writes=[lse, output, o.k_cache, o.v_cache])
        self._keep_caches_readable(o)

    def paged_attention_split_kv_merge_layer(
        self,
        lse: DTensor,
        output_tmp: DTensor,
        output: DTensor,
        attention_params: Tuple[int, ...],
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """The second half: puts the chunks together.

        ``lse``, ``output_tmp``: as paged_attention_split_kv_layer makes them. ``output``: (rows, query heads *
        head_dim); rows behind the last request's become 0. grid_dim.x cuts requests, y key heads.
        """
        layer = self._layer("paged_attention_split_kv_merge_layer", grid_dim, block_dim)
        lse = layer.floats(lse, "lse", rank=3)
        part = layer.floats(output_tmp, "output_tmp", rank=3)
        output = layer.floats(output, "output")
        num_q_heads, head_dim = self._attention_params(layer, attention_params, "head_dim")
        groups = lse.dims[2]
        if num_q_heads % groups != 0:
            raise UserError(f'[{layer.kind}] {num_q_heads} query heads in the {groups} groups of lse "{lse.name}"')
        heads = _Heads(groups, num_q_heads // groups, head_dim)
        chunks = max(1, lse.dims[1] // heads.per_group)
        self._check_chunks(layer, lse, part, heads, "output_tmp", chunks)
        layer.want_dims(output, "output", (part.dims[0], num_q_heads * head_dim), f'rows of "{part.name}"')
        requests = self.max_num_batched_requests
        pieces = layer.pieces(
            x=Axis("", requests, f"the {requests} requests"),
            y=Axis("g", groups, f'the {groups} groups of "{lse.name}"'),
        )
        layer.reads(lse, part)
        layer.writes(output)
        layer.node(
            attention_operators.attention_chunks_in,
            [layer.id(lse), layer.id(part)],
            {"y": layer.id(output)},
            sizes={"C": chunks, "M": heads.per_group},
            pieces=pieces,
        )
        layer.done(reads=[lse, part], writes=[output])
