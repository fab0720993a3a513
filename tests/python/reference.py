"""What layers compute, in float64 and plainly: the judge of the tests. Inputs are arrays of any float type."""

import numpy as np


def f64(array):
    return np.asarray(array).astype(np.float64)


def rmsnorm(x, weight, eps=1e-6):
    x = f64(x)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * f64(weight)


def linear(x, weight):
    return f64(x) @ f64(weight).T


def silu(x):
    return x / (1 + np.exp(-x))


def silu_mul(x, groups=1):
    """Gates and ups take turns, in so many groups."""
    x = f64(x)
    parts = x.reshape(x.shape[0], groups, 2, -1)
    return (silu(parts[:, :, 0]) * parts[:, :, 1]).reshape(x.shape[0], -1)


def stack(parts, groups):
    """The rows of matrices dealt in rounds, as fuse_tensors and shuffle_tensors do it."""
    dealt = [part.reshape(groups, -1, part.shape[1]) for part in parts]
    return np.concatenate(dealt, axis=1).reshape(-1, parts[0].shape[1])


def rotate(x, cosine, sine):
    """Halves turn together; tables as wide as a head. x: (..., head_dim)."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * cosine + turned * sine


def rope_tables(positions, size, base=10000.0):
    angles = np.outer(np.arange(positions), base ** (-np.arange(0, size, 2) / size))
    return np.cos(np.concatenate([angles, angles], -1)), np.sin(np.concatenate([angles, angles], -1))


def split_heads(qkv, groups, size):
    """Of a row the query heads (groups, per group, size), the keys and the values (groups, size)."""
    heads = f64(qkv).reshape(groups, -1, size)
    return heads[:, :-2], heads[:, -2], heads[:, -1]


def attend(q, keys, values):
    """One row: q (groups, per group, size) over keys and values (positions, groups, size)."""
    scores = np.einsum("gmd,sgd->gms", q, keys) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("gms,sgd->gmd", weights, values).reshape(-1)


class Attention:
    """Attention of rows over a cache of (request, position), which it appends to as it goes, rounded as it is kept."""

    def __init__(self, groups, size, norms=None, tables=None):
        self.groups, self.size, self.norms, self.tables = groups, size, norms, tables

    def heads(self, row, position):
        q, k, v = split_heads(row, self.groups, self.size)
        if self.norms is not None:
            q, k = rmsnorm(q, self.norms[0]), rmsnorm(k, self.norms[1])
        if self.tables is not None:
            cosine, sine = (f64(table)[position] for table in self.tables)
            q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        return q, k, v

    def request(self, rows, keys, values, begin):
        """New rows of one request from position ``begin`` on. keys, values: (positions, groups, size), written to."""
        queries = []
        for i, row in enumerate(rows):
            q, k, v = self.heads(row, begin + i)
            keys[begin + i], values[begin + i] = k.astype(keys.dtype), v.astype(values.dtype)
            queries.append(q)
        return np.stack(
            [attend(q, f64(keys[: begin + i + 1]), f64(values[: begin + i + 1])) for i, q in enumerate(queries)]
        )
