"""Calls every public function with values that nobody should hand over, one argument at a time, and prints each call that is
answered with anything but a result or an error of Megalith's own. test_misuse.py runs it in a process of its own, which a
crash would end."""

import decimal
import faulthandler
import itertools
import pathlib
import sys

import numpy as np
from conftest import BF16

import megalith
from megalith import PersistentKernel

STORYTELLER = pathlib.Path(__file__).resolve().parents[2] / "models" / "storyteller"
SECONDS_A_CALL = 120
FINE = (megalith.UserError, megalith.SystemError)


class Fails:
    """Fails at whatever is asked of it."""

    def _fail(self, *_):
        raise RuntimeError("fails")

    __index__ = __float__ = __iter__ = __len__ = __repr__ = __str__ = __bool__ = __eq__ = __fspath__ = _fail
    __hash__ = object.__hash__


class LongList(list):
    def __len__(self):
        return 10**12


class Text(str):
    pass


def values():
    """Made anew for each call, since iterators end."""
    circle = []
    circle.append(circle)
    return {
        "None": None, "True": True, "0": 0, "-1": -1, "2**31": 2**31, "2**63": 2**63, "2**64": 2**64, "10**5000": 10**5000,
        "1.5": 1.5, "nan": float("nan"), "inf": float("inf"), "1e308": 1e308, "complex": 1j, "decimal": decimal.Decimal(1),
        "''": "", "'x'": "x", "half a pair": "\ud800", "nul": "a\0b", "a long text": "x" * 10**5, "Text": Text("x"),
        "bytes": b"x", "bytearray": bytearray(b"x"), "memoryview": memoryview(b"xyz"), "path": pathlib.Path("nowhere/x"),
        "[]": [], "[None]": [None], "[[]]": [[]], "['x']": ["x"], "[-1]": [-1], "[2**70]": [2**70], "[nan]": [float("nan")],
        "circle": circle, "LongList": LongList([1]), "()": (), "(-1, 1, 1)": (-1, 1, 1), "(2**40, 2**40)": (2**40, 2**40),
        "(1.5, 1, 1)": (1.5, 1, 1), "{}": {}, "{1: 2}": {1: 2}, "{'x': 'y'}": {"x": "y"}, "set": {1, 2},
        "generator": (i for i in (1, 2)), "endless": itertools.count(), "range": range(10**9), "object": object(),
        "function": lambda: 1, "class": PersistentKernel, "module": sys, "Fails": Fails(), "graph": megalith.Graph("g"),
        "np.int64": np.int64(3), "np.float32": np.float32(1.5), "np.bool": np.bool_(True), "array": np.array([1, 2]),
        "0 dimensions": np.array(5), "2 dimensions": np.zeros((2, 2)), "doubles": np.zeros(2), "objects": np.array([None]),
    }  # fmt: skip


class Building:
    """A kernel with tensors of names that nobody cares for."""

    def __init__(self, **params):
        self.kernel = PersistentKernel(test_mode=True, num_workers=2, **params)
        self.count = 0

    def __call__(self, *shape, dtype=BF16):
        self.count += 1
        return self.kernel.attach_input(np.zeros(shape, dtype), name=f"t{self.count}")


def tables():
    def numbers(*shape, dtype=np.int32):
        return np.zeros(shape, dtype)

    return dict(
        step=numbers(1), tokens=numbers(1, 8, dtype=np.int64), input_tokens=numbers(1, 1, dtype=np.int64),
        output_tokens=numbers(1, 1, dtype=np.int64), prompt_lengths=numbers(1), qo_indptr_buffer=numbers(2),
        paged_kv_indptr_buffer=numbers(2), paged_kv_indices_buffer=numbers(8), paged_kv_last_page_len_buffer=numbers(1),
    )  # fmt: skip


CALLS = {}  # name -> what makes a function and its arguments, of which one at a time is replaced


def call(make):
    CALLS[make.__name__] = make
    return make


def layer(name, /, **arguments):
    def make():
        t = Building()
        given = {n: value(t) if callable(value) else t(*value) for n, value in arguments.items()}
        return getattr(t.kernel, name), {**given, "grid_dim": None, "block_dim": None}

    CALLS[name] = make


def method(name, of, /, **arguments):
    CALLS[name] = lambda: (getattr(of(), name.rpartition(".")[2]), dict(arguments))


layer("rmsnorm_layer", input=(4, 64), weight=(64,), output=(4, 64), eps=lambda t: 1e-6)
layer("rmsnorm_linear_layer", input=(4, 64), weight_norm=(64,), weight_linear=(32, 64), output=(4, 32), eps=lambda t: 1e-6)
layer("linear_layer", input=(4, 64), weight=(32, 64), output=(4, 32))
layer("linear_with_residual_layer", input=(4, 64), weight=(32, 64), residual=(4, 32), output=(4, 32))
layer("silu_mul_layer", input=(4, 64), output=(4, 32))
layer("elementwise_add_layer", input_a=(4, 64), input_b=(4, 64), output=(4, 64))
layer("identity_layer", input=(4, 64), output=(4, 64))
layer("tensor_init_layer", input=(4, 64))
layer("argmax_layer", input=(4, 64), output=lambda t: t(4, 1, dtype=np.int64))
layer("sampling_layer", logits=(4, 64), output=lambda t: t(4, 1, dtype=np.int32), seed=lambda t: 42)
layer(
    "embed_layer", input=lambda t: t(4, 1, dtype=np.int64), weight=(16, 64), output=(4, 64), input_source=lambda t: 1
)
layer(
    "layernorm_layer", x=(4, 64), weight=(64,), bias=(64,), y=(4, 64), eps=lambda t: 1e-5
)


@call
def paged_attention_layer():
    meta = {name: table for name, table in tables().items() if name.startswith(("qo", "paged"))}
    t = Building(meta_tensors=meta, max_seq_length=32, max_num_batched_tokens=4, max_num_pages=8, page_size=8)
    return t.kernel.paged_attention_layer, dict(
        input=t(4, 256), k_cache=t(8, 8, 1, 64), v_cache=t(8, 8, 1, 64), q_norm=t(64), k_norm=t(64),
        cos_pos_embed=t(64, 64), sin_pos_embed=t(64, 64), output=t(4, 128), grid_dim=None, block_dim=None,
    )  # fmt: skip


@call
def constructor():
    return PersistentKernel, dict(PersistentKernel.get_default_init_parameters(), test_mode=True, target="cpu", profile=False)


@call
def token_loop():
    return PersistentKernel, dict(
        meta_tensors=tables(), max_seq_length=8, max_num_pages=8, page_size=1, max_num_batched_requests=1,
        max_num_batched_tokens=1, eos_token_id=-1, mode="offline",
    )  # fmt: skip


@call
def meta_tensors():
    return lambda **given: PersistentKernel(meta_tensors=given, max_seq_length=8, max_num_pages=8), tables()


@call
def shuffle_tensors():
    t = Building()
    return t.kernel.shuffle_tensors, dict(inputs=[t(4, 8), t(4, 8)], shuffled_dim=0, num_groups=2, name="both")


@call
def compile_kernel():
    t = Building()
    t.kernel.tensor_init_layer(t(4, 64))
    return t.kernel.compile, dict(output_dir=None, eos_token_id=-1)


@call
def operator():
    def declare(text="", **given):
        def doubled():
            return text

        return megalith.operator(**given)(doubled)

    text = "input x: f32[T]\noutput y: f32[T]\n{ [t] : 0 <= t < T }\ny[t] = 2 * f32(x[t])"
    return declare, dict(
        text=text, tests=[{"T": 3}], tasks=["t"], one_task=False, index=None, exact=None, any_sizes=True, cpu=None,
        cuda=None, shared_bytes=0, test_mode=False, registry=megalith.Registry.extended(),
    )  # fmt: skip


def graph():
    made = megalith.Graph("g")
    made.add("copy", "c", [made.state("x", "f32", [8, 64])])
    return made


def once(make):
    made = []

    def get():
        if not made:
            made.append(make())
        return made[0]

    return get


def bound():
    made, x = graph(), np.zeros((8, 64), np.float32)
    runner = megalith.GraphRunner(made, megalith.compile(made), {"x": (x.ctypes.data, False, 8, -1)})
    return runner, x


def ended(one):
    one.result()
    return one


def ready():
    t = Building()
    t.kernel.tensor_init_layer(t(4, 64))
    t.kernel.compile()
    return t.kernel


model = once(lambda: megalith.load(STORYTELLER, max_seq_len=256, max_batch=3))
engine = once(lambda: megalith.Engine(STORYTELLER, max_seq_len=256, max_batch=2, num_workers=1, max_queue=2**20))
answer = once(lambda: ended(engine().submit("x", max_new_tokens=2)))
runner, ready = once(bound), once(ready)
method("attach_input", lambda: Building().kernel, torch_tensor=np.zeros((2, 2), np.float32), name="x")
method(
    "new_tensor", lambda: Building().kernel, dims=(2, 2), strides=(2, 1), dtype="bf16", name="x", io_category="cuda_tensor"
)
method("dim", lambda: Building()(2, 2), index=0)
method("read", ready, tensor=None)
method("__call__", ready, default_stream=None)
method("megalith.to_device", lambda: megalith, array=None)
method("megalith.DeviceTensor", lambda: megalith, shape=(2, 2), dtype="float32")
method("megalith.get_configurations_from_gpu", lambda: megalith, rank=0)
method("megalith.Model", lambda: megalith, folder="x", target="cpu", engine=None, tokenizer=None)
method("megalith.Graph", lambda: megalith, name="g", registry=None)
method("megalith.compile", lambda: megalith, graph=graph(), target="cpu", num_workers=1, plan_only=True, reuse_arena=True)
for kind in ("constant", "state", "activation"):
    method(f"Graph.{kind}", graph, name="y", dtype="f32", shape=[8, 64])
method("Graph.stacked", graph, name="s", dtype="f32", shape=[8, 64], parts=["a", "b"], groups=1)
method("Graph.make_constant", graph, tensor=0)
method("Graph.dynamic_size", graph, name="rows", tensor=0, index=0)
method("Graph.add", graph, op="copy", node="d", inputs=[0], sizes={}, attributes={}, tile={}, outputs={}, dtypes={})
method("Graph.set_gate", graph, node="c", stop=0)
method("Graph.find", graph, name="x")
method("Graph.tensor", graph, id=0)
method("Graph.loops", graph, target="cpu")
method("GraphRunner.profile", lambda: runner()[0], iterations=1)
method("GraphRunner.read_activation", lambda: runner()[0], tensor=1, address=0)
method("Registry.get", megalith.Registry.shared, name="copy")
method("Operator.extents", lambda: megalith.Registry.shared().get("copy"), node="n", tensors={}, sizes={}, attributes={})
method("Operator.check", lambda: megalith.Registry.shared().get("copy"), target="tpu")
method("Tokenizer.open", lambda: megalith.Tokenizer, path=str(STORYTELLER))
method("Tokenizer.encode", lambda: model().tokenizer, text="x", add_special=True, parse_special=True)
method("Tokenizer.decode", lambda: model().tokenizer, ids=[1], skip_special=True)
method("Tokenizer.token_id", lambda: model().tokenizer, name="x")
method("encode", model, text="x")
method("decode", model, tokens=[1])
method("logits", model, prompt="x")
GENERATE = dict(
    prompt="x", max_new_tokens=2, temperature=0, top_p=1, top_k=0, min_p=0, repetition_penalty=1, presence_penalty=0,
    frequency_penalty=0, seed=0, stop=[], ignore_stop_tokens=False, stop_token_ids=[1], min_tokens=0, logit_bias={1: 2},
    allowed_token_ids=[5], bad_words=["y"], show_special=False, logprobs=False, top_logprobs=0,
)  # fmt: skip
method("generate", model, **GENERATE, stream=False)
method("Engine.submit", engine, **GENERATE, prompt_logprobs=None, priority=0, cache_salt="", json_schema=None, regex=None, choice=None, grammar=None)
method("Answer.result", answer, timeout=60)
method("megalith.Answer", lambda: megalith, engine=None, answer=None)
LOAD = dict(folder="nowhere", target="cpu", num_workers=2, max_seq_len=64, max_batch=1, max_batched_tokens=0, draft_tokens=0, draft_model=None, page_size=16)
method("megalith.load", lambda: megalith, **LOAD, quantization=None, load_format="auto")
method("megalith.Engine", lambda: megalith, **LOAD, quantization=None, load_format="auto", max_queue=5, prefix_cache=True)

LOOPS = "{ [i, j] : 0 <= i < n and 0 <= j < m } b[i, j] = a[i, j]"
loops = once(lambda: megalith.loop.kernel(LOOPS))
method("loop.kernel", lambda: megalith.loop, text=LOOPS, alignment=True, divisibility=True, ones=True, never=[])
method("Kernel.split", loops, iname="i", factor=4, outer="o", inner="p")
method("Kernel.tag", loops, iname="i", tag="g.0")
method("Kernel.order", loops, iname=["j", "i"])
method("Kernel.map", loops, iname=["i", "j"], values={"u": "i", "v": "j"})
method("Kernel.prefetch", loops, tensor="a", sweep=["i"], buffer="s", inames=["p"])
method("Kernel.fuse", loops, kernel=megalith.loop.kernel("kernel k\n" + LOOPS), input={"x": "y"}, keep=["y"])
method("Kernel.apply", loops, text="untag i")
method("Kernel.specialized", loops, alignment=True, divisibility=True, ones=True, never=[])
method("Kernel.source", loops, target="cpu")
method("Kernel.counts", loops, n=4, m=4)
method("Kernel.warmup", loops, a="f32[2, 2]", target="cpu")
method("Kernel.check", loops, target="cpu", rtol=1.0, atol=1.0, seed=0, n=2, m=2)
method("Kernel.__call__", loops, a=np.zeros((2, 2), np.float32), b=np.zeros((2, 2), np.float32), n=2, stream=None)
method(
    "loop.do_bench", lambda: megalith.loop, function=int, warmup_ms=0, rep_ms=0, quantiles=None, flush=False, gpu=-1, stream=0,
    before=None,
)  # fmt: skip
method(
    "loop.autotune", lambda: megalith.loop, configs=[{}], key=None, prune=None, model=None, top_k=None, restore=[], reset=[],
    bench=megalith.loop.do_bench, cache=True,
)  # fmt: skip


def main():
    count = 0
    model()  # compiling takes its time
    for name, make in CALLS.items():
        for argument in make()[1]:
            for value in values():
                faulthandler.dump_traceback_later(SECONDS_A_CALL, exit=True)
                print(f"{name}({argument}={value})", file=sys.stderr, flush=True)  # the last one is what a crash was in
                function, arguments = make()
                arguments[argument] = values()[value]
                count += 1
                try:
                    function(**arguments)
                except FINE as error:
                    if "incompatible function arguments" in str(error):
                        print(f"{name}({argument}={value}): {error}")
                except BaseException as error:
                    print(f"{name}({argument}={value}): {type(error).__name__}: {str(error)[:200]}")
    faulthandler.cancel_dump_traceback_later()
    print(count, "calls")


if __name__ == "__main__":
    main()
