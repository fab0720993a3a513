"""Mistakes in operators of one's own, in the same table as the others."""

import numpy as np
from mistakes import mistake, zeros

import megalith


def declare(text=None, name="double_it", **options):
    def function():
        return text

    function.__name__ = name
    text = text or "input x: f32[T, N]\noutput y: f32[T, N]\n{ [t, n] : 0 <= t < T and 0 <= n < N }\ny[t, n] = 2 * x[t, n]"
    return megalith.operator(**{"tests": [{"T": 2, "N": 8}], **options})(function)


def body(text, target="cpu"):
    declare(**{target: f"void double_it(const auto& task) {{ {text} }}"})


@mistake
def an_operator_without_arguments(b):
    megalith.operator(lambda: "")


@mistake
def an_operator_that_is_no_text(b):
    declare(7)


@mistake
def an_operator_that_does_not_parse(b):
    declare("input x: f32[T]\noutput y: f32[T]\n{ [t] : 0 <= t < T }\ny[t] = 2 *")


@mistake
def an_operator_of_megaliths_own_name(b):
    declare(name="linear")


@mistake
def an_operator_of_a_layers_name(b):
    declare(name="copy_tokens")


@mistake
def an_operator_named_like_a_function(b):
    declare(name="exp")


@mistake
def an_operand_without_a_shape(b):
    declare("input x\noutput y: f32[T]\n{ [t] : 0 <= t < T }\ny[t] = 2 * x[t]")


@mistake
def an_operand_of_a_sum_of_sizes(b):
    declare("input x: f32[T + 1]\noutput y: f32[T]\n{ [t] : 0 <= t < T }\ny[t] = 2 * x[t]")


@mistake
def an_operator_that_reads_outside(b):
    declare("input x: f32[T]\noutput y: f32[T]\n{ [t] : 0 <= t < T }\ny[t] = 2 * x[t + 1]", tests=[{"T": 4}])


@mistake
def an_operator_with_a_loop_too_many(b):
    declare("input x: f32[T]\noutput y: f32[1]\n{ [t] : 0 <= t < T }\ny[0] = x[t]", tests=[{"T": 4}])


@mistake
def an_operator_that_writes_nothing(b):
    declare("input x: f32[T]\n{ [t] : 0 <= t < T }\nz[t] = x[t]\nz[t] = z[t] * x[t]")


@mistake
def an_operator_without_tests(b):
    declare(tests=[])


@mistake
def a_test_without_a_size(b):
    declare(tests=[{"T": 3}])


@mistake
def a_test_with_a_size_too_many(b):
    declare(tests=[{"T": 3, "N": 8, "K": 4}])


@mistake
def tasks_along_nothing(b):
    declare(tasks=["k"])


@mistake
def tasks_that_are_numbers(b):
    declare(tasks=[16])


@mistake
def one_task_that_is_cut(b):
    declare(tasks=["t"], one_task=True)


@mistake
def an_exact_operand_that_is_not_there(b):
    declare(exact=["x", "z"])


@mistake
def exact_operands_that_are_a_number(b):
    declare(exact=3)


@mistake
def an_index_that_is_a_float(b):
    declare(index={"x": "N"})


@mistake
def a_body_that_asks_for_its_worker(b):
    body("\n task.y(0, 0) = blockIdx.x;", "cuda")


@mistake
def a_body_that_waits_for_the_block(b):
    body("__syncthreads();", "cuda")


@mistake
def a_body_with_assembly(b):
    body('asm("mov.u32 %0, %%smid;" : "=r"(n));', "cuda")


@mistake
def a_body_that_remembers(b):
    body("static int calls = 0;")


@mistake
def a_body_of_another_name(b):
    declare(cpu="void triple_it(const auto& task) {}")


@mistake
def a_body_that_is_a_number(b):
    declare(cpu=3)


@mistake
def a_body_with_too_much_shared_memory(b):
    declare(cuda="void double_it(const auto& task) {}", shared_bytes=1 << 20)


@mistake
def a_layer_of_an_operator_without_an_operand(b):
    declare()
    b.kernel.double_it_layer(x=b.input("x", 2, 8)[0])


@mistake
def a_layer_of_an_operator_with_a_strange_operand(b):
    declare()
    b.kernel.double_it_layer(x=b.input("x", 2, 8)[0], z=b.output("z", 2, 8))


@mistake
def a_layer_of_an_operator_of_other_shapes(b):
    declare()
    b.kernel.double_it_layer(x=b.input("x", 2, 8)[0], y=b.output("y", 2, 9))


@mistake
def a_layer_of_an_operator_in_place(b):
    declare()
    x, _ = b.input("x", 2, 8)
    b.kernel.double_it_layer(x=x, y=x)


@mistake
def a_layer_of_an_operator_of_another_dtype(b):
    declare()
    b.kernel.double_it_layer(x=b.attach("x", zeros(2, 8, dtype=np.int32)), y=b.output("y", 2, 8))


@mistake
def a_layer_of_an_operator_with_a_grid_that_does_not_divide(b):
    declare()
    b.kernel.double_it_layer(x=b.input("x", 2, 8)[0], y=b.output("y", 2, 8), grid_dim=(3, 1, 1))


@mistake
def a_layer_of_a_number(b):
    b.kernel.operator_layer(3)
