"""The layers of a PersistentKernel that make tokens of logits."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from megalith import layer_operators, partition
from megalith._megalith import UserError
from megalith.arguments import whole
from megalith.dtensor import DTensor
from megalith.kernel_tensors import KernelTensors
from megalith.layer import Layer
from megalith.partition import Axis, columns_of, rows_of

Dims = Optional[Tuple[int, int, int]]


class TokenLayers(KernelTensors):
    """Argmax and sampling; a part of PersistentKernel."""

    def argmax_layer(self, input: DTensor, output: DTensor, grid_dim: Dims = None, block_dim: Dims = None) -> None:
        """``output[t] = the lowest column with the largest value of row t``.

        ``input``: (rows, vocabulary). ``output``: (rows, 1) or (rows,), i32 or i64. grid_dim.x cuts the vocabulary,
        evenly or not.
        """
        layer = self._layer("argmax_layer", grid_dim, block_dim)
        input = layer.floats(input, "input")
        output = layer.integers(output, "output")
        rows, vocabulary = input.dims
        self._want_one_a_row(layer, output, rows)
        x = partition.check_triple("argmax_layer", "grid_dim", grid_dim)[0] if grid_dim is not None else 1
        length = -(-vocabulary // x)
        chunks = -(-vocabulary // length)
        layer.reads(input)
        layer.writes(output)
        value = layer.scratch("value", "f32", (rows, chunks))
        index = layer.scratch("index", "i32", (rows, chunks))
        layer.node(
            "argmax_partial",
            [layer.id(input)],
            {"value": value, "index": index},
            suffix="partial",
            sizes={"C": chunks, "L": length},
        )
        layer.node("argmax_reduce", [value, index], {"best": layer.flat(output)})
        layer.done(reads=[input], writes=[output])

    @staticmethod
    def _want_one_a_row(layer: Layer, output: DTensor, rows: int) -> None:
        if output.num_elements != rows or output.dims[0] != rows:
            raise UserError(
                f'[{layer.kind}] output "{output.name}" is {list(output.dims)}, want [{rows}, 1]: one token a row'
            )

    def _argmax_pieces(self, layer: Layer, **axes: Axis) -> Dict[str, int]:
        """With drafts MPK's scripts give grids whose y counts drafts, and x less than the chunks: these cut nothing here."""
        return {} if self._drafting is not None else layer.pieces(**axes)

    def argmax_partial_layer(
        self,
        input: DTensor,
        output: Tuple[DTensor, DTensor],
        grid_dim: Dims = None,
        block_dim: Dims = None,
        vocab_size: Optional[int] = None,
    ) -> None:
        """The largest value of each chunk of columns, and its column.

        ``input``: (rows, vocabulary). ``output``: values (rows, chunks) and columns (rows, chunks), i32 or i64, counted
        from the first column of ``input``. Columns from ``vocab_size`` on are padding, which is not looked at.
        grid_dim.x is the number of chunks; y cuts rows.
        """
        layer = self._layer("argmax_partial_layer", grid_dim, block_dim)
        if not isinstance(output, (tuple, list)) or len(output) != 2:
            raise UserError("[argmax_partial_layer] output is not a pair, want (values, columns)")
        input = layer.floats(input, "input")
        value = layer.floats(output[0], "output[0]")
        index = layer.integers(output[1], "output[1]", rank=2)
        rows, vocabulary = input.dims
        chunks = value.dims[1]
        layer.want_dims(value, "output[0]", (rows, chunks), f'rows of "{input.name}", one column a chunk')
        layer.want_dims(index, "output[1]", value.dims, f'as output[0] "{value.name}"')
        pieces = self._argmax_pieces(layer, x=columns_of("v", input), y=rows_of("r", value))
        if pieces and pieces["v"] != chunks:
            raise UserError(
                f'[argmax_partial_layer] grid_dim is {tuple(grid_dim)!r}, but output[0] "{value.name}" has {chunks} '  # type: ignore[arg-type]
                "chunks: x must be that"
            )
        columns = vocabulary
        if vocab_size is not None:
            columns = whole("argmax_partial_layer", "vocab_size", vocab_size, 1, vocabulary)
        layer.reads(input)
        layer.writes(value, index)
        sizes = {"C": chunks, "L": -(-vocabulary // chunks)}
        layer.node(
            "argmax_partial" if columns == vocabulary else layer_operators.argmax_partial_padded,
            [layer.id(input)],
            {"value": layer.id(value), "index": layer.id(index)},
            sizes=sizes if columns == vocabulary else dict(sizes, W=columns),
            pieces={"c": chunks, "r": pieces["r"]} if pieces else {},
        )
        layer.done(reads=[input], writes=[value, index])

    def argmax_reduce_layer(
        self,
        input: Tuple[DTensor, DTensor],
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> None:
        """The winner among the chunks of argmax_partial_layer; of equals the lowest column.

        ``input``: (values, columns). ``output``: (rows, 1), i32 or i64. grid_dim.y cuts rows.
        """
        layer = self._layer("argmax_reduce_layer", grid_dim, block_dim)
        if not isinstance(input, (tuple, list)) or len(input) != 2:
            raise UserError("[argmax_reduce_layer] input is not a pair, want (values, columns)")
        value = layer.floats(input[0], "input[0]")
        index = layer.integers(input[1], "input[1]", rank=2)
        output = layer.integers(output, "output")
        layer.want_dims(index, "input[1]", value.dims, f'as input[0] "{value.name}"')
        self._want_one_a_row(layer, output, value.dims[0])
        rows = Axis("r", value.dims[0], f'the {value.dims[0]} rows of "{output.name}"')
        pieces = self._argmax_pieces(layer, y=rows)
        layer.reads(value, index)
        layer.writes(output)
        layer.node("argmax_reduce", [layer.id(value), layer.id(index)], {"best": layer.flat(output)}, pieces=pieces)
        layer.done(reads=[value, index], writes=[output])

    def sampling_layer(
        self,
        logits: DTensor,
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
        seed: int = 42,
    ) -> None:
        """A token a row, drawn with the probabilities of softmax(logits).

        ``logits``: (rows, vocabulary). ``output``: (rows, 1), i32. The same seed draws the same tokens; each run draws
        others than the one before. grid_dim.x cuts rows.
        """
        layer = self._layer("sampling_layer", grid_dim, block_dim)
        logits = layer.floats(logits, "logits")
        output = layer.integers(output, "output")
        rows = logits.dims[0]
        self._want_one_a_row(layer, output, rows)
        seed = whole("sampling_layer", "seed", seed, -(2**31), 2**31 - 1)
        pieces = layer.pieces(x=Axis("r", rows, f'the {rows} rows of "{output.name}"'))
        layer.reads(logits)
        layer.writes(output)
        seeds = self._internal(f"{layer.name}.seed", [seed])
        draw = self._internal(f"{layer.name}.draw", [0])
        token = layer.scratch("token", "i32", (rows,)) if output.dtype != "i32" else layer.flat(output)
        layer.node("gumbel_argmax", [layer.id(logits), seeds, draw], {"token": token}, pieces=pieces)
        if output.dtype != "i32":
            layer.node(layer_operators.copy_tokens, [token], {"y": layer.flat(output)}, suffix="copy")
        layer.node(layer_operators.count_up, [draw], suffix="count")
        layer.done(reads=[logits], writes=[output])

    sampling_sm100_layer = sampling_layer
