"""What the examples share: bf16 tensors where the kernel runs, and a look at them."""

import ml_dtypes
import numpy as np

import megalith

BF16 = ml_dtypes.bfloat16


class Tensors:
    """Makes tensors on a device: numpy arrays for "cpu", copies of them on the GPU for "cuda"."""

    def __init__(self, device="cpu", seed=0):
        self.device = device
        self.random = np.random.default_rng(seed)

    def place(self, array):
        return megalith.to_device(array) if self.device == "cuda" else array

    def normal(self, *shape, scale=1.0):
        array = (self.random.standard_normal(shape) * scale).astype(BF16)
        return self.place(array), array.astype(np.float64)

    def zeros(self, *shape, dtype=BF16):
        return self.place(np.zeros(shape, dtype))

    @staticmethod
    def values(tensor):
        array = tensor if isinstance(tensor, np.ndarray) else tensor.numpy()
        return array.astype(np.float64)


def check(what, found, expected, tolerance=0.02):
    """Prints the largest difference, as a share of value and typical size; ends the program if it is too large."""
    error = np.max(np.abs(found - expected) / (np.abs(expected) + np.sqrt(np.mean(expected**2))))
    print(f"{what}: largest difference {error:.4f}")
    if not error <= tolerance:
        raise SystemExit(f"{what} is wrong")
