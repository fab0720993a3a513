"""The attention layers against float64: a contiguous cache, pages, chunks; with and without q/k norm and rotation."""

import numpy as np
import pytest
import reference
from conftest import BF16, assert_right

META = ("qo_indptr_buffer", "paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer")


def operands(b, rows, groups, per_group, size, positions, with_norm, with_rope):
    """The tensors that all attention layers take: DTensors by role, and the reference."""
    x, xv = b.input("x", rows, groups * (per_group + 2) * size)
    tensors = {"input": x, "q_norm": None, "k_norm": None, "cos_pos_embed": None, "sin_pos_embed": None}
    norms = tables = None
    if with_norm:
        tensors["q_norm"], qv = b.input("q_norm", size)
        tensors["k_norm"], kv = b.input("k_norm", size)
        norms = (qv, kv)
    if with_rope:
        tables = tuple(table.astype(BF16) for table in reference.rope_tables(positions, size))
        tensors["cos_pos_embed"] = b.attach("cos", tables[0])
        tensors["sin_pos_embed"] = b.attach("sin", tables[1])
    return tensors, xv, reference.Attention(groups, size, norms, tables)


@pytest.mark.parametrize(
    "requests,with_norm,with_rope,size", [(1, False, False, 64), (2, True, True, 128), (8, False, True, 64)]
)
def test_contiguous(bench, requests, with_norm, with_rope, size):
    groups, per_group, positions = 2, 2, 300
    steps = np.array([0, 299, 17, 1, 64, 255, 256, 100][:requests], np.int32)
    if requests == 1:
        steps[0] = 130
    b = bench(meta_tensors={"step": steps}, max_seq_length=positions)
    tensors, xv, judge = operands(b, requests, groups, per_group, size, positions, with_norm, with_rope)
    caches = [b.normal(requests, positions, groups, size) for _ in range(2)]
    before = [cache.copy() for cache in caches]
    k, v = (b.attach(name, cache) for name, cache in zip(("k_cache", "v_cache"), caches))
    y = b.output("y", requests, groups * per_group * size)
    b.kernel.attention_layer(**tensors, k_cache=k, v_cache=v, output=y, grid_dim=(requests, groups, 1))
    b.run()
    for r, step in enumerate(steps):
        expected = judge.request(xv[r : r + 1], before[0][r], before[1][r], int(step))
        assert_right(b.value("y")[r : r + 1], expected, slack=512)
    for name, cache in zip(("k_cache", "v_cache"), before):
        assert_right(b.value(name), cache, slack=64)


def page_tables(b, lengths, page_size, num_pages):
    """Pages in no order at all: (indptr, indices, last page lengths), and the place of each position."""
    free = list(b.random.permutation(num_pages))
    indptr, indices, last = [0], [], []
    for length in lengths:
        pages = -(-length // page_size)
        indices += [int(free.pop()) for _ in range(pages)]
        indptr.append(len(indices))
        last.append(length - (pages - 1) * page_size if pages else 0)
    indices += [0] * (num_pages - len(indices))
    return [np.array(values, np.int32) for values in (indptr, indices, last)]


def paged_case(bench, page_size, new_rows, lengths, rows, max_seq_length, num_pages, **kind):
    """A bench with meta tensors and caches, and the expected output of every new row."""
    groups, per_group, size = kind.pop("heads", (2, 2, 64))
    maker = np.random.default_rng(5)

    class Random:
        random = maker

    first = np.cumsum([0, *new_rows]).astype(np.int32)
    indptr, indices, last = page_tables(Random, lengths, page_size, num_pages)
    b = bench(
        meta_tensors=dict(zip(META, (first, indptr, indices, last))),
        max_seq_length=max_seq_length,
        max_num_batched_requests=len(lengths),
        max_num_batched_tokens=rows,
        max_num_pages=num_pages,
        page_size=page_size,
    )
    tensors, xv, judge = operands(b, rows, groups, per_group, size, max_seq_length, **kind)
    caches = [b.normal(num_pages, page_size, groups, size) for _ in range(2)]
    kept = [cache.copy() for cache in caches]
    tensors["k_cache"], tensors["v_cache"] = b.attach("k_cache", caches[0]), b.attach("v_cache", caches[1])
    expected = np.zeros((int(first[-1]), groups * per_group * size))
    for r, length in enumerate(lengths):
        if new_rows[r] == 0:
            continue
        pages = indices[indptr[r] : indptr[r + 1]]
        flat = [cache[pages].reshape(-1, groups, size) for cache in kept]
        mine = slice(first[r], first[r + 1])
        expected[mine] = judge.request(xv[mine], flat[0], flat[1], length - new_rows[r])
        for cache, rows_of in zip(kept, flat):
            cache[pages] = rows_of.reshape(len(pages), page_size, groups, size)
    return b, tensors, expected, kept, (groups, per_group, size)


CASES = [
    # page size, new rows of each request, lengths of each with them, room for rows, longest, pages, head_dim
    pytest.param(16, [1], [1], 1, 512, 32, 128, id="one token"),
    pytest.param(16, [1], [512], 1, 512, 32, 64, id="one at the end"),
    pytest.param(64, [1, 1, 1], [3, 64, 65], 3, 512, 24, 128, id="three decoding"),
    pytest.param(128, [5, 1, 0, 2], [5, 200, 0, 130], 16, 512, 16, 64, id="prompts and texts, rows to spare"),
    pytest.param(4096, [1, 7], [300, 7], 8, 512, 2, 128, id="a page a request"),
]


@pytest.mark.parametrize("page_size,new_rows,lengths,rows,longest,pages,size", CASES)
def test_paged(bench, page_size, new_rows, lengths, rows, longest, pages, size):
    b, tensors, expected, kept, heads = paged_case(
        bench, page_size, new_rows, lengths, rows, longest, pages, with_norm=True, with_rope=True, heads=(2, 2, size)
    )
    y = b.output("y", rows, heads[0] * heads[1] * size)
    b.kernel.paged_attention_layer(**tensors, output=y, grid_dim=(len(lengths), heads[0], 1))
    b.run()
    there = len(expected)
    assert_right(b.value("y")[:there], expected, slack=512)
    assert np.all(b.value("y")[there:].astype(np.float32) == 77)  # rows that are not there are left alone
    for name, cache in zip(("k_cache", "v_cache"), kept):
        assert_right(b.value(name), cache)


def test_paged_reads_the_tables_anew(bench):
    b, tensors, expected, kept, heads = paged_case(
        bench, 16, [1, 1], [20, 33], 4, 64, 8, with_norm=False, with_rope=False
    )
    y = b.output("y", 4, 256)
    b.kernel.paged_attention_layer(**tensors, output=y)
    b.run()
    assert_right(b.value("y")[:2], expected, slack=512)
    if b.target == "cpu":
        b.meta["qo_indptr_buffer"][:] = [0, 0, 0]
        b.value("y")[:] = 5
        b.kernel.run_test_mode()
        assert np.all(b.value("y").astype(np.float32) == 5)


@pytest.mark.parametrize("chunks", [1, 4])
def test_paged_in_chunks(bench, chunks):
    b, tensors, expected, _, heads = paged_case(
        bench, 64, [1, 3, 0], [1, 200, 0], 6, 256, 16, with_norm=True, with_rope=True
    )
    groups, per_group, size = heads
    lse = b.output("lse", 6, chunks * per_group, groups, dtype=np.float32)
    part = b.output("part", 6, chunks * per_group * size, groups, dtype=np.float32)
    y = b.output("y", 6, groups * per_group * size)
    heads_in_all = groups * per_group
    b.kernel.paged_attention_split_kv_layer(
        **tensors, lse=lse, output=part, attention_params=(heads_in_all, chunks), grid_dim=(3, groups, chunks)
    )
    b.kernel.paged_attention_split_kv_merge_layer(
        lse=lse, output_tmp=part, output=y, attention_params=(heads_in_all, size), grid_dim=(3, groups, 1)
    )
    b.run()
    assert_right(b.value("y")[:4], expected, slack=512)
    assert not b.value("y")[4:].astype(np.float32).any()


def test_layers_share_what_the_tables_say(bench):
    b, tensors, expected, kept, heads = paged_case(bench, 16, [2], [20], 2, 64, 8, with_norm=True, with_rope=False)
    y, z = b.output("y", 2, 256), b.output("z", 2, 256)
    b.kernel.paged_attention_layer(**tensors, output=y)
    k2, v2 = b.attach("k2", kept[0].copy()), b.attach("v2", kept[1].copy())
    b.kernel.paged_attention_layer(**dict(tensors, k_cache=k2, v_cache=v2), output=z)
    b.run()
    assert sum(" paged_rows(" in line for line in str(b.kernel.graph).splitlines()) == 1
    assert_right(b.value("y"), expected, slack=512)
    assert np.array_equal(b.value("y"), b.value("z"))
