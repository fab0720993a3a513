"""The MLP of Qwen3-8B on a slice of its width: 8 rows of 4096, 2048 inside. python examples/python/mlp.py [cuda]"""

import sys

import numpy as np
from tensors import Tensors, check

import megalith.mirage as mirage
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

make = Tensors(sys.argv[1] if len(sys.argv) > 1 else "cpu")
batch, hidden, inner = 8, 4096, 2048
num_tasks = 128

num_workers, num_schedulers = mirage.get_configurations_from_gpu(0)
params = PersistentKernel.get_default_init_parameters()
params.update(
    test_mode=True, num_workers=num_workers, num_local_schedulers=num_schedulers, max_num_batched_tokens=batch
)
params["meta_tensors"] = {"qo_indptr_buffer": make.zeros(batch + 1, dtype=np.int32)}

with PersistentKernel(**params) as pk:
    x, x_values = make.normal(batch, hidden)
    residual, residual_values = make.normal(batch, hidden)
    gate, gate_values = make.normal(inner, hidden, scale=hidden**-0.5)
    up, up_values = make.normal(inner, hidden, scale=hidden**-0.5)
    down, down_values = make.normal(hidden, inner, scale=inner**-0.5)
    mid, gated, out = make.zeros(batch, 2 * inner), make.zeros(batch, inner), make.zeros(batch, hidden)

    x_dt = pk.attach_input(x, name="x")
    block_dim = (256, 1, 1) if pk.target_cc >= 90 else (128, 1, 1)
    gate_dt = pk.attach_input(gate, name="w_gate")
    up_dt = pk.attach_input(up, name="w_up")
    gate_up_dt = pk.shuffle_tensors(
        inputs=[gate_dt, up_dt], shuffled_dim=0, num_groups=num_tasks // 2, name="w_gatedup"
    )
    down_dt = pk.attach_input(down, name="w_down")
    residual_dt = pk.attach_input(residual, name="residual")
    mid_dt = pk.attach_input(mid, name="mlp_mid")
    gated_dt = pk.attach_input(gated, name="silu_out")
    out_dt = pk.attach_input(out, name="mlp_out")

    pk.linear_layer(input=x_dt, weight=gate_up_dt, output=mid_dt, grid_dim=(num_tasks, 1, 1), block_dim=block_dim)
    pk.silu_mul_layer(input=mid_dt, output=gated_dt, grid_dim=(num_tasks // 2, 1, 1), block_dim=block_dim)
    pk.linear_with_residual_layer(
        input=gated_dt,
        weight=down_dt,
        residual=residual_dt,
        output=out_dt,
        grid_dim=(hidden // 64, 1, 1),
        block_dim=block_dim,
    )
    pk.compile()
    pk.run_test_mode()

    g, u = x_values @ gate_values.T, x_values @ up_values.T
    inside = g / (1 + np.exp(-g)) * u
    check("gate and up", make.values(gated), inside, tolerance=0.05)
    check("the MLP", make.values(out), residual_values + inside @ down_values.T)
