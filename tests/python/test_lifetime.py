"""Whose memory it is and for how long; several kernels, several threads; tensors of every library."""

import gc
import resource
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import reference
from conftest import BF16, Bench, assert_right

import megalith
from megalith.mirage.mpk.persistent_kernel import PersistentKernel


def norm_kernel(b, rows=2, columns=64):
    x, xv = b.input("x", rows, columns)
    w, wv = b.input("w", columns)
    b.kernel.rmsnorm_layer(input=x, weight=w, output=b.output("y", rows, columns))
    return reference.rmsnorm(xv, wv)


def test_the_kernel_holds_on_to_tensors():
    b = Bench()

    class Tracked(np.ndarray):
        pass

    x = np.ones((2, 64), BF16).view(Tracked)
    alive = weakref.ref(x)
    b.kernel.tensor_init_layer(input=b.kernel.attach_input(x, name="x"))
    del x
    gc.collect()
    b.run()
    assert alive() is not None and not alive().astype(np.float32).any()
    b.kernel.finalize()
    gc.collect()
    assert alive() is None


def test_a_context_manager_finalizes():
    with PersistentKernel(test_mode=True) as kernel:
        kernel.tensor_init_layer(input=kernel.attach_input(np.ones((2, 16), BF16), name="x"))
        kernel.compile()
        kernel.run_test_mode()
    with pytest.raises(megalith.UserError, match="was finalized"):
        kernel.run_test_mode()
    kernel.finalize()  # once more does nothing


def test_two_kernels_side_by_side(bench):
    one, two = bench(seed=1), bench(seed=2)
    expected = [norm_kernel(one), norm_kernel(two, 3, 128)]
    one.kernel.compile()
    two.kernel.compile()
    for b in (one, two, one):
        b.kernel.run_test_mode()
    for b, wanted in zip((one, two), expected):
        assert_right(b.value("y"), wanted)


def test_inputs_are_read_anew(bench):
    b = bench()
    norm_kernel(b)
    b.run()
    fresh = b.normal(2, 64)
    if b.target == "cuda":
        b.arrays["x"].copy_from(fresh)
    else:
        b.arrays["x"][:] = fresh
    b.kernel.run_test_mode()
    w = b.value("w")
    assert_right(b.value("y"), reference.rmsnorm(fresh, w))


def test_threads_take_turns(bench):
    b = bench()
    x = b.attach("x", np.zeros((1, 64), np.float32))
    one = b.attach("one", np.ones((1, 64), np.float32))
    b.kernel.elementwise_add_layer(input_a=x, input_b=one, output=x)
    b.kernel.compile()
    threads = [threading.Thread(target=lambda: [b.kernel.run_test_mode() for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.all(b.value("x") == 100)  # had two runs overlapped, some additions were lost


def test_finalize_waits_for_nobody_who_runs():
    """Ending a kernel while another thread runs it is safe: the run ends, then the memory goes."""
    b = Bench()
    x = b.attach("x", np.zeros((64, 4096), np.float32))
    b.kernel.elementwise_add_layer(input_a=x, input_b=x, output=b.attach("y", np.zeros((64, 4096), np.float32)))
    b.kernel.compile()
    failures = []

    def work():
        try:
            for _ in range(1000):
                b.kernel.run_test_mode()
        except megalith.UserError as error:
            failures.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    b.kernel.finalize()
    thread.join()
    assert all("was finalized" in failure for failure in failures)


def test_one_tensor_under_two_names(bench):
    """The same memory is one tensor: what one layer writes under one name, another reads under the other."""
    b = bench()
    x, xv = b.input("x", 2, 64)
    w, wv = b.input("w", 64)
    y = b.output("y", 2, 64, dtype=np.float32)
    again = b.kernel.attach_input(b.arrays["y"], name="again")
    z = b.output("z", 2, 64)
    b.kernel.rmsnorm_layer(input=x, weight=w, output=y)
    b.kernel.elementwise_add_layer(input_a=again, input_b=x, output=z)
    b.run()
    assert_right(b.value("z"), reference.rmsnorm(xv, wv) + reference.f64(xv))


def test_a_read_only_weight_is_welcome():
    b = Bench()
    x, xv = b.input("x", 2, 64)
    weight = b.normal(64)
    weight.flags.writeable = False
    b.kernel.rmsnorm_layer(input=x, weight=b.attach("w", weight), output=b.output("y", 2, 64))
    b.run()
    assert_right(b.value("y"), reference.rmsnorm(xv, weight))


class OnlyDlpack:
    """A tensor of a library that nobody has heard of."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_anything_with_dlpack():
    b = Bench()
    array = np.ones((2, 64), np.float32)
    x = b.kernel.attach_input(OnlyDlpack(array), name="x")
    b.kernel.tensor_init_layer(input=x)
    b.run()
    assert not array.any()


def test_dlpack_that_is_not_row_major():
    with pytest.raises(megalith.UserError, match='the tensor "x" is not row-major'):
        Bench().kernel.attach_input(OnlyDlpack(np.ones((4, 8), np.float32).T), name="x")


def test_tensors_of_torch(target):
    torch = pytest.importorskip("torch")
    place = torch.device("cuda" if target == "cuda" else "cpu")
    if target == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    b = Bench(target)
    x = torch.randn(2, 64, dtype=torch.bfloat16, device=place)
    w = torch.nn.Parameter(torch.randn(64, dtype=torch.bfloat16, device=place))  # requires a gradient; taken all the same
    y = torch.zeros(2, 64, dtype=torch.bfloat16, device=place)
    tensors = [b.kernel.attach_input(t, name=n) for t, n in ((x, "x"), (w, "w"), (y, "y"))]
    b.kernel.rmsnorm_layer(*tensors)
    b.run()
    for _ in range(3):  # torch writes on a stream of its own, which is waited for, and reads what was written
        fresh = torch.randn(2048, 2048, device=place)
        x.copy_((fresh @ fresh)[:2, :64])
        b.kernel.run_test_mode()
        expected = reference.rmsnorm(x.float().cpu().numpy(), w.detach().float().cpu().numpy())
        assert_right(y.float().cpu().numpy().astype(BF16), expected)
    with pytest.raises(megalith.UserError, match='the tensor "z" is not row-major.*contiguous'):
        Bench(target).kernel.attach_input(torch.zeros(4, 8, device=place).T, name="z")


class TorchLike:
    """As much of a torch tensor as is looked at, for where torch is not installed."""

    __module__ = "torch"

    class Device:
        type, index = "cpu", None

    device = Device()

    def __init__(self, array, dtype):
        self.array, self.shape, self.dtype = array, array.shape, f"torch.{dtype}"

    def data_ptr(self):
        return self.array.ctypes.data

    def stride(self):
        return tuple(stride // self.array.itemsize for stride in self.array.strides)


def test_tensors_as_torch_has_them():
    b = Bench()
    arrays = [b.normal(2, 64), b.normal(64), np.zeros((2, 64), BF16)]
    b.kernel.rmsnorm_layer(*(b.kernel.attach_input(TorchLike(a, "bfloat16"), name=n) for a, n in zip(arrays, "xwy")))
    b.run()
    assert_right(arrays[2], reference.rmsnorm(arrays[0], arrays[1]))
    with pytest.raises(megalith.UserError, match='the tensor "z" is not row-major.*contiguous'):
        Bench().kernel.attach_input(TorchLike(np.zeros((4, 8), BF16).T, "bfloat16"), name="z")
    with pytest.raises(megalith.UserError, match='the tensor "z": the dtype torch.complex64 is not known'):
        Bench().kernel.attach_input(TorchLike(np.zeros(4, np.complex64), "complex64"), name="z")


def test_dtypes_by_every_name():
    from megalith.mirage import bfloat16, float32
    from megalith.tensors import dtype_name

    for name in ("bf16", "bfloat16", BF16, np.dtype(BF16), bfloat16, "torch.bfloat16"):
        assert dtype_name(name) == "bf16"
    for name in (np.float32, np.dtype("float32"), float32, "torch.float32"):
        assert dtype_name(name) == "f32"


def test_nothing_is_lost_over_many_rounds():
    def round_of():
        b = Bench()
        norm_kernel(b, 4, 4096)
        b.run()
        b.kernel.finalize()

    for _ in range(20):
        round_of()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        round_of()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 << 10, f"{grown} KiB more after 200 rounds"


def test_importing_needs_no_gpu_and_no_numpy():
    code = (
        "import sys; import megalith, megalith.mirage; assert 'numpy' not in sys.modules; print(megalith.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == megalith.__version__
