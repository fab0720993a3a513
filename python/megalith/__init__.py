"""Megalith: a model's tensor graph as one persistent kernel, on the cores of a CPU or the multiprocessors of a GPU.

    import megalith
    model = megalith.load("models/storyteller")
    for piece in model.generate("Once upon a time", max_new_tokens=60, stream=True):
        print(piece, end="", flush=True)

``Engine`` takes prompts at any time, from any thread and from asyncio. ``PersistentKernel`` builds a kernel layer by layer; ``Graph`` and ``compile`` are what it stands on. ``megalith.loop``
has loop kernels of one's own.
"""

from megalith import _megalith, loop, signatures
from megalith._megalith import (
    CompiledKernel,
    Error,
    Graph,
    GraphRunner,
    HangError,
    InternalError,
    Operator,
    OperatorCheck,
    OperatorTiming,
    Registry,
    SystemError,
    TaskGraph,
    Tokenizer,
    UserError,
    __version__,
    cuda_devices,
)
from megalith.dtensor import DTensor
from megalith.engine import Answer, Engine, QueueFull, Usage
from megalith.model import Generation, Model, load
from megalith.operators import operator
from megalith.persistent_kernel import PersistentKernel, get_configurations_from_gpu
from megalith.tensors import DeviceTensor, to_device

compile = signatures.explained(_megalith.compile, "compile")
signatures.explain(Graph, GraphRunner, Operator, Registry, Tokenizer, _megalith.TaskGraph)

__all__ = [
    "Answer",
    "CompiledKernel",
    "DTensor",
    "DeviceTensor",
    "Engine",
    "Error",
    "Generation",
    "Graph",
    "GraphRunner",
    "HangError",
    "InternalError",
    "Model",
    "Operator",
    "OperatorCheck",
    "OperatorTiming",
    "PersistentKernel",
    "QueueFull",
    "Registry",
    "SystemError",
    "TaskGraph",
    "Tokenizer",
    "Usage",
    "UserError",
    "__version__",
    "compile",
    "cuda_devices",
    "get_configurations_from_gpu",
    "load",
    "loop",
    "operator",
    "to_device",
]
