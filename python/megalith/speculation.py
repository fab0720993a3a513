"""MPK's speculative decoding by prompt lookup: its layers, and what the token loop makes of them.

In MPK they are tasks: a search for the last tokens of a sequence in what stands before, drafts that take the place of the
input, a comparison with what the target made. Here the loop's node, next_batch, does all of that between two iterations, for
every request at work. So these layers add no nodes. They say how drafts are to be found, and are checked to say something that
the loop does.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from megalith._megalith import UserError
from megalith.arguments import whole
from megalith.drafts import LONGEST_NGRAM, LONGEST_SEQUENCE, Drafting, PromptLookup, checked_lookup, lookup_of
from megalith.dtensor import DTensor
from megalith.kernel_tensors import KernelTensors
from megalith.layer import Layer
from megalith.parameters import SINGLE_PASS

Dims = Optional[Tuple[int, int, int]]

_PARTS = 96  # columns of MPK's partial results


class SpeculationLayers(KernelTensors):
    """The layers of prompt lookup; a part of PersistentKernel."""

    # ---- drafts -----------------------------------------------------------------------------------------------

    def _speculates(self, kind: str, **wanted: int) -> PromptLookup:
        """The kernel's own configuration; UserError if it has none, cannot have any or does not say what is ``wanted``."""
        if self.test_mode or self.mode in SINGLE_PASS:
            one = "test_mode" if self.test_mode else f'mode="{self.mode}"'
            raise UserError(
                f"[{kind}] drafts are found and verified between the iterations of a token loop, and {one} runs one: "
                'take mode="offline"'
            )
        if self.spec_decode_config is None:
            raise UserError(
                f"[{kind}] the kernel was made without spec_decode_config: pass what spec_decode_class() gives to "
                "PersistentKernel"
            )
        own = lookup_of(kind, self.spec_decode_config)
        for name, given in wanted.items():
            if getattr(own, name) != given:
                raise UserError(
                    f"[{kind}] {name} is {given}, but the kernel's spec_decode_config has {getattr(own, name)}: want the "
                    "same"
                )
        if self.max_seq_length > LONGEST_SEQUENCE:
            raise UserError(
                f"[{kind}] max_seq_length is {self.max_seq_length}, want at most {LONGEST_SEQUENCE}: sequences in "
                "which drafts are looked for"
            )
        return own

    def _all_tokens(self, layer: Layer, tokens: object, role: str) -> DTensor:
        tensor = layer.integers(tokens, role, rank=2)
        if tensor._storage is not self._meta("tokens", layer.kind)._storage:
            raise UserError(
                f'[{layer.kind}] {role} "{tensor.name}" is not the meta tensor "tokens", in which drafts are looked '
                "for: attach that one"
            )
        return tensor

    @staticmethod
    def _new(layer: Layer, tensor: object, role: str) -> DTensor:
        """Something that only these layers see."""
        result = layer.integers(tensor, role, rank=2)
        if result._storage.memory is not None or result._storage.writer is not None:
            raise UserError(
                f'[{layer.kind}] {role} "{result.name}" would not be written, since the token loop has no such table: '
                "want one of new_tensor() that no other layer writes"
            )
        return result

    def find_ngram_partial_layer(
        self, input: DTensor, output: DTensor, grid_dim: Dims = None, block_dim: Dims = None, ngram_size: int = 3
    ) -> None:
        """Looks for the last ``ngram_size`` tokens of each sequence in what stands before.

        ``input``: the meta tensor ``tokens``. ``output``: a new tensor (requests, parts), i32 or i64, which only
        find_ngram_global_layer takes. grid_dim cuts nothing.
        """
        layer = self._layer("find_ngram_partial_layer", grid_dim, block_dim)
        tokens = self._all_tokens(layer, input, "input")
        output = self._new(layer, output, "output")
        if output.dims[0] != tokens.dims[0]:
            raise UserError(
                f'[{layer.kind}] output "{output.name}" is {list(output.dims)}, want {tokens.dims[0]} rows: one a '
                f'request, as "{tokens.name}"'
            )
        lookup = self._speculates(layer.kind, ngram_size=whole(layer.kind, "ngram_size", ngram_size, 1, LONGEST_NGRAM))
        if self._drafting is not None:
            raise UserError(f"[{layer.kind}] the kernel has drafts already: call the layers that find them once")
        self._drafting = Drafting(lookup, output._storage)

    def find_ngram_global_layer(
        self,
        input: Tuple[DTensor, DTensor],
        output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
        ngram_size: int = 3,
        spec_length: int = 5,
    ) -> None:
        """Each sequence's last token, and up to ``spec_length`` drafts behind it.

        ``input``: (what find_ngram_partial_layer made, the meta tensor ``tokens``). ``output``: a new tensor (requests,
        spec_length + 1), i32 or i64, which is the input of embed_layer. grid_dim cuts nothing.
        """
        layer = self._layer("find_ngram_global_layer", grid_dim, block_dim)
        if not isinstance(input, (tuple, list)) or len(input) != 2:
            raise UserError("[find_ngram_global_layer] input is not a pair, want (partial results, tokens)")
        places = layer.integers(input[0], "input[0]", rank=2)
        tokens = self._all_tokens(layer, input[1], "input[1]")
        output = self._new(layer, output, "output")
        self._speculates(layer.kind, **checked_lookup(layer.kind, ngram_size, spec_length)._asdict())
        if self._drafting is None or self._drafting.places is not places._storage:
            raise UserError(
                f'[{layer.kind}] input[0] "{places.name}" is not what find_ngram_partial_layer makes: call that first'
            )
        layer.want_dims(
            output,
            "output",
            (tokens.dims[0], spec_length + 1),
            f'a request of "{tokens.name}" a row, its last token and {spec_length} drafts',
        )
        if self._drafting.tokens is not None:
            raise UserError(f"[{layer.kind}] the kernel has drafts already: call the layers that find them once")
        self._drafting.tokens = output._storage

    def prompt_lookup_spec_handler(
        self, spec_decode_config: Any, tokens: DTensor, grid_dim: Dims = None, block_dim: Dims = None
    ) -> DTensor:
        """find_ngram_partial_layer and find_ngram_global_layer: what draft_forward_layer_dispatcher calls for prompt
        lookup."""
        return self._draft("prompt_lookup_spec_handler", spec_decode_config, tokens, grid_dim, block_dim)

    def draft_forward_layer_dispatcher(
        self, spec_decode_config: Any, tokens: DTensor, grid_dim: Dims = None, block_dim: Dims = None
    ) -> DTensor:
        """Drafts for each request, from what stood in its sequence before: the input of embed_layer (input_source=1).

        ``tokens``: the meta tensor of that name, attached. The result is (requests, spec_length + 1): the last token of a
        sequence and its drafts. How many of these there are is known between two iterations; the rows that embed_layer
        makes of them are ``max_num_batched_tokens``, as always. Drafts need a token loop and verify_layer_dispatcher.
        """
        return self._draft("draft_forward_layer_dispatcher", spec_decode_config, tokens, grid_dim, block_dim)

    def _draft(self, kind: str, config: Any, tokens: DTensor, grid_dim: Dims, block_dim: Dims) -> DTensor:
        layer = self._layer(kind, grid_dim, block_dim)
        lookup = lookup_of(kind, config)
        tokens = self._all_tokens(layer, tokens, "tokens")
        self._speculates(kind, **lookup._asdict())
        requests = tokens.dims[0]
        places = self.new_tensor(dims=(requests, _PARTS), dtype="i64", name="partial_ngram_output")
        self.find_ngram_partial_layer(tokens, places, grid_dim, block_dim, lookup.ngram_size)
        drafts = self.new_tensor(dims=(requests, lookup.spec_length + 1), dtype="i64", name="spec_tokens")
        self.find_ngram_global_layer((places, tokens), drafts, None, None, *lookup)
        return drafts

    # ---- verification -----------------------------------------------------------------------------------------

    def target_verify_greedy_layer(
        self, input: Tuple[DTensor, DTensor], output: DTensor, grid_dim: Dims = None, block_dim: Dims = None
    ) -> None:
        """Takes in the drafts that are right: each that is the most probable token behind what stands before it.

        ``input``: (drafts, tokens): what find_ngram_global_layer or draft_forward_layer_dispatcher made, and the meta
        tensor ``output_tokens``, which argmax layers write. ``output``: a new tensor (1, 1), which nobody writes.
        grid_dim cuts nothing.
        """
        layer = self._layer("target_verify_greedy_layer", grid_dim, block_dim)
        if not isinstance(input, (tuple, list)) or len(input) != 2:
            raise UserError("[target_verify_greedy_layer] input is not a pair, want (drafts, what the target made)")
        self._new(layer, output, "output")
        self._verify(layer, input[0], "input[0]", input[1], "input[1]")

    def prompt_lookup_verify_handler(
        self,
        spec_decode_config: Any,
        spec_tokens: DTensor,
        target_output: DTensor,
        grid_dim: Dims = None,
        block_dim: Dims = None,
    ) -> DTensor:
        """target_verify_greedy_layer: what verify_layer_dispatcher calls for prompt lookup."""
        layer = self._layer("prompt_lookup_verify_handler", grid_dim, block_dim)
        return self._verify_by(layer, spec_decode_config, spec_tokens, target_output)

    def verify_layer_dispatcher(
        self,
        spec_decode_config: Any,
        spec_tokens: DTensor,
        target_output: DTensor,
        grid_dim: Dims = (1, 1, 1),
        block_dim: Dims = (128, 1, 1),
    ) -> DTensor:
        """Takes in the drafts that are right, and the token behind them.

        ``spec_tokens``: what draft_forward_layer_dispatcher gave. ``target_output``: the meta tensor ``output_tokens``,
        attached, as argmax layers write it. The result is a tensor of one element, which nobody writes: MPK's scripts
        take it and do nothing with it.
        """
        layer = self._layer("verify_layer_dispatcher", grid_dim, block_dim)
        return self._verify_by(layer, spec_decode_config, spec_tokens, target_output)

    def _verify_by(self, layer: Layer, config: Any, drafts: DTensor, target: DTensor) -> DTensor:
        self._speculates(layer.kind, **lookup_of(layer.kind, config)._asdict())
        self._verify(layer, drafts, "spec_tokens", target, "target_output")
        return self.new_tensor(dims=(1, 1), dtype="i64", name="verify_out")

    def _verify(self, layer: Layer, drafts: object, drafts_role: str, target: object, target_role: str) -> None:
        drafted = layer.integers(drafts, drafts_role, rank=2)
        made = layer.integers(target, target_role)
        if self._drafting is None or drafted._storage is not self._drafting.tokens:
            raise UserError(
                f'[{layer.kind}] {drafts_role} "{drafted.name}" has no drafts: want what draft_forward_layer_dispatcher '
                "or find_ngram_global_layer made"
            )
        if made._storage is not self._meta("output_tokens", layer.kind)._storage:
            raise UserError(
                f'[{layer.kind}] {target_role} "{made.name}" is not the meta tensor "output_tokens", which the token '
                "loop takes in: attach that one, and let the argmax layer write it"
            )
        writer = made._storage.writer
        if writer is None or not writer.startswith("argmax_"):
            by = "no layer writes it yet" if writer is None else f"{writer} writes it"
            raise UserError(
                f'[{layer.kind}] drafts are compared with the most probable tokens, but of "{made.name}" {by}: want '
                "argmax_layer or argmax_reduce_layer in front"
            )
        self._drafting.is_verified = True

    # ---- for the token loop -----------------------------------------------------------------------------------

    def _checked_lookup(self, what: str) -> Optional[PromptLookup]:
        """How the token loop finds drafts; None: not at all. UserError if the layers say only a part of it."""
        if self.spec_decode_config is None:
            return None
        drafting = self._drafting
        for is_there, layer in (
            (drafting is not None and drafting.tokens is not None, "draft_forward_layer_dispatcher"),
            (drafting is not None and drafting.is_embedded, "embed_layer with what it gives"),
            (drafting is not None and drafting.is_verified, "verify_layer_dispatcher"),
        ):
            if not is_there:
                raise UserError(
                    f"[{what}] the kernel has spec_decode_config, but not all layers of speculation: call {layer}"
                )
        assert drafting is not None
        rows, lookup = self.max_num_batched_tokens, drafting.lookup
        if lookup.spec_length + 1 > rows:
            raise UserError(
                f"[{what}] max_num_batched_tokens is {rows}, want at least {lookup.spec_length + 1}: a token and its "
                f"{lookup.spec_length} drafts (spec_length) are worked on in one iteration"
            )
        return lookup

