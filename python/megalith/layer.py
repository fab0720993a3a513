"""One call of a layer method: takes its operands in, checks them, and adds nodes to the kernel's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Union

from megalith import layer_operators, partition
from megalith._megalith import Operator, UserError
from megalith.dtensor import DTensor, Storage
from megalith.partition import Axis, columns_of, rows_of

if TYPE_CHECKING:
    from megalith.kernel_tensors import KernelTensors

_FLOATS = ("bf16", "f16", "f32")
_INTEGERS = ("i32", "i64")
ALL = "all"  # of a tensor


class Layer:
    """The checks that all layers share. Operands are first looked at (``floats``, ``integers``, ``weight``), which
    changes nothing; ``node`` then notes who reads and writes what, so that a layer that is refused leaves the kernel as
    it was."""

    def __init__(self, kernel: "KernelTensors", kind: str, grid_dim: object, block_dim: object):
        self.kernel = kernel
        self.kind = kind
        self.grid_dim = grid_dim
        self._read: List[Storage] = []  # what the layer itself reads
        self._covers: Dict[int, object] = {}  # by id(): what of a storage it writes
        self._new: Dict[int, Optional[int]] = {}  # of storages that it writes anew, by id(): their tensors
        kernel._check_building(kind)
        self.name = f"{kind}_{kernel._num_layers}"
        kernel._num_layers += 1
        if block_dim is not None:  # how many threads a body has is its own business
            partition.check_triple(kind, "block_dim", block_dim)

    # ---- operands: each gives the tensor back -----------------------------------------------------------------

    def _check(self, tensor: object, role: str, rank: Optional[int], dtypes: Sequence[str]) -> DTensor:
        if not isinstance(tensor, DTensor):
            raise UserError(
                f"[{self.kind}] {role} is a {type(tensor).__name__}, want what attach_input() or new_tensor() gave"
            )
        if tensor._kernel is not self.kernel:
            raise UserError(f'[{self.kind}] {role} "{tensor.name}" belongs to another PersistentKernel')
        if tensor.dtype not in dtypes:
            raise UserError(f'[{self.kind}] {role} "{tensor.name}" is {tensor.dtype}, want {" or ".join(dtypes)}')
        if rank is not None and tensor.num_dims != rank:
            raise UserError(f'[{self.kind}] {role} "{tensor.name}" is {list(tensor.dims)}, want {rank} dimensions')
        return tensor

    def floats(self, tensor: object, role: str, rank: Optional[int] = 2) -> DTensor:
        return self._check(tensor, role, rank, _FLOATS)

    def integers(self, tensor: object, role: str, rank: Optional[int] = None) -> DTensor:
        return self._check(tensor, role, rank, _INTEGERS)

    def weight(self, tensor: object, role: str, rank: Optional[int] = 2) -> DTensor:
        """A weight: attached or stacked, and written by nobody. Its rows and columns are laid out when compiling."""
        result = self._check(tensor, role, rank, _FLOATS)
        storage = result._storage
        if storage.memory is None and not storage.parts:
            raise UserError(
                f'[{self.kind}] {role} "{result.name}" is a new tensor, want one that was attached: are the '
                "operands in "
                "the right order?"
            )
        if storage.writer is not None:
            raise UserError(
                f'[{self.kind}] {role} "{result.name}" is written by {storage.writer}, and a weight must not '
                "change: are "
                "the operands in the right order?"
            )
        return result

    def want_dims(self, tensor: DTensor, role: str, dims: Sequence[int], why: str) -> None:
        if tensor.dims != tuple(dims):
            raise UserError(f'[{self.kind}] {role} "{tensor.name}" is {list(tensor.dims)}, want {list(dims)}: {why}')

    def apart(self, **roles: DTensor) -> None:
        """Tensors that the layer writes must not be one and the same, under one name or two."""
        owners: Dict[int, str] = {}
        for role, tensor in roles.items():
            other = owners.setdefault(id(tensor._storage), role)
            if other != role:
                raise UserError(
                    f'[{self.kind}] {other} "{roles[other].name}" and {role} "{tensor.name}" are one tensor, and both '
                    "are written: take one for each"
                )

    # ---- the partition ----------------------------------------------------------------------------------------

    def pieces(self, **axes: Optional[Axis]) -> Dict[str, int]:
        return partition.pieces(self.kind, self.grid_dim, axes)

    def rows_or_columns(self, output: DTensor, rows: str, columns: str) -> Dict[str, int]:
        """grid_dim.x cuts the rows of an output if it divides them, else its columns; y the other, if it divides it."""
        first, second = rows_of(rows, output), columns_of(columns, output)
        grid = partition.check_triple(self.kind, "grid_dim", self.grid_dim) if self.grid_dim is not None else (1, 1, 1)
        if first.extent % grid[0] != 0:
            first, second = second, first
        return self.pieces(x=first, y=second if second.extent % grid[1] == 0 else None)

    # ---- nodes ------------------------------------------------------------------------------------------------

    def id(self, tensor: DTensor, shape: Optional[Sequence[int]] = None, dtype: Optional[str] = None) -> int:
        """The tensor of the graph, in the shape that the operator wants: the same elements in the same order.
        ``dtype``: of one that is made now."""
        wanted = tuple(shape) if shape is not None else tensor.dims
        new = id(tensor._storage)
        if new not in self._new:
            return self.kernel._graph_tensor(tensor, wanted, dtype)
        made = self._new[new]
        if made is None:
            made = self._new[new] = self.kernel._graph_tensor_anew(tensor, wanted, dtype)
        return made

    def sum(self, tensor: DTensor) -> int:
        """id() of what a sum or a lookup goes to. Where nobody else sees it, it stays in f32, as models have it: the
        sums of all layers add up, and rounding with them."""
        return self.id(tensor, dtype=None if self.kernel.test_mode else "f32")

    def flat(self, tensor: DTensor) -> int:
        return self.id(tensor, (tensor.num_elements,))

    def reads(self, *tensors: DTensor) -> None:
        """Checks that there is something to read."""
        for tensor in tensors:
            storage = tensor._storage
            self._read.append(storage)
            if storage.memory is None and not storage.parts and storage.writer is None:
                raise UserError(
                    f'[{self.kind}] "{tensor.name}" is read before any layer writes it: call the layer that makes it '
                    "first, or attach a tensor"
                )

    def writes(self, *tensors: DTensor, fresh: bool = True, covers: object = ALL) -> None:
        """Checks that nobody's work is lost. ``fresh``: what was there before does not matter. ``covers``: what part is
        written, by any name; None: nobody knows. Where nothing of what was written before stays, a new tensor becomes
        another one in the graph, so that a script may use one for all of its layers and rules still see who reads what.
        """
        for tensor in tensors:
            storage = tensor._storage
            if storage.weight_of is not None:
                raise UserError(
                    f'[{self.kind}] "{tensor.name}" is a weight of {storage.weight_of}, so no layer may write '
                    "it: are the "
                    "operands in the right order?"
                )
            if storage.parts:
                raise UserError(f'[{self.kind}] "{tensor.name}" is made of other tensors, so no layer may write it')
            if storage.memory is not None and not storage.memory.writable:
                raise UserError(
                    f'[{self.kind}] the tensor "{tensor.name}" is read-only, but this layer writes it: attach a copy'
                )
            if fresh and storage.writer is not None and not storage.is_read and storage not in self._read:
                raise UserError(
                    f'[{self.kind}] "{tensor.name}" was written by {storage.writer} and read by nobody since: '
                    "two layers "
                    "write one tensor, and the first one's work is lost"
                )
            self._covers[id(storage)] = covers
            is_new = storage.memory is None and storage.writer is not None and storage not in self._read
            nothing_stays = covers == ALL or (covers is not None and covers == storage.covered)
            if fresh and nothing_stays and is_new and not self.kernel.test_mode:
                self._new[id(storage)] = None

    def done(self, reads: Sequence[DTensor] = (), writes: Sequence[DTensor] = (), weights: Sequence[DTensor] = ()):
        """Notes what the layer does, after its nodes stand."""
        for tensor in reads:
            tensor._storage.is_read = True
        for tensor in weights:
            tensor._storage.weight_of = tensor._storage.weight_of or self.name
        for tensor in writes:
            storage, made = tensor._storage, self._new.get(id(tensor._storage))
            covers = self._covers.get(id(storage))
            if made is not None:
                storage.graph_id = made
            if made is not None or storage.writer is None or storage.covered == covers:
                storage.covered = covers
            else:
                storage.covered = None  # parts, of which some may be of another time
            storage.writer = self.name
            tensor._storage.is_read = False
            tensor._dealt = tensor._product = None

    def constants(self, *tensors: DTensor) -> None:
        """Lets bodies lay these out as they like; called once their place in the graph is known."""
        for tensor in tensors:
            self.kernel._make_constant(tensor)

    def node(
        self,
        op: Union[Operator, str],
        inputs: Sequence[int],
        outputs: Optional[Dict[str, int]] = None,
        *,
        suffix: str = "",
        sizes: Optional[Dict[str, int]] = None,
        attributes: Optional[Dict[str, float]] = None,
        pieces: Optional[Dict[str, int]] = None,
    ) -> List[int]:
        return self.kernel._graph.add(
            op if isinstance(op, str) else op.name,
            f"{self.name}.{suffix}" if suffix else self.name,
            list(inputs),
            sizes=sizes or {},
            attributes=attributes or {},
            # Rules make nodes of several layers, which are cut as a model's are: a grid is of one layer's kernel.
            pieces=pieces or {} if self.kernel.test_mode else {},
            outputs=outputs or {},
        )

    def narrow(self, tensor: DTensor) -> int:
        """An integer tensor, flat, as the i32 that operators point with."""
        if tensor.dtype == "i32":
            return self.flat(tensor)
        narrowed = self.scratch(f"{tensor.name}.i32", "i32", (tensor.num_elements,))
        copy = layer_operators.copy_tokens
        return self.node(copy, [self.flat(tensor)], {"y": narrowed}, suffix=f"narrow.{tensor.name}")[0]

    def scratch(self, suffix: str, dtype: str, shape: Sequence[object]) -> int:
        """An activation that only this layer sees."""
        return self.kernel._graph.activation(f"{self.name}.{suffix}", dtype, list(shape))  # type: ignore[arg-type]
