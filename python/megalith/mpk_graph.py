"""The task graph and the source of a PersistentKernel, as files and as texts, under MPK's names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict

from megalith import _megalith
from megalith._megalith import UserError
from megalith.arguments import shown, whole

if TYPE_CHECKING:
    from megalith.persistent_kernel import PersistentKernel

_TASK_GRAPH = "task_graph_rank0.json"


def _files(compiled: _megalith.CompiledKernel) -> Dict[str, str]:
    source = "test_rank0.cu" if compiled.is_cuda else "test_rank0.cpp"
    return {source: compiled.source, _TASK_GRAPH: compiled.tasks.to_json()}


def save(where: str, output_dir: Any, compiled: _megalith.CompiledKernel) -> None:
    """Writes both into a folder, made if need be."""
    try:
        folder = os.fsdecode(output_dir)
        os.makedirs(folder, exist_ok=True)
        for name, text in _files(compiled).items():
            _megalith.write_file(os.path.join(folder, name), text)
    except Exception as error:  # of the system, and of what is no path or has a NUL
        raise UserError(f"[{where}] output_dir {shown(output_dir)} cannot be written to: {error}") from None


def check_saved(output_dir: Any, compiled: _megalith.CompiledKernel) -> None:
    """UserError unless save() would write what is in the folder."""
    for name, text in _files(compiled).items():
        try:
            with open(os.path.join(os.fsdecode(output_dir), name), encoding="utf-8") as file:
                saved = file.read()
        except Exception as error:  # as in save()
            raise UserError(
                f'[load_mpk_kernel] "{name}" in {shown(output_dir)} cannot be read: {error}: call '
                "compile(output_dir=...) first"
            ) from None
        if saved != text:
            raise UserError(
                f'[load_mpk_kernel] "{name}" in {shown(output_dir)} is of another kernel than these layers and parameters '
                "make: call compile() instead"
            )


class KNGraph:
    """What ``kernel.kn_graph`` is."""

    def __init__(self, kernel: "PersistentKernel"):
        self._kernel = kernel

    def __getattr__(self, name: str) -> None:
        raise AttributeError(
            f"kn_graph has no {name}: layers are methods of the kernel; there is generate_task_graph()"
        )

    def generate_task_graph(self, num_gpus: int = 1, my_gpu_id: int = 0) -> Dict[str, str]:
        """The task graph ("json_file") and the source ("cuda_code", C++ for a CPU) of the layers so far, as compile()
        would make them now. More layers may follow."""
        kernel = self._kernel
        num_gpus = whole("generate_task_graph", "num_gpus", num_gpus)
        my_gpu_id = whole("generate_task_graph", "my_gpu_id", my_gpu_id)
        if num_gpus != kernel.world_size or my_gpu_id != kernel.mpi_rank:
            raise UserError(
                f"[generate_task_graph] it is to be for GPU {my_gpu_id} of {num_gpus}, but several GPUs are not built "
                f"yet, want num_gpus={kernel.world_size}, my_gpu_id={kernel.mpi_rank}"
            )
        kernel._check_alive("generate_task_graph")
        compiled = kernel._compiled
        if compiled is None:
            kernel.meta_tensors.follow()
            compiled = kernel._compile(kernel._whole_graph("generate_task_graph"), plan_only=True)
        source, tasks = _files(compiled).values()
        return {"cuda_code": source, "json_file": tasks}
