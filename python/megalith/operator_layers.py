"""Any operator as a layer of a PersistentKernel: what was declared by a script as well as what comes with Megalith."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Union

from megalith import partition
from megalith._megalith import Operator, Registry, UserError
from megalith.arguments import number, shown, text, whole
from megalith.dtensor import DTensor
from megalith.kernel_tensors import KernelTensors
from megalith.partition import Axis

Dims = Optional[Tuple[int, int, int]]


class OperatorLayers(KernelTensors):
    """The layer that all operators have; a part of PersistentKernel."""

    def operator_layer(
        self, operator: Union[Operator, str], grid_dim: Dims = None, block_dim: Dims = None, **given: Any
    ) -> None:
        """A layer of any operator; ``kernel.gelu_layer(...)`` is ``kernel.operator_layer("gelu", ...)``.

        Operands, attributes, and sizes that no shape tells are given by their names: ``x=x, y=y, eps=1e-5``. grid_dim
        cuts the operator's task axes, x the first one. UserError naming what is missing, unknown, or does not fit.
        """
        named = isinstance(operator, str)
        op = Registry.shared().get(text("operator_layer", "operator", operator)) if named else operator
        if not isinstance(op, Operator):
            raise UserError(f"[operator_layer] operator is {shown(op)}, want an Operator, or the name of one")
        kind = f"{op.name}_layer"
        layer = self._layer(kind, grid_dim, block_dim)
        names = [operand.name for operand in op.operands]
        for name in given:
            if name not in names and name not in op.attributes and name not in op.sizes:
                raise UserError(
                    f"[{kind}] there is no {name!r}; there are {', '.join([*names, *op.attributes, *op.sizes])}, "
                    "grid_dim and block_dim"
                )
        for name in [*names, *op.sizes]:
            if given.get(name) is None:
                raise UserError(f"[{kind}] {name} is missing")

        tensors: Dict[str, DTensor] = {}
        for operand in op.operands:
            exact = operand.exact_dtype or operand.dtype not in ("bf16", "f16", "f32")
            dtypes = (operand.dtype,) if exact else ("bf16", "f16", "f32")
            tensors[operand.name] = layer._check(given[operand.name], operand.name, len(operand.shape), dtypes)
            if operand.name in op.laid_out:
                layer.weight(given[operand.name], operand.name, rank=None)
        reads = [tensors[name] for name in op.inputs]
        writes = [tensors[operand.name] for operand in op.operands if operand.role != "input"]
        for output in writes:
            shared = [name for name in names if tensors[name]._storage is output._storage]
            if len(shared) > 1:
                raise UserError(f'[{kind}] {" and ".join(shared)} are one tensor, "{output.name}": take one for each')

        sizes = {name: whole(kind, name, given[name], 1) for name in op.sizes}
        attributes = {name: number(kind, name, given[name]) for name in op.attributes if name in given}
        like = {name: (tensor.name, tensor.dtype, list(tensor.dims)) for name, tensor in tensors.items()}
        extents = op.extents(layer.name, like, sizes, attributes)
        axes = {
            direction: Axis(iname, extents[iname], f'the {extents[iname]} values of "{iname}"')
            for direction, iname in zip("xyz", op.axes)
        }
        pieces = partition.pieces(kind, grid_dim, dict(axes))
        layer.reads(*reads)
        for operand in op.operands:
            if operand.role != "input":
                layer.writes(tensors[operand.name], fresh=operand.role == "output", covers=None)
        layer.node(
            op.name,
            [layer.id(tensor) for tensor in reads],
            {name: layer.id(tensors[name]) for name in op.outputs},
            sizes=sizes,
            attributes=attributes,
            pieces=pieces,
        )
        weights = [tensors[name] for name in op.laid_out]
        layer.constants(*weights)
        layer.done(reads=reads, writes=writes, weights=weights)
