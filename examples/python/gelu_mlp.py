"""An operator of one's own: GELU, in the MLP of a GPT. python examples/python/gelu_mlp.py [cuda]"""

import sys

import numpy as np
from tensors import Tensors, check

import megalith
from megalith.mirage.mpk.persistent_kernel import PersistentKernel


@megalith.operator(tasks=[("n", 16), "t"], tests=[{"T": 1, "N": 64}, {"T": 3, "N": 100}])
def gelu():
    """y = gelu(x), in the form with a tanh (https://arxiv.org/abs/1606.08415)"""
    return """
      input x: f32[T, N]
      output y: f32[T, N]
      { [t, n] : 0 <= t < T and 0 <= n < N }
      cube[t, n] = f32(x[t, n]) * f32(x[t, n]) * f32(x[t, n])
      y[t, n] = 0.5 * f32(x[t, n]) * (1 + tanh(0.7978845608 * (f32(x[t, n]) + 0.044715 * cube[t, n])))
    """


device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
print(*gelu.check(device))

make = Tensors(device)
params = PersistentKernel.get_default_init_parameters()
params.update(test_mode=True, num_workers=2)
with PersistentKernel(**params) as pk:
    x, x_values = make.normal(8, 1024)
    w_up, up_values = make.normal(2048, 1024, scale=1 / 32)
    w_down, down_values = make.normal(1024, 2048, scale=1 / 45)
    out = make.zeros(8, 1024)
    x_dt, out_dt = pk.attach_input(x, name="x"), pk.attach_input(out, name="out")
    up = pk.new_tensor(dims=(8, 2048), name="up")
    act = pk.new_tensor(dims=(8, 2048), name="act")

    pk.linear_layer(input=x_dt, weight=pk.attach_input(w_up, name="w_up"), output=up)
    pk.gelu_layer(x=up, y=act, grid_dim=(32, 1, 1))
    pk.linear_with_residual_layer(
        input=act, weight=pk.attach_input(w_down, name="w_down"), residual=x_dt, output=out_dt
    )
    pk.compile()
    pk.run_test_mode()

    h = x_values @ up_values.T
    expected = x_values + 0.5 * h * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h**3))) @ down_values.T
    check("gelu_mlp", make.values(out), expected)
