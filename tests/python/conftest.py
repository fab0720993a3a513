"""What the tests share: random tensors, kernels in test mode on each target, and what counts as right."""

import os
import pathlib

import ml_dtypes
import numpy as np
import pytest

import megalith
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

BF16 = ml_dtypes.bfloat16
# References multiply what loop kernels say; a processor that is faster with rounded activations would round them.
os.environ.setdefault("MEGALITH_PRODUCTS", "f32")


def no_gpu():
    """Why nothing runs on a GPU here; None if it does."""
    try:
        return None if megalith.cuda_devices() else "no GPU"
    except megalith.SystemError as error:
        return f"no GPU: {error}".splitlines()[0]


NO_GPU = no_gpu()


@pytest.fixture(params=["cpu", "cuda"])
def target(request):
    if request.param == "cuda" and NO_GPU is not None:
        pytest.skip(NO_GPU)
    return request.param


class Bench:
    """A kernel in test mode, with tensors by name: numpy arrays here, copies of them on the GPU for cuda."""

    def __init__(self, target="cpu", seed=0, **params):
        self.target = target
        self.random = np.random.default_rng(seed)
        self.arrays, self.attached = {}, {}
        meta = params.pop("meta_tensors", {})
        self.meta = {name: self.place(array) for name, array in meta.items()}
        defaults = PersistentKernel.get_default_init_parameters()
        defaults.update({"test_mode": True, "num_workers": 2, "meta_tensors": self.meta, **params})
        self.kernel = PersistentKernel(**defaults)

    def place(self, array):
        return megalith.to_device(array) if self.target == "cuda" else array

    def attach(self, name, array):
        placed = self.place(array)
        self.arrays[name] = placed
        self.attached[name] = self.kernel.attach_input(placed, name=name)
        return self.attached[name]

    def normal(self, *shape, scale=1.0, dtype=BF16):
        return (self.random.standard_normal(shape) * scale).astype(dtype)

    def input(self, name, *shape, scale=1.0, dtype=BF16):
        """A random tensor, attached; and its values."""
        array = self.normal(*shape, scale=scale, dtype=dtype)
        return self.attach(name, array), array

    def output(self, name, *shape, dtype=BF16):
        """A tensor full of what nobody would compute, attached."""
        return self.attach(name, np.full(shape, 77, dtype))

    def run(self, **options):
        self.kernel.compile(**options)
        self.kernel.run_test_mode()

    def value(self, name):
        array = self.arrays[name]
        return array.numpy() if self.target == "cuda" else array


@pytest.fixture
def bench(target):
    benches = []

    def make(**params):
        benches.append(Bench(target, **params))
        return benches[-1]

    yield make
    for one in benches:
        one.kernel.finalize()


def error_in_roundings(found, expected, roundings=1.0, slack=64):
    """Largest difference, in what rounding explains: to the type of ``found`` once (or more often, where tensors
    between layers are rounded, too), and f32 sums; 1 is the limit."""
    found_type = np.asarray(found).dtype
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}[found_type.name]
    size = np.sqrt(np.mean(expected**2)) if expected.size else 0.0
    allowed = roundings * 1.01 * unit * np.abs(expected) + slack * 2.0**-24 * (np.abs(expected) + size) + 1e-30
    if roundings > 1:
        allowed = allowed + roundings * unit * size
    return float(np.max(np.abs(found - expected) / allowed))


def assert_right(found, expected, roundings=1.0, slack=64):
    error = error_in_roundings(found, expected, roundings, slack)
    assert np.isfinite(error) and error <= 1, f"off by {error:.3g} times what rounding explains"


# ---- counting with the other programs -----------------------------------------------------------------------------


class Counts:
    """Leaves a line a test where tools/run_tests.sh counts them, as GoogleTest does."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / f"python-{os.getpid()}.xml"
        self.lines = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            result = ' result="skipped"' if report.skipped else ""
            self.lines.append(f'<testcase name="{report.nodeid.replace(chr(34), "")}"{result}>')
            if report.failed:
                self.lines.append("<failure >")

    def pytest_sessionfinish(self):
        self.path.write_text("\n".join(self.lines) + "\n")


def pytest_configure(config):
    kind, _, folder = os.environ.get("GTEST_OUTPUT", "").partition(":")
    if kind == "xml" and os.path.isdir(folder):
        config.pluginmanager.register(Counts(folder))
