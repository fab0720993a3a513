"""What test_fake_gpu.py runs in a process of its own: kernels for a GPU whose driver is a stand-in. It copies, and
launches nothing, so all but the kernel's own work is as on a GPU."""

import gc
import json
import os
import sys
import tempfile
import types

import numpy as np
from conftest import BF16, Bench
from test_attention import META, paged_case

import megalith


def expect(message, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except megalith.UserError as error:
        assert message in str(error), error
    else:
        raise AssertionError(f"no error: {message}")


def tensors_come_and_go():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = megalith.to_device(array)
    assert np.array_equal(tensor.numpy(), array) and tensor.shape == (3, 4)
    tensor.copy_from(array * 2)
    assert np.array_equal(tensor.numpy(), array * 2)
    expect("want float32 (3, 4)", tensor.copy_from, array[:2])


def where_tensors_lie_decides():
    b = Bench("cuda")
    x, _ = b.input("x", 4, 512)
    assert b.kernel.target == "cuda" and b.kernel.target_cc == 90 and b.kernel.block_dim == (256, 1, 1)
    expect("lies in the host's memory, but the kernel is for cuda", b.kernel.attach_input, np.zeros((2, 2), BF16), "h")
    other = Bench("cpu")
    other.input("x", 4, 512)
    device = megalith.to_device(np.zeros((2, 2), BF16))
    expect("lies in a GPU's memory, but the kernel is for cpu", other.kernel.attach_input, device, "d")


class Device:
    type = "cuda"

    def __init__(self, index):
        self.index = index


class Tensor:
    """What is asked of one of torch."""

    __module__ = "torch"
    dtype = "torch.bfloat16"

    def __init__(self, of, device, offset=0):
        self.of, self.shape, self.device, self.offset = of, of.shape, Device(device), offset

    def data_ptr(self):
        return self.of.address + self.offset

    def stride(self):
        return (self.shape[1], 1)


def the_gpu_and_the_address_are_looked_at():
    def run(tensor):
        b = Bench("cuda")
        x = b.kernel.attach_input(tensor, "x")
        b.kernel.identity_layer(input=x, output=b.output("y", 4, 32))
        b.run()

    memory = megalith.to_device(np.zeros((4, 32), BF16))
    run(Tensor(memory, 0))
    expect('the tensor "x" lies on GPU 1, but kernels run on GPU 0', run, Tensor(memory, 1))
    expect("kernels load 16 bytes at once", run, Tensor(memory, 0, 2))
    expect('the memory of the tensor "x", 256 B at', run, Tensor(memory, 0, 128))  # half of it lies behind
    host = np.zeros((4, 32), BF16)
    host_tensor = Tensor(memory, 0, host.ctypes.data - memory.address)
    expect("is no memory of a GPU: what it came from is wrong about it", run, host_tensor)


def a_kernel_with_everything():
    """Weights that stream, weights in place, stacked ones; states of the caller's and of the kernel's own."""
    b = Bench("cuda")
    x, xv = b.input("x", 4, 512)
    n, _ = b.input("n", 512)
    gate, _ = b.input("gate", 512, 512)
    up, _ = b.input("up", 512, 512)
    both = b.kernel.shuffle_tensors([gate, up], 0, 8, name="both")
    y, drawn = b.output("y", 4, 1024), b.output("drawn", 4, 1, dtype=np.int64)
    b.kernel.rmsnorm_linear_layer(input=x, weight_norm=n, weight_linear=both, output=y)
    b.kernel.sampling_layer(logits=y, output=drawn)
    with tempfile.TemporaryDirectory() as folder:
        b.run(output_dir=folder)
        assert sorted(os.listdir(folder)) == ["task_graph_rank0.json", "test_rank0.cu"]
    b.kernel.run_test_mode()
    assert np.array_equal(b.value("x"), xv) and np.all(b.value("y").astype(np.float32) == 77)
    b.kernel.finalize()


def tables_on_the_gpu_are_looked_at():
    def make(**params):
        return Bench("cuda", **params)

    b, tensors, _, _, heads = paged_case(make, 16, [1, 1], [20, 33], 4, 64, 8, with_norm=False, with_rope=False)
    b.kernel.paged_attention_layer(**tensors, output=b.output("y", 4, heads[0] * heads[1] * heads[2]))
    b.run()
    b.meta[META[0]].copy_from(np.array([0, 1, 5], np.int32))
    expect('"qo_indptr_buffer" has 5 at [2], want 1 to 4', b.kernel.run_test_mode)


def an_operator_of_ones_own():
    """Its kernel is made, bound and launched; since nothing computes, its check must say so."""

    def double_it():
        return "input x: f32[T, N]\noutput y: f32[T, N]\n{ [t, n] : 0 <= t < T and 0 <= n < N }\ny[t, n] = 2 * x[t, n]"

    body = (
        "void double_it(const auto& task) { if (thread() == 0) for (i64 t = task.t_begin; t < task.t_end; ++t) "
        "for (i64 n = 0; n < task.N; ++n) task.y(t, n) = 2 * task.x(t, n); }"
    )
    operator = megalith.operator(tests=[{"T": 2, "N": 8}], cuda=body)(double_it)
    b = Bench("cuda")
    b.kernel.double_it_layer(x=b.input("x", 4, 32)[0], y=b.output("y", 4, 32))
    b.run()
    assert "the body of double_it for cuda" in b.kernel.compiled.source
    expect("[double_it] the body for cuda is wrong: double_it.0.f32.y[", operator.check)
    try:
        megalith.operator(tests=[{"T": 2, "N": 8}])(double_it).check("cuda")
    except megalith.InternalError as error:
        assert "[double_it] the code for cuda does not do what its loop kernel says" in str(error), error
    else:
        raise AssertionError("code that computes nothing is right")


def loop_kernels_of_ones_own():
    """They are made for the card and launched; outputs lie where inputs do."""
    kernel = megalith.loop.kernel("{ [i] : 0 <= i < n } y[i] = 2 * x[i]").split("i", 64, outer="g.0", inner="l.0")
    x = megalith.to_device(np.ones(100, np.float32))
    y = kernel(x)
    assert isinstance(y, megalith.DeviceTensor) and y.shape == (100,) and y.dtype == np.float32
    assert kernel(x, y, stream=0) is y and ".target sm_90a" in kernel.asm["ptx"]
    expect("y lies in the host's memory, and x on GPU 0", kernel, x, np.ones(100, np.float32))
    expect("x lies on a GPU, and the interpreter runs on the host", kernel._made(), x)
    assert megalith.loop.do_bench(lambda: kernel(x, y), gpu=0, flush=False, warmup_ms=0, rep_ms=0) == 1
    expect("y[0] is 0, want 2", kernel.check, x, against=np.full(100, 2), target="cuda")  # since nothing computes


class LoopTensor(Tensor):
    """What is asked of one of torch when a loop kernel is called."""

    __module__ = "torch"
    is_cuda = True

    def get_device(self):
        return self.device.index

    def is_contiguous(self):
        return True


class Float32:
    def __str__(self):
        return "torch.float32"


def loop_kernels_run_on_torchs_stream():
    streams = []
    inner = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: streams.append(index) or 0)
    sys.modules["torch"] = types.SimpleNamespace(_C=inner)
    kernel = megalith.loop.kernel("{ [i, j] : 0 <= i < n and 0 <= j < m } y[i, j] = 2 * x[i, j]").tag("i", "g.0")
    memories = [megalith.to_device(np.zeros((4, 32), np.float32)) for _ in range(2)]
    x, y = (LoopTensor(memory, 0) for memory in memories)
    x.dtype = y.dtype = Float32()
    assert kernel(x, y) is y and streams == [0]
    kernel(x, y, stream=0)
    assert streams == [0]
    y.device.index = 1
    expect("y lies on GPU 1, and x on GPU 0", kernel, x, y)
    del sys.modules["torch"]


def a_profiled_kernel():
    with tempfile.TemporaryDirectory() as folder:
        b = Bench("cuda", profile=True, trace_name=os.path.join(folder, "copy"))
        b.kernel.identity_layer(input=b.input("x", 4, 32)[0], output=b.output("y", 4, 32))
        expect("there is no whole iteration among the records", b.run)  # the trace is written before the page
        with open(os.path.join(folder, "copy.perfetto-trace"), encoding="utf-8") as file:
            names = [event["args"]["name"] for event in json.load(file)["traceEvents"]]
        assert names == ["megalith test", "worker 0", "worker 1"], names  # and no tasks, since none ran


def a_fork_is_told():
    """A fork cannot use the GPU, and ends without touching it."""
    b = Bench("cuda")
    b.kernel.identity_layer(input=b.input("x", 4, 32)[0], output=b.output("y", 4, 32))
    b.run()
    tensor = megalith.to_device(np.zeros((2, 2), np.float32))
    child = os.fork()
    if child == 0:
        for call in (b.kernel.run_test_mode, tensor.numpy, lambda: megalith.to_device(np.zeros((2, 2), np.float32))):
            try:
                call()
                os._exit(1)
            except megalith.SystemError as error:
                assert "forked from one that had opened the GPU" in str(error), error
        del b, tensor
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    b.kernel.run_test_mode()


if __name__ == "__main__":
    assert [gpu.name for gpu in megalith.cuda_devices()] == ["Fake GPU"]
    assert megalith.get_configurations_from_gpu(0) == (4, 0)
    expect("there is no GPU 1", megalith.get_configurations_from_gpu, 1)
    tensors_come_and_go()
    where_tensors_lie_decides()
    the_gpu_and_the_address_are_looked_at()
    a_kernel_with_everything()
    tables_on_the_gpu_are_looked_at()
    an_operator_of_ones_own()
    loop_kernels_of_ones_own()
    loop_kernels_run_on_torchs_stream()
    a_profiled_kernel()
    a_fork_is_told()
    print("as on a GPU")
