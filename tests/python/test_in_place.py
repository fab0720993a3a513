"""An output that is also an input: right where a layer reads each element before it writes it, refused elsewhere."""

import numpy as np
import pytest

from megalith import Graph, PersistentKernel, UserError

ROWS, WIDTH = 8, 64


def values(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) / 8).astype(np.float32)


class Bench:
    """A kernel of so many workers, whose tensors are attached by name."""

    def __init__(self, workers):
        self.kernel = PersistentKernel(test_mode=True, num_workers=workers)

    def attach(self, name, array):
        return self.kernel.attach_input(array, name=name)

    def run(self):
        self.kernel.compile()
        self.kernel.run_test_mode()


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("grid", [None, (4, 1, 1)])
def test_sums_residuals_copies_and_norms_work_in_place(workers, grid):
    bench = Bench(workers)
    x, y, w = values(ROWS, WIDTH), values(ROWS, WIDTH, seed=1), values(WIDTH, WIDTH, seed=2)
    scale = values(WIDTH, seed=3)
    want = x + y
    want = want + y @ w.T
    want = want / np.sqrt((want**2).mean(axis=1, keepdims=True) + 1e-6) * scale
    X, Y = bench.attach("x", x), bench.attach("y", y)
    W, S = bench.attach("w", w), bench.attach("scale", scale)
    kernel = bench.kernel
    kernel.elementwise_add_layer(X, Y, X, grid_dim=grid)
    kernel.linear_with_residual_layer(Y, W, X, X, grid_dim=grid)
    kernel.identity_layer(X, X, grid_dim=grid)
    kernel.rmsnorm_layer(X, S, X)
    bench.run()
    np.testing.assert_allclose(x, want, atol=1e-5)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_layer_of_several_steps_may_write_its_input(workers):
    bench = Bench(workers)
    x, w = values(ROWS, WIDTH), values(WIDTH, WIDTH, seed=1)
    want = x + x @ w.T
    X = bench.attach("x", x)
    bench.kernel.identity_layer(X, X)
    bench.kernel.splitk_linear_layer(X, bench.attach("w", w), X)
    bench.run()
    np.testing.assert_allclose(x, want, atol=1e-5)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_product_and_a_sum_may_write_what_the_product_reads(workers):
    bench = Bench(workers)
    x, w, r = values(ROWS, WIDTH), values(WIDTH, WIDTH, seed=1), values(ROWS, WIDTH, seed=2)
    want = r + x @ w.T
    X = bench.attach("x", x)
    bench.kernel.linear_with_residual_layer(X, bench.attach("w", w), bench.attach("r", r), X)
    bench.run()
    np.testing.assert_allclose(x, want, atol=1e-5)


def refused(build):
    bench = Bench(2)
    with pytest.raises(UserError) as error:
        build(bench, bench.kernel)
        bench.run()
    return str(error.value)


def test_a_product_into_its_own_input_is_refused_by_name():
    for workers in (1, 2):
        bench = Bench(workers)
        x = values(ROWS, WIDTH)
        before = x.copy()
        X = bench.attach("hidden", x)
        with pytest.raises(UserError, match=r'\[linear\].*one tensor, "hidden".*\(node "linear_layer_0'):
            bench.kernel.linear_layer(X, bench.attach("w", values(WIDTH, WIDTH)), X, grid_dim=(4, 1, 1))
            bench.run()
        assert np.array_equal(x, before), "nothing ran"


def test_products_with_a_norm_too():
    def norm_linear(bench, kernel):
        X = bench.attach("hidden", values(ROWS, WIDTH))
        kernel.rmsnorm_linear_layer(X, bench.attach("n", values(WIDTH)), bench.attach("w", values(WIDTH, WIDTH)), X)

    def new_tensor(bench, kernel):
        T = kernel.new_tensor(dims=(ROWS, WIDTH), dtype="f32", name="hidden")
        kernel.identity_layer(bench.attach("x", values(ROWS, WIDTH)), T)
        kernel.linear_layer(T, bench.attach("w", values(WIDTH, WIDTH)), T)

    def another_name(bench, kernel):
        x = values(ROWS, WIDTH)
        kernel.linear_layer(
            bench.attach("hidden", x), bench.attach("w", values(WIDTH, WIDTH)), bench.attach("other", x)
        )

    for build in (norm_linear, new_tensor, another_name):
        assert 'one tensor, "hidden"' in refused(build), build.__name__


def test_views_that_overlap_in_part_are_refused():
    def rows(bench, kernel):
        x = values(ROWS + 1, WIDTH)
        kernel.identity_layer(bench.attach("upper", x[:-1]), bench.attach("lower", x[1:]))

    def another_shape(bench, kernel):
        x = values(ROWS, WIDTH)
        kernel.identity_layer(bench.attach("upper", x), bench.attach("mid", values(ROWS, WIDTH)))
        kernel.tensor_init_layer(bench.attach("lower", x.reshape(WIDTH, ROWS)))

    for build in (rows, another_shape):
        message = refused(build)
        assert '"upper" and "lower" share memory' in message, message


def test_graphs_are_refused_when_a_node_is_added():
    graph = Graph("g")
    x = graph.state("hidden", "f32", [ROWS, WIDTH])
    w = graph.constant("w", "f32", [WIDTH, WIDTH])
    with pytest.raises(UserError, match='one tensor, "hidden"'):
        graph.add("linear", "node", [x, w], outputs={"y": x})
    graph.add("add", "node", [x, x], outputs={"y": x})
