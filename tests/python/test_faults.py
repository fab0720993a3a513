"""Data that leads outside of a tensor, made by a layer or brought by the script: an error with the place in it, on every
target, from which the kernel goes on; never a read or a write of foreign memory."""

import numpy as np
import pytest
from conftest import BF16, Bench

import megalith
from megalith import PersistentKernel


def made_by_argmax(bench, columns, rows, winner):
    """An embedding with ``rows`` rows of the place of the largest of ``columns``."""
    x = np.zeros((1, columns), np.float32)
    x[0, winner] = 1
    ids = bench.kernel.new_tensor(dims=(1, 1), dtype="i64", name="ids")
    bench.kernel.argmax_layer(bench.attach("x", x), ids)
    bench.kernel.embed_layer(
        ids,
        bench.attach("w", np.ones((rows, 64), BF16)),
        bench.attach("y", np.zeros((1, 64), np.float32)),
        input_source=1,
    )
    bench.kernel.compile()
    return x


def test_ids_that_a_layer_made(target):
    b = Bench(target)
    x = made_by_argmax(b, 1 << 14, 16, (1 << 14) - 1)
    for _ in range(2):
        with pytest.raises(megalith.UserError, match=r'embedding of .*"w".*weight\[ids\[t\], h\] outside.* is 16383, allowed'):
            b.kernel.run_test_mode()
    if target == "cuda":
        return
    x[0, 3] = 2  # the kernel is as good as new
    b.kernel.run_test_mode()
    assert (b.arrays["y"] == 1).all()


def test_ids_beyond_32_bits_do_not_wrap_around():
    ids, w, y = np.array([[2**32 + 1]], np.int64), np.ones((16, 64), np.float32), np.zeros((1, 64), np.float32)
    k = PersistentKernel(test_mode=True, num_workers=2)
    k.embed_layer(k.attach_input(ids, name="ids"), k.attach_input(w, name="w"), k.attach_input(y, name="y"), input_source=1)
    k.compile()
    with pytest.raises(megalith.UserError, match="4294967297"):
        k.run_test_mode()


@pytest.mark.parametrize("wrong", [16, -1, 2**31 - 1, -(2**31)])
def test_operators_as_layers(target, wrong):
    b = Bench(target)
    ids, y = np.array([3, 4, wrong], np.int32), np.zeros((3, 64), np.float32)
    b.kernel.operator_layer(
        "embedding", ids=b.attach("ids", ids), weight=b.attach("w", np.ones((16, 64), BF16)), y=b.attach("y", y)
    )
    b.kernel.compile()
    with pytest.raises(megalith.UserError, match=f"is {wrong}, allowed 0 <= index < 16"):
        b.kernel.run_test_mode()


BODY = """
void scatter_rows(const auto& task) {
  for (i64 t = 0; t < task.T; ++t)
    for (i64 n = task.n_begin; n < task.n_end; ++n) task.y(task.to(t), n) = task.x(task.from(t), n);
}
"""
CUDA_BODY = BODY.replace("n = task.n_begin", "n = task.n_begin + thread()").replace("++n", "n += kThreads")


@pytest.mark.parametrize("bodies", [{}, {"cpu": BODY, "cuda": CUDA_BODY}], ids=["generated", "body"])
def test_operators_of_ones_own(target, bodies):
    @megalith.operator(
        tasks=["n"], tests=[{"T": 3, "N": 20, "R": 4, "S": 5}], index={"from": "R", "to": "S"}, **bodies
    )
    def scatter_rows():
        return """
          input from: i32[T]
          input to: i32[T]
          input x: f32[R, N]
          output y: f32[S, N]
          { [t, n] : 0 <= t < T and 0 <= n < N }
          y[to[t], n] = x[from[t], n]
        """

    for source, to, message in (([0, 1, 9], [0, 1, 2], "is 9, allowed 0 <= index < 4"), ([0, 1, 2], [0, 1, 5], "is 5, allowed 0 <= index < 5")):
        b = Bench(target)
        y = np.zeros((5, 20), np.float32)
        b.kernel.operator_layer(
            "scatter_rows",
            **{"from": b.attach("from", np.array(source, np.int32)), "to": b.attach("to", np.array(to, np.int32))},
            x=b.attach("x", np.ones((4, 20), np.float32)),
            y=b.attach("y", y),
        )
        b.kernel.compile()
        with pytest.raises(megalith.UserError, match=message):
            b.kernel.run_test_mode()
        if target == "cpu":
            assert (y[3:] == 0).all()


def test_whole_numbers_that_are_divided(target):
    @megalith.operator(tests=[{"T": 5}], test_mode=False)
    def shares():
        return """
          input a: i32[T]
          input b: i32[T]
          output y: i32[T]
          { [t] : 0 <= t < T }
          y[t] = a[t] // b[t] + a[t] mod b[t]
        """

    for divisors, message in (([1, -2, 3], None), ([1, 0, 3], "divides a\\[t\\] // b\\[t\\] by zero")):
        b = Bench(target)
        y = np.zeros(3, np.int32)
        b.kernel.operator_layer(
            "shares",
            a=b.attach("a", np.array([-7, 7, 9], np.int32)),
            b=b.attach("b", np.array(divisors, np.int32)),
            y=b.attach("y", y),
        )
        b.kernel.compile()
        if message is None:
            b.kernel.run_test_mode()
            if target == "cpu":
                assert y.tolist() == [-7, -5, 3]
            continue
        with pytest.raises(megalith.UserError, match=message):
            b.kernel.run_test_mode()


def test_a_body_with_a_frame_that_is_too_large():
    text = "input x: f32[T]\noutput y: f32[T]\n{ [t] : 0 <= t < T }\ny[t] = 2 * x[t]"
    for room, complaint in (("f32 room[1 << 20];", "frame"), ("f32 room[task.t_end];", "alloca|variable length")):
        body = (
            f"void roomy(const auto& task) {{ {room}\n  for (i64 t = task.t_begin; t < task.t_end; ++t) room[t] = task.x(t);\n"
            "  for (i64 t = task.t_begin; t < task.t_end; ++t) task.y(t) = room[t] + room[t / 2]; }"
        )

        def roomy():
            return text

        operator = megalith.operator(tests=[{"T": 8}], cpu=body)(roomy)
        with pytest.raises(megalith.UserError, match=complaint):
            operator.check("cpu")
