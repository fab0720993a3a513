"""Arguments that the extension itself does not take, in the same table as the other mistakes."""

import numpy as np
from mistakes import MISTAKES

import megalith


def graph():
    made = megalith.Graph("g")
    made.state("x", "f32", [8, 64])
    return made


MISTAKES.update({
    "a_graph_named_by_a_number": lambda b: megalith.Graph(7),
    "a_graph_of_no_registry": lambda b: megalith.Graph("g", registry=7),
    "a_state_of_a_type": lambda b: graph().state("y", np.float32, [8]),
    "a_state_named_by_half_a_character": lambda b: graph().state("\ud800", "f32", [8]),
    "a_state_of_half_a_row": lambda b: graph().state("y", "f32", [8, 1.5]),
    "a_state_of_a_dynamic_size_first": lambda b: graph().state("y", "f32", [("rows", 8)]),
    "a_state_of_a_number": lambda b: graph().state("y", "f32", 8),
    "a_state_without_a_shape": lambda b: graph().state("y", "f32"),
    "a_state_larger_than_numbers": lambda b: graph().state("y", "f32", [2**70]),
    "a_node_of_names": lambda b: graph().add("copy", "c", ["x"]),
    "a_node_of_one_id": lambda b: graph().add("copy", "c", 0),
    "a_node_with_tiles_by_number": lambda b: graph().add("copy", "c", [0], tile={1: 16}),
    "a_node_with_a_size_in_words": lambda b: graph().add("copy", "c", [0], sizes={"T": "eight"}),
    "a_node_with_an_unknown_option": lambda b: graph().add("copy", "c", [0], tiles={}),
    "a_tensor_that_is_not_in_the_graph": lambda b: graph().tensor(5),
    "a_stop_word_that_is_not_in_the_graph": lambda b: graph().set_gate("c", 9),
    "a_model_compiled_for_a_graph": lambda b: megalith.compile("models/storyteller"),
    "workers_in_words": lambda b: megalith.compile(graph(), num_workers="two"),
    "a_million_workers": lambda b: megalith.compile(graph(), num_workers=10**6),
    "a_runner_of_nothing": lambda b: megalith.GraphRunner(None, None, {}),
    "a_runner_of_no_kernel": lambda b: megalith.GraphRunner(graph(), "kernel", {}),
    "an_operator_that_is_asked_for_by_number": lambda b: megalith.Registry.builtin().get(3),
    "a_benchmark_of_a_size_in_words": lambda b: megalith.Registry.builtin().get("copy").bench([{"T": "eight"}]),
    "a_tokenizer_of_a_number": lambda b: megalith.Tokenizer.open(3),
})
