"""The dense layers of a PersistentKernel: each one or two nodes of the graph.

In all of them ``grid_dim`` says into how many tasks a layer is cut (left out, it is chosen), and ``block_dim`` may be
left out. Activations are rows: (rows, columns). Weights are stored one output after the other: (outputs, inputs), in
any float dtype.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from megalith import layer_operators, partition
from megalith._megalith import UserError
from megalith.arguments import as_whole, flag, number, shown
from megalith.dtensor import DTensor, Product
from megalith.gates import Gate
from megalith.kernel_tensors import KernelTensors
from megalith.layer import Layer
from megalith.partition import Axis, columns_of, rows_of

Dims = Optional[Tuple[int, int, int]]


class DenseLayers(KernelTensors):
    """The layers without attention; a part of PersistentKernel."""

    def embed_layer(
        self,
        input: DTensor,
        weight: DTensor,
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
        input_source: int = 0,
    ) -> None:
        """``output[t] = weight[token t]``.

        ``output``: (rows, hidden). ``weight``: (vocabulary, hidden). ``input_source`` 1: the tokens are those of
        ``input``, one a row, or the rows that the token loop makes of drafts. 0: they are ``tokens[step[0] + t]`` of the meta tensors ``tokens`` and ``step``; ``input``
        is not read. grid_dim.x cuts columns (or rows, if only those divide), y rows.
        """
        layer = self._layer("embed_layer", grid_dim, block_dim)
        if as_whole(input_source) not in (0, 1):
            raise UserError(f"[embed_layer] input_source is {shown(input_source)}, want 0 (tokens) or 1 (input)")
        weight = layer.weight(weight, "weight")
        output = layer.floats(output, "output")
        ids = self._embedded(layer, layer.integers(input, "input"), input_source)
        rows = output.dims[0]
        x = partition.check_triple("embed_layer", "grid_dim", grid_dim)[0] if grid_dim is not None else 1
        if output.dims[1] % x == 0:
            pieces = layer.pieces(x=columns_of("h", output), y=rows_of("t", output))
        else:
            pieces = layer.pieces(x=rows_of("t", output), y=columns_of("h", output))
        reads = [ids]
        if input_source == 1:
            if ids.num_elements != rows:
                raise UserError(
                    f'[embed_layer] input "{ids.name}" has {ids.num_elements} tokens {list(ids.dims)}, but output '
                    f'"{output.name}" has {rows} rows'
                )
            layer.reads(ids)
        else:
            reads = [self._meta("tokens", layer.kind), self._meta("step", layer.kind)]
            if reads[0].num_elements < rows:
                raise UserError(
                    f'[embed_layer] the meta tensor "tokens" has room for {reads[0].num_elements} tokens, '
                    "fewer than the "
                    f'{rows} rows of "{output.name}"'
                )
        layer.writes(output)
        if input_source == 1:
            self._check_tokens(ids, weight.dims[0])
            token_ids = layer.narrow(ids)
        else:
            tokens, step = reads
            self._check_step(step, tokens.num_elements - rows + 1)
            self._check_tokens(tokens, weight.dims[0], step, rows)
            token_ids = layer.node(
                layer_operators.tokens_at,
                [layer.flat(tokens), layer.narrow(step)],
                {"ids": layer.scratch("ids", "i32", (rows,))},
                suffix="tokens",
                sizes={"B": tokens.num_elements - rows + 1},
            )[0]
        layer.node("embedding", [token_ids, layer.id(weight)], {"y": layer.sum(output)}, pieces=pieces)
        layer.constants(weight)
        layer.done(reads=reads, writes=[output], weights=[weight])

    def rmsnorm_layer(
        self,
        input: DTensor,
        weight: DTensor,
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
        eps: float = 1e-6,
    ) -> None:
        """``output = input / sqrt(mean(input^2) + eps) * weight``, row by row.

        ``input``, ``output``: (rows, hidden). ``weight``: (hidden,). grid_dim.x cuts rows.
        """
        layer = self._layer("rmsnorm_layer", grid_dim, block_dim)
        eps = number(layer.kind, "eps", eps, 0)
        input = layer.floats(input, "input")
        weight = layer.weight(weight, "weight", rank=None)
        output = layer.floats(output, "output")
        if weight.num_elements != input.dims[1]:
            raise UserError(
                f'[rmsnorm_layer] weight "{weight.name}" is {list(weight.dims)}, want [{input.dims[1]}] as '
                f'"{input.name}" '
                f"{list(input.dims)} has columns"
            )
        layer.want_dims(output, "output", input.dims, f'as "{input.name}"')
        pieces = layer.pieces(x=rows_of("t", output))
        layer.reads(input)
        layer.writes(output)
        layer.node(
            "rmsnorm",
            [layer.id(input), layer.flat(weight)],
            {"y": layer.id(output)},
            attributes={"eps": eps},
            pieces=pieces,
        )
        layer.constants(weight)
        layer.done(reads=[input], writes=[output], weights=[weight])

    def _check_linear(self, layer: Layer, input: DTensor, weight: DTensor, output: DTensor) -> None:
        if (weight.dims[0], input.dims[0]) == (output.dims[0], output.dims[1]) != (output.dims[1], output.dims[0]):
            raise UserError(
                f'[{layer.kind}] input "{input.name}" is {list(input.dims)} and weight "{weight.name}" '
                f"{list(weight.dims)} "
                f'for output "{output.name}" {list(output.dims)}: the other way round they fit'
            )
        if weight.dims[1] != input.dims[1]:
            raise UserError(
                f'[{layer.kind}] inner dimensions differ: input "{input.name}" is {list(input.dims)}, weight '
                f'"{weight.name}" is {list(weight.dims)}; a weight is (outputs, inputs)'
            )
        layer.want_dims(
            output, "output", (input.dims[0], weight.dims[0]), f'rows of "{input.name}", outputs of "{weight.name}"'
        )

    @staticmethod
    def _deal(layer: Layer, output: DTensor, weight: DTensor, op: str, inputs: List[int], **attributes: float) -> None:
        storage = weight._storage
        if not storage.parts:
            return
        output._dealt = len(storage.parts), storage.groups
        output._product = Product(op, layer.name, inputs, attributes, storage)

    def rmsnorm_linear_layer(
        self,
        input: DTensor,
        weight_norm: DTensor,
        weight_linear: DTensor,
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
        eps: float = 1e-6,
    ) -> None:
        """``output = rmsnorm(input, weight_norm) weight_linear^T``.

        ``input``: (rows, K). ``weight_norm``: (K,). ``weight_linear``: (N, K). ``output``: (rows, N). grid_dim.x cuts
        N.
        """
        layer = self._layer("rmsnorm_linear_layer", grid_dim, block_dim)
        eps = number(layer.kind, "eps", eps, 0)
        input = layer.floats(input, "input")
        norm = layer.weight(weight_norm, "weight_norm", rank=None)
        weight = layer.weight(weight_linear, "weight_linear")
        output = layer.floats(output, "output")
        self._check_linear(layer, input, weight, output)
        if norm.num_elements != input.dims[1]:
            raise UserError(
                f'[rmsnorm_linear_layer] weight_norm "{norm.name}" is {list(norm.dims)}, want '
                f"[{input.dims[1]}]: are the "
                "weights in the right order?"
            )
        pieces = layer.pieces(x=columns_of("n", output))
        layer.reads(input)
        layer.writes(output)
        inputs = [layer.id(input), layer.flat(norm)]
        layer.node(
            "rmsnorm_linear",
            [*inputs, layer.id(weight)],
            {"y": layer.id(output)},
            attributes={"eps": eps},
            pieces=pieces,
        )
        layer.constants(norm, weight)
        layer.done(reads=[input], writes=[output], weights=[norm, weight])
        self._deal(layer, output, weight, "rmsnorm_linear", inputs, eps=eps)

    def linear_layer(
        self, input: DTensor, weight: DTensor, output: DTensor, grid_dim: Dims = None, block_dim: Dims = None
    ) -> None:
        """``output = input weight^T``.

        ``input``: (rows, K). ``weight``: (N, K). ``output``: (rows, N). grid_dim.x cuts N.
        """
        layer = self._layer("linear_layer", grid_dim, block_dim)
        input = layer.floats(input, "input")
        weight = layer.weight(weight, "weight")
        output = layer.floats(output, "output")
        self._check_linear(layer, input, weight, output)
        pieces = layer.pieces(x=columns_of("n", output))
        layer.reads(input)
        layer.writes(output)
        inputs = [layer.id(input)]
        layer.node("linear", [*inputs, layer.id(weight)], {"y": layer.id(output)}, pieces=pieces)
        layer.constants(weight)
        layer.done(reads=[input], writes=[output], weights=[weight])
        self._deal(layer, output, weight, "linear", inputs)

    def linear_with_residual_layer(
        self,
        input: DTensor,
        weight: DTensor,
        residual: DTensor,
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """``output = residual + input weight^T``; ``output`` may be ``residual``.

        ``input``: (rows, K). ``weight``: (N, K). ``residual``, ``output``: (rows, N). grid_dim.x cuts N.
        """
        layer = self._layer("linear_with_residual_layer", grid_dim, block_dim)
        input = layer.floats(input, "input")
        weight = layer.weight(weight, "weight")
        residual = layer.floats(residual, "residual")
        output = layer.floats(output, "output")
        self._check_linear(layer, input, weight, output)
        layer.want_dims(residual, "residual", output.dims, f'as output "{output.name}"')
        pieces = layer.pieces(x=columns_of("n", output))
        layer.reads(input, residual)
        layer.writes(output, fresh=output._storage is not residual._storage)
        self._add_product(layer, layer.id(input), layer.id(weight), residual, output, pieces)
        layer.constants(weight)
        layer.done(reads=[input, residual], writes=[output], weights=[weight])

    @staticmethod
    def _add_product(
        layer: Layer, x: int, weight: int, residual: DTensor, output: DTensor, pieces: Dict[str, int]
    ) -> None:
        """``output = residual + x weight^T``: two nodes, of which the compiler makes one."""
        terms, y = [layer.id(residual)], layer.sum(output)
        graph = layer.kernel._graph
        if graph.tensor(y).dtype == "f32" != graph.tensor(terms[0]).dtype:  # sums are of one dtype where they are fused
            at = 0 if residual._storage.writer is None else graph.num_nodes  # as early as may be: nobody waits for it
            wide = layer.scratch("wide", "f32", output.dims)
            terms = graph.insert(at, "copy", f"{layer.name}.wide", terms, outputs={"y": wide})
        product = layer.scratch("product", "f32", output.dims)
        layer.node("linear", [x, weight], {"y": product}, suffix="product", pieces=pieces)
        layer.node("add", [*terms, product], {"y": y})

    def splitk_linear_layer(
        self,
        input: DTensor,
        weight: DTensor,
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
        *,
        accumulate: bool = True,
    ) -> None:
        """``output = output + input weight^T``, K cut into parts that work side by side.

        ``input``: (rows, K). ``weight``: (N, K). ``output``: (rows, N), with whatever it holds by then: a new tensor
        must have been written before, by tensor_init_layer for example. ``accumulate=False`` takes 0 instead of what is
        there. grid_dim.x cuts N, y cuts K (left out: 4 parts where they divide). The parts are added in f32 and in one
        order, so the result does not depend on who is faster.
        """
        layer = self._layer("splitk_linear_layer", grid_dim, block_dim)
        input = layer.floats(input, "input")
        weight = layer.weight(weight, "weight")
        output = layer.floats(output, "output")
        self._check_linear(layer, input, weight, output)
        columns = input.dims[1]
        pieces = layer.pieces(
            x=columns_of("n", output), y=Axis("", columns, f'the {columns} columns of input "{input.name}"')
        )
        splits = int(grid_dim[1]) if grid_dim is not None else next(s for s in (4, 2, 1) if columns % s == 0)
        accumulate = flag(layer.kind, "accumulate", accumulate)
        layer.reads(input)
        if accumulate and output._storage.memory is None and output._storage.writer is None:
            raise UserError(
                f'[splitk_linear_layer] output "{output.name}" is added to, but it is a new tensor that no layer wrote '
                "before: call tensor_init_layer on it first, or pass accumulate=False"
            )
        layer.writes(output, fresh=not accumulate)
        part = layer.scratch("part", "f32", (splits, *output.dims))
        layer.node(
            "linear_slices",
            [layer.id(input), layer.id(weight)],
            {"part": part},
            suffix="part",
            sizes={"S": splits},
            pieces=dict(pieces, s=splits) if pieces else {},
        )
        if accumulate:
            sums = layer.scratch("sums", "f32", output.dims)
            layer.node("sum_slices", [part], {"y": sums}, suffix="sums", pieces=pieces)
            layer.node("add", [layer.id(output), sums], {"y": layer.id(output)})
        else:
            layer.node("sum_slices", [part], {"y": layer.id(output)}, pieces=pieces)
        layer.constants(weight)
        layer.done(reads=[input], writes=[output], weights=[weight])

    def _silu_groups(self, layer: Layer, input: DTensor, pieces: Optional[int]) -> int:
        """How gates and ups take turns in ``input``: as the weights were stacked that made it; if nobody knows, one
        group a task, as a grid says; without either, all gates stand before all ups."""
        if input._dealt is None:
            return pieces or 1
        parts, groups = input._dealt
        if parts != 2:
            raise UserError(
                f'[{layer.kind}] input "{input.name}" comes from {parts} stacked weights, want two: gate and up'
            )
        return groups

    def _note_gate(self, node: str, input: DTensor, y: int) -> None:
        """``node`` takes gates and ups from ``input``: perhaps they can be had apart (gates.py)."""
        if input._product is not None and input._storage.memory is None:
            assert input._storage.graph_id is not None
            self._gates.append(Gate(node, input._storage.graph_id, y, input._product))

    def silu_mul_layer(self, input: DTensor, output: DTensor, grid_dim: Dims = None, block_dim: Dims = None) -> None:
        """``output = silu(gate) * up``, both in ``input``.

        ``input``: (rows, 2 I). ``output``: (rows, I). Gates and ups take turns in groups: as many as shuffle_tensors()
        dealt for the weights of the layer that made ``input``; for an input from elsewhere one for each task of
        grid_dim.x. grid_dim.x cuts I.
        """
        layer = self._layer("silu_mul_layer", grid_dim, block_dim)
        input = layer.floats(input, "input")
        output = layer.floats(output, "output")
        if input.dims[1] != 2 * output.dims[1] or input.dims[0] != output.dims[0]:
            raise UserError(
                f'[silu_mul_layer] input "{input.name}" is {list(input.dims)}, want [{output.dims[0]}, '
                f'{2 * output.dims[1]}]: gates and ups for output "{output.name}" {list(output.dims)}'
            )
        count = layer.pieces(x=columns_of("i", output)).get("i")
        groups = self._silu_groups(layer, input, count)
        if output.dims[1] % groups != 0:
            raise UserError(f'[silu_mul_layer] {groups} groups do not divide the columns of "{output.name}"')
        pieces = {"g": min(count, groups), "l": -(-count // groups)} if count is not None else {}
        layer.reads(input)
        layer.writes(output)
        layer.node(
            layer_operators.silu_mul_groups,
            [layer.id(input)],
            {"y": layer.id(output)},
            sizes={"G": groups, "L": output.dims[1] // groups},
            pieces=pieces,
        )
        self._note_gate(layer.name, input, layer.id(output))
        layer.done(reads=[input], writes=[output])

    def silu_mul_linear_with_residual_layer(
        self,
        input: DTensor,
        weight: DTensor,
        residual: DTensor,
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """``output = residual + (silu(gate) * up) weight^T``.

        ``input``: (rows, 2 I), gates and ups in groups as for silu_mul_layer (all gates first, if nobody knows).
        ``weight``: (N, I). ``residual``, ``output``: (rows, N). grid_dim.x cuts N.
        """
        layer = self._layer("silu_mul_linear_with_residual_layer", grid_dim, block_dim)
        input = layer.floats(input, "input")
        weight = layer.weight(weight, "weight")
        residual = layer.floats(residual, "residual")
        output = layer.floats(output, "output")
        if input.dims[1] != 2 * weight.dims[1]:
            raise UserError(
                f'[silu_mul_linear_with_residual_layer] inner dimensions differ: input "{input.name}" is '
                f'{list(input.dims)}, gates and ups for {input.dims[1] // 2} columns; weight "{weight.name}" is '
                f"{list(weight.dims)}"
            )
        rows = input.dims[0]
        layer.want_dims(output, "output", (rows, weight.dims[0]), f'rows of "{input.name}", outputs of "{weight.name}"')
        layer.want_dims(residual, "residual", output.dims, f'as output "{output.name}"')
        pieces = layer.pieces(x=columns_of("n", output))
        groups = self._silu_groups(layer, input, None)
        layer.reads(input, residual)
        layer.writes(output, fresh=output._storage is not residual._storage)
        gated = layer.scratch("gated", "f32", (rows, weight.dims[1]))
        layer.node(
            layer_operators.silu_mul_groups,
            [layer.id(input)],
            {"y": gated},
            suffix="gate",
            sizes={"G": groups, "L": weight.dims[1] // groups},
        )
        self._note_gate(f"{layer.name}.gate", input, gated)
        self._add_product(layer, gated, layer.id(weight), residual, output, pieces)
        layer.constants(weight)
        layer.done(reads=[input, residual], writes=[output], weights=[weight])

    def elementwise_add_layer(
        self, input_a: DTensor, input_b: DTensor, output: DTensor, grid_dim: Dims = None, block_dim: Dims = None
    ) -> None:
        """``output = input_a + input_b``, all (rows, columns). grid_dim.x cuts rows (or columns, if only those
        divide), y the other."""
        layer = self._layer("elementwise_add_layer", grid_dim, block_dim)
        input_a = layer.floats(input_a, "input_a")
        input_b = layer.floats(input_b, "input_b")
        output = layer.floats(output, "output")
        layer.want_dims(input_b, "input_b", input_a.dims, f'as input_a "{input_a.name}"')
        layer.want_dims(output, "output", input_a.dims, f'as input_a "{input_a.name}"')
        pieces = layer.rows_or_columns(output, "t", "h")
        layer.reads(input_a, input_b)
        layer.writes(output, fresh=output._storage not in (input_a._storage, input_b._storage))
        layer.node("add", [layer.id(input_a), layer.id(input_b)], {"y": layer.sum(output)}, pieces=pieces)
        layer.done(reads=[input_a, input_b], writes=[output])

    def identity_layer(
        self,
        input: DTensor,
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
        dependent_tensor: Optional[DTensor] = None,
    ) -> None:
        """``output = input``, both (..., columns). grid_dim.x cuts columns.

        ``dependent_tensor`` is checked and else left alone: dependences follow from what layers read and write.
        """
        layer = self._layer("identity_layer", grid_dim, block_dim)
        input = layer.floats(input, "input", rank=None)
        output = layer.floats(output, "output", rank=None)
        layer.want_dims(output, "output", input.dims, f'as input "{input.name}"')
        if dependent_tensor is not None:
            layer.floats(dependent_tensor, "dependent_tensor", rank=None)
        across = input.dims[-1]
        matrix = (input.num_elements // across, across)
        pieces = layer.pieces(x=Axis("h", across, f'the {across} columns of "{output.name}"'))
        layer.reads(input)
        layer.writes(output)
        layer.node("copy", [layer.id(input, matrix)], {"y": layer.id(output, matrix)}, pieces=pieces)
        layer.done(reads=[input], writes=[output])
        output._dealt = input._dealt

    def tensor_init_layer(
        self,
        input: DTensor,
        dummy_input: Optional[DTensor] = None,
        dummy_output: Optional[DTensor] = None,
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """``input = 0``, so that a split-K layer can add to it. (rows, columns); grid_dim.x cuts rows (or columns, if
        only those divide), y the other.

        The dummies are checked and else left alone: dependences follow from what layers read and write.
        """
        layer = self._layer("tensor_init_layer", grid_dim, block_dim)
        output = layer.floats(input, "input")
        for role, dummy in (("dummy_input", dummy_input), ("dummy_output", dummy_output)):
            if dummy is not None:
                layer.floats(dummy, role, rank=None)
        pieces = layer.rows_or_columns(output, "t", "h")
        layer.writes(output)
        layer.node(layer_operators.fill, [], {"y": layer.id(output)}, pieces=pieces)
        layer.done(writes=[output])
