"""Gates and ups that a script stacks for MPK, taken apart again.

``shuffle_tensors([gate, up])`` makes one product of both, and ``silu_mul_layer`` takes its columns in groups. The rules
of the optimizer know the two products side by side, as models have them, and make one node of them. Where nobody else
sees the product, its halves are the same numbers; the copy of the weights that stacking would need goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, NamedTuple, Sequence

if TYPE_CHECKING:
    from megalith._megalith import Graph
    from megalith.dtensor import DTensor, Product


class Gate(NamedTuple):
    """A node that takes gates and ups from a product of stacked weights."""

    node: str
    both: int  # the product: an activation
    y: int
    product: "Product"


def take_apart(graph: "Graph", gates: Sequence[Gate]) -> None:
    """Puts two products in the place of each one that only its gate reads. Ids of tensors stay."""
    for node, both, y, product in gates:
        if graph.users(both) != [product.node, node]:
            continue
        halves: List[int] = []
        at = graph.node_names.index(product.node)
        graph.erase(product.node)
        for part, name in zip(product.weight.parts, ("gate", "up")):
            inputs = [*product.inputs, _constant(graph, part)]
            place = at + len(halves)
            halves += graph.insert(place, product.op, f"{product.node}.{name}", inputs, attributes=product.attributes)
        at = graph.node_names.index(node)
        graph.erase(node)
        graph.insert(at, "silu_mul", node, halves, outputs={"y": y})


def _constant(graph: "Graph", part: "DTensor") -> int:
    """One of the stacked weights by itself."""
    name = part._storage.name
    if all(tensor.name != name for tensor in graph.tensors):
        return graph.constant(name, part.dtype, part.dims)
    weight = graph.find(name)
    graph.make_constant(weight)
    return weight
