"""Every mistake gets its message, word for word; and what no table can say: messages with numbers of the machine."""

import pathlib

import mistakes_of_arguments  # noqa: F401  they join the table
import mistakes_of_operators  # noqa: F401
import numpy as np
import pytest
from conftest import BF16, Bench
from mistakes import MISTAKES

import megalith


def messages():
    """Mistake -> (kind, message), from messages.txt."""
    lines = (pathlib.Path(__file__).parent / "messages.txt").read_text().splitlines()
    table, name = {}, None
    for line in lines:
        if line.startswith("    "):
            kind, _, rest = line.strip().partition(": ")
            table[name] = (kind, rest) if kind.endswith("Error") else ("UserError", line.strip())
        elif line and not line.startswith("#"):
            name = line
    return table


MESSAGES = messages()


def test_the_table_is_whole():
    assert set(MESSAGES) == set(MISTAKES)
    assert len(MISTAKES) >= 40


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name):
    kind, message = MESSAGES[name]
    with pytest.raises(Exception) as caught:
        MISTAKES[name](Bench())
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


def test_the_kinds_of_error():
    assert issubclass(megalith.UserError, ValueError) and issubclass(megalith.UserError, megalith.Error)
    assert issubclass(megalith.HangError, megalith.InternalError)
    for kind in (megalith.InternalError, megalith.SystemError):
        assert issubclass(kind, megalith.Error) and not issubclass(kind, ValueError)
    with pytest.raises(ValueError, match="no tensor"):
        Bench().attach("x", "text")


def test_an_unknown_operator_names_the_known_ones():
    with pytest.raises(megalith.UserError, match='no operator "rmsnrom"; known are .*rmsnorm, '):
        megalith.Graph("g").add("rmsnrom", "n", [])


def test_more_memory_than_there_is():
    b = Bench()
    huge = megalith._megalith.memory_available() // 2
    x, _ = b.input("x", 1, 64)
    tensors = [b.kernel.new_tensor(dims=(huge // 64, 64), name=f"t{i}", dtype="f32") for i in range(2)]
    b.kernel.tensor_init_layer(input=tensors[0])
    b.kernel.elementwise_add_layer(input_a=tensors[0], input_b=tensors[0], output=tensors[1])
    with pytest.raises(megalith.SystemError, match=r"cannot map .* for the arena of activations: not enough memory"):
        b.kernel.compile()


def test_a_refused_layer_leaves_the_kernel_as_it_was():
    b = Bench()
    x, xv = b.input("x", 2, 64)
    w, wv = b.input("w", 64)
    y = b.output("y", 2, 64)
    with pytest.raises(megalith.UserError):
        b.kernel.rmsnorm_layer(input=x, weight=w, output=y, grid_dim=(3, 1, 1))
    b.kernel.rmsnorm_layer(input=x, weight=w, output=y, grid_dim=(2, 1, 1))
    b.run()
    assert np.any(b.value("y") != np.full((2, 64), 77, BF16))


def test_a_refused_tensor_leaves_its_name_free():
    b = Bench()
    with pytest.raises(megalith.UserError):
        b.attach("x", np.zeros((4, 8), BF16).T)
    b.attach("x", np.zeros((4, 8), BF16))
