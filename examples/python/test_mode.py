"""Test mode: one layer through the whole compilation, once. python examples/python/test_mode.py [cuda]"""

import sys

import numpy as np
from tensors import Tensors, check

import megalith.mirage as mirage
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

make = Tensors(sys.argv[1] if len(sys.argv) > 1 else "cpu")

num_workers, num_schedulers = mirage.get_configurations_from_gpu(0)
params = PersistentKernel.get_default_init_parameters()
params["test_mode"] = True
params["num_workers"] = num_workers
params["num_local_schedulers"] = num_schedulers
pk = PersistentKernel(**params)

x, x_values = make.normal(16, 4096)
w, w_values = make.normal(4096)
out = make.zeros(16, 4096)

x_dt = pk.attach_input(x, name="x")
w_dt = pk.attach_input(w, name="w")
out_dt = pk.attach_input(out, name="out")

block_dim = (256, 1, 1) if pk.target_cc >= 90 else (128, 1, 1)
pk.rmsnorm_layer(input=x_dt, weight=w_dt, output=out_dt, grid_dim=(16, 1, 1), block_dim=block_dim)

pk.compile()
pk.run_test_mode()

expected = x_values / np.sqrt((x_values**2).mean(-1, keepdims=True) + 1e-6) * w_values
check("rmsnorm", make.values(out), expected)
pk.finalize()
