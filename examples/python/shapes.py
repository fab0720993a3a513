"""Graphs of every shape: a fork, a join, a diamond, one inside another, a residual chain. Dependences follow from what
layers read and write; nothing is said about them. python examples/python/shapes.py [cuda]"""

import sys

import numpy as np
from tensors import Tensors, check

from megalith.mirage.mpk.persistent_kernel import PersistentKernel

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
rows, width = 4, 256


class Script:
    """A kernel, and beside each tensor the values that it should have."""

    def __init__(self):
        self.make = Tensors(device)
        params = PersistentKernel.get_default_init_parameters()
        params.update(test_mode=True, num_workers=4)
        self.pk = PersistentKernel(**params)
        self.tensors, self.expected = {}, {}

    def tensor(self, name, expected, *shape):
        self.tensors[name] = self.make.zeros(*shape)
        self.expected[name] = expected
        return self.pk.attach_input(self.tensors[name], name=name), expected

    def input(self, name, *shape, scale=1.0):
        placed, values = self.make.normal(*shape, scale=scale)
        return self.pk.attach_input(placed, name=name), values

    def linear(self, name, x):
        w, w_values = self.input(f"w_{name}", width, width, scale=width**-0.5)
        y = self.tensor(name, x[1] @ w_values.T, rows, width)
        self.pk.linear_layer(input=x[0], weight=w, output=y[0], grid_dim=(width // 16, 1, 1))
        return y

    def add(self, name, a, b):
        y = self.tensor(name, a[1] + b[1], rows, width)
        self.pk.elementwise_add_layer(input_a=a[0], input_b=b[0], output=y[0], grid_dim=(rows, 1, 1))
        return y

    def norm(self, name, x):
        w, w_values = self.input(f"w_{name}", width)
        y = self.tensor(name, x[1] / np.sqrt((x[1] ** 2).mean(-1, keepdims=True) + 1e-6) * w_values, rows, width)
        self.pk.rmsnorm_layer(input=x[0], weight=w, output=y[0], grid_dim=(rows, 1, 1))
        return y

    def finish(self, what):
        self.pk.compile()
        self.pk.run_test_mode()
        for name, expected in self.expected.items():
            check(f"{what}: {name}", self.make.values(self.tensors[name]), expected, tolerance=0.05)
        self.pk.finalize()


def fork():
    s = Script()
    x = s.norm("x_norm", s.input("x", rows, width))
    for branch in ("left", "middle", "right"):
        s.linear(branch, x)
    s.finish("fork")


def join():
    s = Script()
    a, b, c = (s.linear(f"branch_{n}", s.input(f"x_{n}", rows, width)) for n in "abc")
    s.add("all", s.add("two", a, b), c)
    s.finish("join")


def diamond():
    s = Script()
    x = s.norm("top", s.input("x", rows, width))
    s.linear("bottom", s.add("joined", s.linear("left", x), s.linear("right", x)))
    s.finish("diamond")


def crossed():
    """Each of two layers is read by two that read both: an edge that both forks and joins, at either end."""
    s = Script()
    x = s.input("x", rows, width)
    a, b = s.linear("a", x), s.norm("b", x)
    c, d = s.add("c", a, b), s.add("d", s.linear("a2", a), b)
    s.add("end", s.add("cd", c, d), a)
    s.finish("crossed")


def residual_chain(layers=6):
    """x = x + linear(norm(x)), in two buffers that every layer uses again."""
    s = Script()
    x, values = s.input("x", rows, width)
    normed = s.pk.attach_input(s.make.zeros(rows, width), name="normed")
    for layer in range(layers):
        n, n_values = s.input(f"norm_{layer}", width)
        w, w_values = s.input(f"w_{layer}", width, width, scale=width**-0.5)
        s.pk.rmsnorm_layer(input=x, weight=n, output=normed, grid_dim=(rows, 1, 1))
        s.pk.linear_with_residual_layer(input=normed, weight=w, residual=x, output=x, grid_dim=(16, 1, 1))
        inside = values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-6) * n_values
        values = values + inside @ w_values.T
    y, _ = s.tensor("y", values, rows, width)
    s.pk.identity_layer(input=x, output=y, grid_dim=(1, 1, 1))
    s.finish("residual chain")


for shape in (fork, join, diamond, crossed, residual_chain):
    shape()
