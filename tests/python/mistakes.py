"""Mistakes: each a function of a fresh bench that makes one. test_errors.py has the message that each must get."""

import numpy as np
from conftest import BF16, Bench

import megalith
import megalith.mirage
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

MISTAKES = {}


def mistake(function):
    MISTAKES[function.__name__] = function
    return function


def kernel(**params):
    return PersistentKernel(**dict(PersistentKernel.get_default_init_parameters(), test_mode=True, **params))


def zeros(*shape, dtype=BF16):
    return np.zeros(shape, dtype)


# ---- making a kernel ----------------------------------------------------------------------------------------------


@mistake
def several_gpus(b):
    PersistentKernel(world_size=2)


@mistake
def a_rank_of_several(b):
    PersistentKernel(mpi_rank=1)


@mistake
def speculative_decoding(b):
    PersistentKernel(spec_decode_config="promptlookup")


@mistake
def an_unknown_mode(b):
    PersistentKernel(mode="ofline")


@mistake
def no_workers(b):
    PersistentKernel(num_workers=0)


@mistake
def a_fractional_page_size(b):
    PersistentKernel(page_size=1.5)


@mistake
def an_unknown_target(b):
    PersistentKernel(target="rocm")


@mistake
def an_unknown_meta_tensor(b):
    PersistentKernel(meta_tensors={"steps": zeros(1, dtype=np.int32)})


@mistake
def meta_tensors_as_a_list(b):
    PersistentKernel(meta_tensors=[zeros(1, dtype=np.int32)])


# ---- attaching tensors --------------------------------------------------------------------------------------------


@mistake
def a_tensor_without_a_name(b):
    b.kernel.attach_input(zeros(2, 2))


@mistake
def a_name_twice(b):
    b.attach("x", zeros(2, 2))
    b.attach("x", zeros(2, 2))


@mistake
def a_list_for_a_tensor(b):
    b.attach("x", [[1, 2], [3, 4]])


@mistake
def a_transposed_tensor(b):
    b.attach("x", zeros(4, 8).T)


@mistake
def every_second_column(b):
    b.attach("x", zeros(4, 8)[:, ::2])


@mistake
def a_tensor_of_doubles(b):
    b.attach("x", zeros(2, 2, dtype=np.float64))


@mistake
def a_tensor_of_booleans(b):
    b.attach("x", zeros(2, 2, dtype=bool))


@mistake
def a_tensor_of_the_other_byte_order(b):
    b.kernel.attach_input(np.ones((4, 8), ">f4"), name="x")


@mistake
def an_empty_tensor(b):
    b.attach("x", zeros(0, 8))


@mistake
def a_host_tensor_for_cuda(b):
    kernel(target="cuda").attach_input(zeros(2, 2), name="x")


@mistake
def a_new_tensor_of_no_rows(b):
    b.kernel.new_tensor(dims=(0, 4), name="x")


@mistake
def a_new_tensor_whose_rows_overlap(b):
    b.kernel.new_tensor(dims=(2, 4), strides=(3, 1), name="x")


@mistake
def a_new_tensor_of_several_gpus(b):
    b.kernel.new_tensor(dims=(2, 4), name="x", io_category="nvshmem_tensor")


@mistake
def a_new_tensor_of_an_unknown_type(b):
    b.kernel.new_tensor(dims=(2, 4), name="x", dtype="fp8")


@mistake
def stacked_along_columns(b):
    b.kernel.shuffle_tensors([b.attach("a", zeros(4, 8))], 1, 1, name="ab")


@mistake
def stacked_of_different_widths(b):
    b.kernel.fuse_tensors([b.attach("a", zeros(4, 8)), b.attach("b", zeros(4, 6))], 0, 1, name="ab")


@mistake
def stacked_in_groups_that_do_not_divide(b):
    b.kernel.shuffle_tensors([b.attach("a", zeros(4, 8)), b.attach("b", zeros(6, 8))], 0, 4, name="ab")


@mistake
def stacked_of_a_new_tensor(b):
    b.kernel.fuse_tensors([b.kernel.new_tensor(dims=(4, 8), name="a")], 0, 1, name="ab")


# ---- layers ---------------------------------------------------------------------------------------------------------


def linear(b, rows=4, columns=64, outputs=128):
    return (
        b.attach("x", zeros(rows, columns)),
        b.attach("w", zeros(outputs, columns)),
        b.attach("y", zeros(rows, outputs)),
    )


@mistake
def a_numpy_array_for_a_tensor(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=zeros(4, 64), weight=w, output=y)


@mistake
def a_tensor_of_another_kernel(b):
    x, w, y = linear(b)
    other = kernel()
    b.kernel.linear_layer(input=other.attach_input(zeros(4, 64), name="z"), weight=w, output=y)


@mistake
def inner_dimensions_that_differ(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=b.attach("z", zeros(4, 65)), weight=w, output=y)


@mistake
def input_and_weight_exchanged(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=w, weight=x, output=y)


@mistake
def an_output_of_another_shape(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=b.attach("z", zeros(4, 64)))


@mistake
def a_row_of_one_dimension(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=b.attach("z", zeros(64)), weight=w, output=y)


@mistake
def whole_numbers_for_activations(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=b.attach("z", zeros(4, 64, dtype=np.int32)), weight=w, output=y)


@mistake
def a_grid_that_does_not_divide(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y, grid_dim=(24, 1, 1))


@mistake
def a_grid_of_two_numbers(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y, grid_dim=(8, 1))


@mistake
def a_grid_of_zero_tasks(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y, grid_dim=(8, 0, 1))


@mistake
def tiles_within_a_panel_of_weights(b):
    g = megalith.Graph("g")
    g.add("linear", "y", [g.state("x", "f32", [4, 64]), g.constant("w", "bf16", [128, 64])], tile={"n": 8})
    megalith.compile(g)


@mistake
def pieces_along_nothing(b):
    g = megalith.Graph("g")
    g.add("linear", "y", [g.state("x", "f32", [4, 64]), g.constant("w", "bf16", [128, 64])], pieces={"k": 8})


@mistake
def a_tile_and_pieces(b):
    g = megalith.Graph("g")
    x, w = g.state("x", "f32", [4, 64]), g.constant("w", "bf16", [128, 64])
    g.add("linear", "y", [x, w], tile={"n": 16}, pieces={"n": 8})


@mistake
def a_block_of_no_threads(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y, grid_dim=(8, 1, 1), block_dim=(0, 1, 1))


@mistake
def an_output_read_before_it_is_written(b):
    x, w, y = linear(b)
    mid = b.kernel.new_tensor(dims=(4, 64), name="mid")
    b.kernel.linear_layer(input=mid, weight=w, output=y)


@mistake
def two_layers_that_write_one_tensor(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y)
    b.kernel.linear_layer(input=x, weight=w, output=y)


@mistake
def a_weight_that_is_written(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y)
    b.kernel.tensor_init_layer(input=w)


@mistake
def a_written_tensor_for_a_weight(b):
    x, w, y = linear(b, outputs=64)
    b.kernel.tensor_init_layer(input=w)
    b.kernel.linear_layer(input=x, weight=w, output=y)


@mistake
def a_new_tensor_for_a_weight(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=b.kernel.new_tensor(dims=(128, 64), name="v"), output=y)


@mistake
def a_stacked_tensor_for_an_output(b):
    x, w, y = linear(b)
    stacked = b.kernel.fuse_tensors([b.attach("a", zeros(4, 128))], 0, 1, name="ab")
    b.kernel.linear_layer(input=x, weight=w, output=stacked)


@mistake
def a_read_only_output(b):
    x, w, _ = linear(b)
    y = zeros(4, 128)
    y.flags.writeable = False
    b.kernel.linear_layer(input=x, weight=w, output=b.attach("z", y))


@mistake
def split_k_without_something_to_add_to(b):
    x, w, _ = linear(b)
    b.kernel.splitk_linear_layer(
        input=x, weight=w, output=b.kernel.new_tensor(dims=(4, 128), name="z"), grid_dim=(8, 4, 1)
    )


@mistake
def split_k_that_does_not_divide(b):
    x, w, y = linear(b)
    b.kernel.tensor_init_layer(input=y)
    b.kernel.splitk_linear_layer(input=x, weight=w, output=y, grid_dim=(8, 5, 1))


@mistake
def gates_without_ups(b):
    x, w, y = linear(b)
    b.kernel.silu_mul_layer(input=y, output=b.attach("z", zeros(4, 128)))


@mistake
def gates_of_three_weights(b):
    x, w, y = linear(b)
    three = b.kernel.fuse_tensors([b.attach(n, zeros(64, 64)) for n in "abc"], 0, 1, name="abc")
    mid = b.attach("mid", zeros(4, 192))
    b.kernel.linear_layer(input=x, weight=three, output=mid)
    b.kernel.silu_mul_layer(input=mid, output=b.attach("z", zeros(4, 96)))


@mistake
def a_norm_of_another_width(b):
    x, w, y = linear(b)
    b.kernel.rmsnorm_layer(input=x, weight=b.attach("n", zeros(63)), output=b.attach("z", zeros(4, 64)))


@mistake
def norm_and_weight_exchanged(b):
    x, w, y = linear(b)
    b.kernel.rmsnorm_linear_layer(input=x, weight_norm=w, weight_linear=b.attach("n", zeros(64)), output=y)


@mistake
def a_residual_of_another_shape(b):
    x, w, y = linear(b)
    b.kernel.linear_with_residual_layer(input=x, weight=w, residual=x, output=y)


@mistake
def addends_of_different_shapes(b):
    x, w, y = linear(b)
    b.kernel.elementwise_add_layer(input_a=x, input_b=y, output=b.attach("z", zeros(4, 64)))


@mistake
def an_unknown_layer(b):
    b.kernel.linear_fp4_layer()


@mistake
def a_layer_of_mpk_that_is_not_built(b):
    b.kernel.linear_fp8_layer(output=None)


@mistake
def one_tensor_in_two_shapes(b):
    x = b.attach("x", zeros(2, 3, 16))
    b.kernel.identity_layer(input=x, output=b.attach("y", zeros(2, 3, 16)))
    b.kernel.tensor_init_layer(input=b.kernel.attach_input(b.arrays["x"], name="z"))


# ---- tokens ---------------------------------------------------------------------------------------------------------


@mistake
def floats_for_tokens(b):
    b.kernel.embed_layer(
        input=b.attach("i", zeros(4, 1)), weight=b.attach("w", zeros(9, 64)), output=b.attach("y", zeros(4, 64))
    )


@mistake
def fewer_tokens_than_rows(b):
    ids = b.attach("i", zeros(3, 1, dtype=np.int32))
    b.kernel.embed_layer(
        input=ids, weight=b.attach("w", zeros(9, 64)), output=b.attach("y", zeros(4, 64)), input_source=1
    )


@mistake
def an_unknown_input_source(b):
    ids = b.attach("i", zeros(4, 1, dtype=np.int32))
    b.kernel.embed_layer(
        input=ids, weight=b.attach("w", zeros(9, 64)), output=b.attach("y", zeros(4, 64)), input_source=2
    )


@mistake
def tokens_without_the_meta_tensor(b):
    ids = b.attach("i", zeros(4, 1, dtype=np.int32))
    b.kernel.embed_layer(input=ids, weight=b.attach("w", zeros(9, 64)), output=b.attach("y", zeros(4, 64)))


@mistake
def a_token_that_the_vocabulary_does_not_have(b):
    ids = b.attach("i", np.array([[1], [9]], np.int32))
    b.kernel.embed_layer(
        input=ids, weight=b.attach("w", zeros(9, 64)), output=b.attach("y", zeros(2, 64)), input_source=1
    )
    b.run()


@mistake
def a_table_of_tokens_for_one_a_row(b):
    b.kernel.argmax_layer(input=b.attach("x", zeros(4, 64)), output=b.attach("y", zeros(4, 2, dtype=np.int64)))


@mistake
def one_output_of_two(b):
    b.kernel.argmax_partial_layer(input=b.attach("x", zeros(4, 64)), output=b.attach("y", zeros(4, 2)))


@mistake
def chunks_that_the_grid_does_not_have(b):
    outputs = b.attach("v", zeros(4, 4)), b.attach("i", zeros(4, 4, dtype=np.int32))
    b.kernel.argmax_partial_layer(input=b.attach("x", zeros(4, 64)), output=outputs, grid_dim=(8, 1, 1))


# ---- attention ------------------------------------------------------------------------------------------------------

PAGED = dict(max_num_batched_requests=2, max_num_pages=4, page_size=16, max_seq_length=32)


def paged_meta(**changes):
    meta = {
        "qo_indptr_buffer": np.array([0, 1, 2], np.int32),
        "paged_kv_indptr_buffer": np.array([0, 1, 2], np.int32),
        "paged_kv_indices_buffer": np.array([0, 1, 2, 3], np.int32),
        "paged_kv_last_page_len_buffer": np.array([1, 1], np.int32),
    }
    meta.update(changes)
    return {name: table for name, table in meta.items() if table is not None}


def paged(meta=None, run=False, params=PAGED, **changes):
    """A paged attention of 2 query heads on one key head of 64, with one operand or table changed."""
    b = Bench(meta_tensors=paged_meta() if meta is None else meta, **params)
    shapes = dict(input=(2, 256), k_cache=(4, 16, 1, 64), v_cache=(4, 16, 1, 64), output=(2, 128))
    shapes.update({role: shape for role, shape in changes.items() if role != "grid"})
    tensors = dict.fromkeys(("q_norm", "k_norm", "cos_pos_embed", "sin_pos_embed"))
    tensors.update({role: b.attach(role, zeros(*shape)) for role, shape in shapes.items()})
    b.kernel.paged_attention_layer(**tensors, grid_dim=changes.get("grid"))
    if run:
        b.run()


@mistake
def pages_without_their_meta_tensor(b):
    paged(paged_meta(paged_kv_indices_buffer=None))


@mistake
def a_meta_tensor_of_another_size(b):
    paged(paged_meta(qo_indptr_buffer=np.array([0, 1], np.int32)))


@mistake
def a_meta_tensor_of_longs(b):
    paged(paged_meta(qo_indptr_buffer=np.array([0, 1, 2], np.int64)))


@mistake
def a_meta_tensor_of_floats(b):
    paged(paged_meta(qo_indptr_buffer=np.array([0, 1, 2], np.float32)))


@mistake
def heads_that_cannot_be_shared(b):
    paged(k_cache=(4, 16, 3, 64), v_cache=(4, 16, 3, 64))


@mistake
def an_input_of_other_heads(b):
    paged(input=(2, 320))


@mistake
def caches_of_different_shapes(b):
    paged(v_cache=(4, 16, 1, 32))


@mistake
def one_cache_for_keys_and_values(b):
    b = Bench(meta_tensors=paged_meta(), **PAGED)
    x, y, cache = b.attach("x", zeros(2, 256)), b.attach("y", zeros(2, 128)), b.attach("cache", zeros(4, 16, 1, 64))
    b.kernel.paged_attention_layer(x, cache, cache, None, None, None, None, y)


@mistake
def one_tensor_for_parts_and_their_weights(b):
    b = Bench(meta_tensors=paged_meta(), **PAGED)
    x, k, v = b.attach("x", zeros(2, 3)), b.attach("k", zeros(4, 16, 1, 1)), b.attach("v", zeros(4, 16, 1, 1))
    part = b.attach("part", zeros(2, 2, 1))
    b.kernel.paged_attention_split_kv_layer(x, k, v, None, None, None, None, part, part, (1, 2))


@mistake
def a_cache_of_other_pages(b):
    paged(k_cache=(5, 16, 1, 64), v_cache=(5, 16, 1, 64))


@mistake
def one_norm_of_two(b):
    paged(q_norm=(64,))


@mistake
def a_table_of_another_width(b):
    paged(cos_pos_embed=(32, 32), sin_pos_embed=(32, 32))


@mistake
def a_grid_for_more_heads_than_there_are(b):
    paged(grid=(2, 8, 1))


@mistake
def a_page_that_does_not_exist(b):
    paged(paged_meta(paged_kv_indices_buffer=np.array([0, 4, 2, 3], np.int32)), run=True)


@mistake
def more_rows_than_there_is_room_for(b):
    paged(paged_meta(qo_indptr_buffer=np.array([0, 1, 3], np.int32)), run=True)


@mistake
def rows_that_go_backwards(b):
    paged(paged_meta(qo_indptr_buffer=np.array([0, 2, 1], np.int32)), run=True)


@mistake
def a_last_page_that_is_too_long(b):
    paged(paged_meta(paged_kv_last_page_len_buffer=np.array([17, 1], np.int32)), run=True)


@mistake
def new_rows_without_pages(b):
    paged(paged_meta(paged_kv_indptr_buffer=np.array([0, 0, 1], np.int32)), run=True)


@mistake
def a_text_longer_than_the_longest(b):
    longer = paged_meta(
        paged_kv_indptr_buffer=np.array([0, 3, 4], np.int32), paged_kv_last_page_len_buffer=np.array([16, 1], np.int32)
    )
    paged(longer, run=True)


@mistake
def attention_of_weights_stacked_otherwise(b):
    b = Bench(meta_tensors=paged_meta(), **PAGED)
    parts = [b.attach(n, zeros(rows, 64)) for n, rows in (("q", 128), ("k", 64), ("v", 64))]
    qkv = b.kernel.fuse_tensors(parts, 0, 2, name="qkv")
    x, mid = b.attach("x", zeros(2, 64)), b.attach("mid", zeros(2, 256))
    b.kernel.linear_layer(input=x, weight=qkv, output=mid)
    k, v = b.attach("k_cache", zeros(4, 16, 1, 64)), b.attach("v_cache", zeros(4, 16, 1, 64))
    b.kernel.paged_attention_layer(mid, k, v, None, None, None, None, b.attach("y", zeros(2, 128)))


@mistake
def a_step_behind_the_cache(b):
    b = Bench(meta_tensors={"step": np.array([8], np.int32)})
    k, v = b.attach("k_cache", zeros(1, 8, 1, 64)), b.attach("v_cache", zeros(1, 8, 1, 64))
    b.kernel.attention_layer(b.attach("x", zeros(1, 192)), k, v, None, None, None, None, b.attach("y", zeros(1, 64)))
    b.run()


@mistake
def a_cache_for_other_requests(b):
    b = Bench(meta_tensors={"step": np.array([0], np.int32)})
    k, v = b.attach("k_cache", zeros(2, 8, 1, 64)), b.attach("v_cache", zeros(2, 8, 1, 64))
    b.kernel.attention_layer(b.attach("x", zeros(1, 192)), k, v, None, None, None, None, b.attach("y", zeros(1, 64)))


# ---- compiling, running, ending
# ---------------------------------------------------------------------------------------


@mistake
def a_kernel_without_layers(b):
    b.kernel.compile()


@mistake
def run_before_compile(b):
    b.kernel.run_test_mode()


@mistake
def called_before_compile(b):
    b.kernel()


@mistake
def run_after_finalize(b):
    b.kernel.finalize()
    b.kernel.run_test_mode()


@mistake
def attached_after_finalize(b):
    b.kernel.finalize()
    b.kernel.attach_input(zeros(2, 2), name="x")


@mistake
def a_layer_after_compile(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y)
    b.kernel.compile()
    b.kernel.tensor_init_layer(input=x)


@mistake
def compiled_twice(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y)
    b.kernel.compile()
    b.kernel.compile()


@mistake
def an_unknown_compile_option(b):
    b.kernel.compile(output="/tmp")


@mistake
def test_mode_without_test_mode(b):
    other = PersistentKernel()
    x = other.attach_input(zeros(2, 16), name="x")
    other.tensor_init_layer(input=x)
    other.compile()
    other.run_test_mode()


@mistake
def tensors_that_share_memory(b):
    whole = zeros(6, 64)
    x = b.kernel.attach_input(whole[:4], name="x")
    y = b.kernel.attach_input(whole[2:], name="y")
    b.kernel.identity_layer(input=x, output=y)
    b.kernel.compile()


@mistake
def reading_what_was_attached(b):
    x, w, y = linear(b)
    b.kernel.linear_layer(input=x, weight=w, output=y)
    b.kernel.compile()
    b.kernel.read(y)


def loop_meta(**changes):
    meta = dict(
        step=np.zeros(2, np.int32),
        tokens=zeros(2, 32, dtype=np.int64),
        input_tokens=zeros(4, 1, dtype=np.int64),
        output_tokens=zeros(4, 1, dtype=np.int64),
        prompt_lengths=np.array([3, 5], np.int32),
        qo_indptr_buffer=zeros(3, dtype=np.int32),
        paged_kv_indptr_buffer=zeros(3, dtype=np.int32),
        paged_kv_indices_buffer=zeros(4, dtype=np.int32),
        paged_kv_last_page_len_buffer=zeros(2, dtype=np.int32),
    )
    meta.update(changes)
    return meta


def loop(run=True, **changes):
    """A token loop that finds the same token after every token."""
    params = dict(PAGED, max_num_batched_tokens=4)
    params.update({name: changes.pop(name) for name in list(changes) if name in params})
    meta = loop_meta(**changes)
    kernel = PersistentKernel(meta_tensors=meta, **params)
    ids = kernel.attach_input(meta["input_tokens"], name="ids")
    x = kernel.new_tensor(dims=(4, 64), name="x")
    kernel.embed_layer(input=ids, weight=kernel.attach_input(zeros(9, 64), name="w"), output=x, input_source=1)
    if run:
        kernel.argmax_layer(input=x, output=kernel.attach_input(meta["output_tokens"], name="best"))
    kernel.compile()
    kernel()


@mistake
def a_loop_without_a_table(b):
    meta = loop_meta()
    del meta["prompt_lengths"]
    other = PersistentKernel(meta_tensors=meta, **PAGED)
    other.tensor_init_layer(input=other.attach_input(zeros(2, 16), name="x"))
    other.compile()
    other()


@mistake
def a_loop_that_makes_no_tokens(b):
    loop(run=False)


@mistake
def a_loop_with_too_few_pages(b):
    loop(max_num_pages=3)


@mistake
def a_loop_of_other_texts(b):
    loop(tokens=zeros(3, 32, dtype=np.int64))


@mistake
def a_loop_with_room_for_other_rows(b):
    loop(input_tokens=zeros(3, 1, dtype=np.int64))


@mistake
def a_prompt_that_fills_its_text(b):
    loop(prompt_lengths=np.array([3, 32], np.int32))


@mistake
def a_step_behind_its_prompt(b):
    loop(step=np.array([0, 5], np.int32))


@mistake
def a_prompt_with_an_unknown_token(b):
    tokens = zeros(2, 32, dtype=np.int64)
    tokens[1, 2] = 9
    loop(tokens=tokens)


# ---- graphs and models
# --------------------------------------------------------------------------------------------------


@mistake
def a_compile_target_that_does_not_exist(b):
    megalith.compile(megalith.Graph("g"), target="tpu")


@mistake
def a_folder_that_does_not_exist(b):
    megalith.load("/nowhere/at/all")


@mistake
def an_unknown_quantization(b):
    megalith.load("models/storyteller", quantization="fp4")


@mistake
def an_unknown_load_format(b):
    megalith.load("models/storyteller", load_format="pickle")


@mistake
def no_requests_at_a_time(b):
    megalith.load("models/storyteller", max_batch=0)


@mistake
def a_folder_that_is_no_path(b):
    megalith.load(None)


@mistake
def workers_that_are_no_number(b):
    megalith.load("models/storyteller", num_workers="two")


@mistake
def more_workers_than_numbers(b):
    megalith.load("models/storyteller", num_workers=2**40)
