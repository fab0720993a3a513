"""The kernel object of scripts for MPK: what they read of it, and what they change after the fact."""

import json

import ml_dtypes
import numpy as np
import pytest
import reference
from conftest import Bench, assert_right
from test_token_loop import PROMPTS, Decoder, step_by_step, tables

import megalith
from megalith.mirage.mpk.persistent_kernel import PersistentKernel


def test_the_attributes_that_scripts_read():
    meta = tables(3, 2, 5)
    profiler = np.zeros(8, np.uint64)
    kernel = PersistentKernel(
        meta_tensors=meta, num_workers=2, num_local_schedulers=16, max_seq_length=40, max_num_batched_requests=2,
        max_num_batched_tokens=5, max_num_pages=10, page_size=8, profiler_tensor=profiler, trace_name="t",
        eos_token_id=7,
    )  # fmt: skip
    assert (kernel.mode, kernel.world_size, kernel.mpi_rank, kernel.test_mode) == ("offline", 1, 0, False)
    assert (kernel.num_workers, kernel.num_local_schedulers, kernel.num_remote_schedulers) == (2, 16, 0)
    assert (kernel.max_seq_length, kernel.max_num_batched_requests, kernel.max_num_batched_tokens) == (40, 2, 5)
    assert (kernel.max_num_pages, kernel.page_size, kernel.eos_token_id, kernel.trace_name) == (10, 8, 7, "t")
    assert kernel.total_num_requests == 3 and kernel.spec_decode_config is None and kernel.profiler_tensor is profiler
    assert dict(kernel.meta_tensors) == meta and kernel.meta_tensors["step"] is meta["step"]
    assert kernel.target_cc in (80, 86, 89, 90, 100)


def test_a_task_graph_before_all_layers_stand():
    b = Bench()
    x, xv = b.input("x", 2, 64)
    w, wv = b.input("w", 64)
    y, z = b.output("y", 2, 64), b.output("z", 2, 64)
    with pytest.raises(megalith.UserError, match=r"^\[generate_task_graph\] the kernel has no layers"):
        b.kernel.kn_graph.generate_task_graph(num_gpus=1, my_gpu_id=0)
    b.kernel.rmsnorm_layer(input=x, weight=w, output=y)
    first = b.kernel.kn_graph.generate_task_graph(num_gpus=1, my_gpu_id=0)
    b.kernel.identity_layer(input=y, output=z)
    second = b.kernel.kn_graph.generate_task_graph()
    assert len(json.loads(second["json_file"])["tasks"]) > len(json.loads(first["json_file"])["tasks"])
    b.run()
    assert np.array_equal(b.value("z"), b.value("y")) and b.kernel.kn_graph.generate_task_graph() == second
    with pytest.raises(megalith.UserError, match="several GPUs are not built yet"):
        b.kernel.kn_graph.generate_task_graph(num_gpus=2, my_gpu_id=0)


def test_a_saved_kernel_is_loaded_if_it_is_the_same(tmp_path):
    def made(columns=64, rows=2):
        b = Bench()
        x, b.xv = b.input("x", rows, columns)
        w, b.wv = b.input("w", columns)
        b.kernel.rmsnorm_layer(input=x, weight=w, output=b.output("y", rows, columns))
        return b

    with pytest.raises(megalith.UserError, match="cannot be read"):
        made().kernel.load_mpk_kernel(str(tmp_path))
    made().kernel.compile(output_dir=str(tmp_path))
    b = made()
    b.kernel.load_mpk_kernel(output_dir=str(tmp_path))
    assert b.kernel.compiled.report.cache_hit or b.kernel.compiled.directory == ""
    b.kernel.init_request_func()
    b.kernel.run_test_mode()
    assert_right(b.value("y"), reference.rmsnorm(b.xv, b.wv))
    for other in (made(columns=128), made(rows=3)):
        with pytest.raises(ValueError, match="is of another kernel"):
            other.kernel.load_mpk_kernel(output_dir=str(tmp_path))
        other.kernel.load_mpk_kernel(output_dir=str(tmp_path), skip_validation=True)
        other.kernel.run_test_mode()
        assert_right(other.value("y"), reference.rmsnorm(other.xv, other.wv))


# ---- changes after the fact -----------------------------------------------------------------------------------------


def embedding(b):
    ids = b.attach("ids", np.zeros((4, 1), np.int64))
    w, wv = b.input("w", 50, 64)
    b.kernel.embed_layer(input=ids, weight=w, output=b.output("y", 4, 64))
    return wv


def texts(*tokens):
    return np.array([tokens], np.int64)


@pytest.mark.parametrize("of_whom", ["the kernel", "the caller"])
@pytest.mark.parametrize("when", ["before layers", "before compile"])
def test_a_meta_tensor_that_is_replaced_in_time_takes_effect(of_whom, when):
    meta = {"tokens": texts(1, 2, 3, 4, 5, 6), "step": np.array([0], np.int32)}
    kernel_meta = {}
    b = Bench(max_seq_length=6)
    b.kernel = PersistentKernel(test_mode=True, num_workers=2, meta_tensors=meta, max_seq_length=6)
    kernel_meta = b.kernel.meta_tensors if of_whom == "the kernel" else meta

    def replace():
        kernel_meta["tokens"] = texts(9, 8, 7, 6, 5, 4)
        kernel_meta["step"] = np.array([2], np.int32)

    if when == "before layers":
        replace()
    wv = embedding(b)
    if when == "before compile":
        replace()
    b.run()
    assert np.array_equal(b.value("y"), wv[[7, 6, 5, 4]])


@pytest.mark.parametrize("of_whom", ["the kernel", "the caller"])
def test_a_meta_tensor_that_is_replaced_too_late_is_refused(of_whom):
    meta = {"tokens": texts(1, 2, 3, 4), "step": np.array([0], np.int32)}
    b = Bench(max_seq_length=4)
    b.kernel = PersistentKernel(test_mode=True, num_workers=2, meta_tensors=meta, max_seq_length=4)
    wv = embedding(b)
    b.run()
    kernel_meta = b.kernel.meta_tensors if of_whom == "the kernel" else meta
    old = meta["step"]
    with pytest.raises(megalith.UserError, match=r'^\[meta_tensors\] "step" is in use by a compiled kernel'):
        kernel_meta["step"] = np.array([1], np.int32)
        b.kernel.run_test_mode()
    kernel_meta["step"] = old
    b.kernel.run_test_mode()
    assert np.array_equal(b.value("y"), wv[[1, 2, 3, 4]])


def test_what_replaces_a_meta_tensor_must_fit():
    meta = {"tokens": texts(1, 2, 3, 4), "step": np.array([0], np.int32)}
    b = Bench(meta_tensors=meta, max_seq_length=4)
    with pytest.raises(megalith.UserError, match='no meta tensor "steps"'):
        b.kernel.meta_tensors["steps"] = np.array([0], np.int32)
    embedding(b)
    for wrong in (np.array([0, 0], np.int32), np.array([0], np.int64), np.array([0], np.float32), [0]):
        with pytest.raises(megalith.UserError, match="step"):
            b.kernel.meta_tensors["step"] = wrong
    for remove in (b.kernel.meta_tensors.clear, lambda: b.kernel.meta_tensors.pop("step")):
        with pytest.raises(megalith.UserError, match="is in use by a layer or the token loop"):
            remove()
    b.kernel.attach_input(b.kernel.meta_tensors["step"], name="s")
    with pytest.raises(megalith.UserError, match='attached as "s"'):
        b.kernel.meta_tensors["step"] = np.array([0], np.int32)


def test_the_token_loop_takes_replaced_meta_tensors():
    """One that it knows from the start, and one that came later."""
    meta = tables(1, 1, 1)
    meta["tokens"][0, :5] = PROMPTS[0]
    late = meta.pop("prompt_lengths")
    fresh = np.zeros_like(meta["tokens"])
    fresh[0, :1] = PROMPTS[1]

    class Late(Decoder):
        def __init__(self):
            original = PersistentKernel.compile

            def compile_later(kernel):
                kernel.meta_tensors["prompt_lengths"] = late
                kernel.meta_tensors["tokens"] = fresh
                original(kernel)

            PersistentKernel.compile = compile_later
            try:
                super().__init__(meta, 1, 1, lambda array: array)
            finally:
                PersistentKernel.compile = original

    late[0] = 1
    decoder = Late()
    decoder.kernel()
    assert list(fresh[0]) == step_by_step(PROMPTS[1], -1) and not meta["tokens"][0, 5:].any()


@pytest.mark.parametrize(
    "name,value",
    [
        ("mode", "onepass"), ("world_size", 1), ("mpi_rank", 0), ("max_seq_length", 5), ("max_num_batched_requests", 2),
        ("max_num_batched_tokens", 2), ("max_num_pages", 2), ("page_size", 2), ("test_mode", False),
        ("meta_tensors", {}), ("spec_decode_config", object()),
    ],
)  # fmt: skip
def test_a_settled_attribute_is_not_changed(name, value):
    kernel = Bench().kernel
    before = getattr(kernel, name)
    with pytest.raises(megalith.UserError, match=rf"{name} is settled when the kernel is made"):
        setattr(kernel, name, value)
    assert getattr(kernel, name) is before


@pytest.mark.parametrize(
    "name,value",
    [
        ("num_workers", 1),
        ("num_local_schedulers", 8),
        ("use_cutlass_kernel", True),
        ("profile", True),
        ("profiler_tensor", 1),
    ],
)
def test_an_attribute_counts_until_compile(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    b = Bench()
    b.kernel.tensor_init_layer(input=b.output("y", 64, 64))
    setattr(b.kernel, name, value)
    b.run()
    assert len(b.kernel.compiled.tasks.workers) == (1 if name == "num_workers" else 2)
    assert (tmp_path / "mirage_0.perfetto-trace").exists() == name.startswith("profile")
    with pytest.raises(megalith.UserError, match=rf"change {name} before compile\(\)"):
        setattr(b.kernel, name, value)


@pytest.mark.parametrize("name", ["num_workers", "num_local_schedulers"])
@pytest.mark.parametrize("value", [None, "two", 1.5, [1, 2], True, 2**40])
def test_a_number_stays_a_number(name, value):
    for change in (lambda: setattr(Bench().kernel, name, value), lambda: PersistentKernel(**{name: value})):
        with pytest.raises(megalith.UserError, match=rf"\[PersistentKernel\] {name} is .*, want a whole number"):
            change()


@pytest.mark.parametrize("name,value", [("dims", (8, 2)), ("name", "z"), ("dtype", "f32"), ("shape", (1,))])
def test_a_tensor_is_not_changed(name, value):
    b = Bench()
    x, _ = b.input("x", 2, 8)
    with pytest.raises(megalith.UserError, match=rf'{name} of "x" cannot be changed'):
        setattr(x, name, value)
    assert (x.name, x.dims, x.dtype) == ("x", (2, 8), "bf16")


@pytest.mark.parametrize("paged", [True, False])
@pytest.mark.parametrize("names", [("k_cache", "k_cache"), ("k_cache", "v_cache")])
def test_one_tensor_is_not_both_caches(paged, names):
    """Under one name or two."""
    b = Bench(
        meta_tensors=dict(tables(1, 1, 1), step=np.zeros(1, np.int32)), max_seq_length=40, max_num_pages=5, page_size=8
    )
    memory = np.zeros((5 if paged else 1, 8, 1, 32), ml_dtypes.bfloat16)
    attached = {name: b.kernel.attach_input(memory, name=name) for name in set(names)}
    layer = b.kernel.paged_attention_layer if paged else b.kernel.attention_layer
    with pytest.raises(megalith.UserError, match=rf'k_cache "{names[0]}" and v_cache "{names[1]}" are one tensor'):
        layer(
            b.input("x", 1, 96)[0], attached[names[0]], attached[names[1]], None, None, None, None, b.output("y", 1, 32)
        )
