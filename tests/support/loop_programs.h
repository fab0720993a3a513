// loopy's programs (L17 and L19 of its tests, of smaller sizes) under schedules like theirs, and reductions by a tree (L18).
// Whoever runs them holds the results against the interpreter's: all values are small numbers, so the bits are the same.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace megalith::testing {

struct LoopProgram {
  const char* name;
  const char* kernel;
  const char* steps;
  std::vector<std::map<std::string, int64_t>> sizes;
};

inline const LoopProgram kLoopPrograms[] = {
    {"axpy",
     "attribute a = 2.5\ninput x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
     "z[i] = a * x[i] + y[i]\n",
     "split i 32 -> o p\nsplit o 4 -> b:g.0 u:unr\ntag p l.0\n",
     {{{"n", 300}}, {{"n", 256}}}},
    {"axpy_with_slabs",
     "attribute a = 2.5\ninput x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
     "z[i] = a * x[i] + y[i]\n",
     "split i 4 -> o p:unr\npeel o -> last where o >= floor(n/4)\n",
     {{{"n", 23}}, {{"n", 24}}, {{"n", 3}}}},
    {"transpose",
     "input a: f32[n, n]\noutput b: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\nb[i, j] = a[j, "
     "i]\n",
     "tile i j 16 16 -> i_o:g.1 j_o:g.0 i_i:l.1 j_i:l.0\nprefetch a[j_i, i_i] -> t p:l.1 q:l.0\npad t 1 1\n",
     {{{"n", 50}}, {{"n", 32}}}},
    // A grid has a block 0 where no iteration is left, and blocks for values that a domain leaves out.
    {"blocks_without_values",
     "input x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n{ [j] : 5 <= j < n }\ny[i] = x[i]\ny[j] "
     "= "
     "y[j] + 1\n",
     "tag i g.0 j g.0\n",
     {{{"n", 9}}, {{"n", 6}}, {{"n", 5}}, {{"n", 3}}}},
    {"a_block_without_values",
     "input x: f32[n]\ninout y: f32[n]\nassume n >= 1\n{ [j] : 0 <= j < n - 5 }\ny[j] = y[j] + x[j]\n",
     "tag j g.1\n",
     {{{"n", 9}}, {{"n", 6}}, {{"n", 5}}, {{"n", 3}}}},
    {"every_second_block",
     "inout y: f32[n]\nassume n >= 1\n{ [j] : 0 <= j < n and j mod 2 = 1 }\ny[j] = y[j] + 1\n",
     "tag j g.0\n",
     {{{"n", 9}}, {{"n", 2}}, {{"n", 1}}}},
    {"a_domain_that_is_empty",
     "input x: f32[4]\ninout y: f32[4, 1]\n{ [i, j] : 0 <= i < 4 and 0 <= j < 1 and j mod 2 = 1 }\ny[i, j] = y[i, j] + "
     "x[i]\n",
     "tag i g.1 j l.0\n",
     {{}}},
    {"rank_one",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "tile i j 8 8 -> i_o:g.0 j_o:g.1 i_i:l.0 j_i:l.1\nprefetch a[i_i] -> a_s p:l.0\nprefetch b[j_i] -> b_s q:l.0\n",
     {{{"n", 21}}}},
    {"matmul_with_register_tiles",
     "input a: f32[n, n]\ninput b: f32[n, n]\noutput c: f32[n, n]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "tile i j 8 8 -> i_o:g.0 j_o:g.1 i_i j_i\nsplit i_i 2 -> i_t:l.1 i_r:ilp\nsplit j_i 2 -> j_t:l.0 j_r:ilp\n"
     "split k 4 -> k_o k_i\norder i_o j_o k_o i_t j_t k_i i_r j_r\naccumulate k_o k_i -> acc\n"
     "prefetch a[i_t, i_r, k_i] -> a_s p:l.1 q:l.0\n",
     {{{"n", 16}}, {{"n", 13}}}},
    {"matmul_of_packs",
     "input a: f32[n, n]\ninput b: f32[n, n]\noutput c: f32[n, n]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "assume n mod 16 = 0\ntile i j 16 16 -> i_o:g.0 j_o:g.1 i_b j_b\nsplit i_b 4 -> i_t:l.1 i_v:unr, j_b 8 -> j_h:unr "
     "j_c\nsplit j_c 4 -> j_t:l.0 j_v:vec\nsplit k 8 -> k_o k_i\norder i_o j_o k_o i_t j_t k_i i_v j_h j_v\n"
     "accumulate k_o k_i -> acc\nprefetch a[i_t, i_v, k_i] -> a_s a_i a_k\npermute_axes a_s 1 0\npad a_s 1 4\n"
     "split a_k 4 -> a_q:l.0 a_v:vec\nprefetch b[k_i, j_h, j_t, j_v] -> b_s b_k b_j\nsplit b_j 4 -> b_l:l.1 b_v:vec\n"
     "prefetch a_s[i_v] -> a_r u:vec\nprefetch b_s[j_h, j_v] -> b_r h:unr v:vec\n",
     {{{"n", 16}}, {{"n", 48}}}},
    {"rows_kept_in_registers",
     "input x: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\n"
     "top[i] = max(k, x[i, k])\ny[i, j] = x[i, j] - top[i]\n",
     "assume m <= 64\ntag i g.0\nsplit k 32 -> k_r:unr k_c, j 32 -> j_r:unr j_c\n"
     "split k_c 4 -> k_l k_v:unr, j_c 4 -> j_l:l.0 j_v:vec\nprefetch x[k_r, k_l, k_v, j_r, j_l, j_v] -> x_r c\n"
     "split c 32 -> c_r:unr c_c\nsplit c_c 4 -> c_l:l.0 c_v:vec\nsplit_axis x_r 0 32\nsplit_axis x_r 1 4\n"
     "tree k_l -> part p:l.0\n",
     {{{"n", 3}, {"m", 37}}, {{"n", 2}, {"m", 64}}, {{"n", 1}, {"m", 3}}}},
    {"rows_of_packs_kept_in_registers",
     "input x: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\n"
     "top[i] = max(k, x[i, k])\ny[i, j] = x[i, j] - top[i]\n",
     "assume m <= 64 and m mod 4 = 0\ntag i g.0\nsplit k 32 -> k_r:unr k_c, j 32 -> j_r:unr j_c\n"
     "split k_c 4 -> k_l k_v:unr, j_c 4 -> j_l:l.0 j_v:vec\nprefetch x[k_r, k_l, k_v, j_r, j_l, j_v] -> x_r c\n"
     "split c 32 -> c_r:unr c_c\nsplit c_c 4 -> c_l:l.0 c_v:vec\nsplit_axis x_r 0 32\nsplit_axis x_r 1 4\n"
     "tree k_l -> part p:l.0\n",
     {{{"n", 3}, {"m", 36}}, {{"n", 2}, {"m", 64}}, {{"n", 1}, {"m", 4}}}},
    {"vectors_of_a_core",
     "input a: f32[n, l]\ninput b: f32[l, m]\noutput c: f32[n, m]\nassume n >= 1 and m >= 1 and l >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "assume n mod 4 = 0 and m mod 16 = 0 and l <= 64\nsplit i 4 -> i_t i_r:unr, j 16 -> j_t j_c\n"
     "split j_c 8 -> j_h:unr j_v:vec\norder j_t i_t k i_r j_h j_v\naccumulate k -> acc\n"
     "prefetch b[k, j_h, j_v] -> b_s b_k b_j\nsplit b_j 8 -> b_h:unr b_v:vec\n",
     {{{"n", 8}, {"m", 32}, {"l", 5}}, {{"n", 4}, {"m", 16}, {"l", 64}}}},
    {"an_axis_of_tensors",
     "input a: f32[n, m]\noutput c: f32[n, m]\nassume n >= 1 and m >= 1\n{ [j, i] : 0 <= i < n and 0 <= j < m }\n"
     "t[0] = 2 * a[i, j]  {id=one, inames=j:i}\nt[1] = t[0] + 1  {id=two, dep=one, inames=j:i}\n"
     "c[i, j] = t[0] * t[1]  {dep=one:two}\n",
     "split j 8 -> j_o:g.0 j_t:l.0\nseparate_axis t 0\n",
     {{{"n", 4}, {"m", 8}}, {{"n", 3}, {"m", 19}}}},
    {"an_axis_of_vectors",
     "input a: f32[4, n]\noutput c: f32[n]\nassume n >= 1\n{ [i, v] : 0 <= i < n and 0 <= v < 4 }\n"
     "c[i] = sum(v, a[v, i] * a[v, i])\n",
     "split i 8 -> i_o:g.0 i_t:l.0\nprefetch a[v, i_t] -> a_s p q:l.0\nspace a_s shared\naxes a_s vec N0\n"
     "prefetch a_s[v] -> a_r u:vec\n",
     {{{"n", 8}}, {{"n", 21}}}},
    {"sums_over_lanes",
     "input a: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n{ [i, k] : 0 <= i < n and 0 <= k < m }\n"
     "y[i] = sum(k, a[i, k])\n",
     "split i 3 -> i_o:g.0 i_w\norder i_o k i_w\ntree k 32 -> part p:lane\ntag i_w w\nspace part lanes\n",
     {{{"n", 7}, {"m", 45}}, {{"n", 3}, {"m", 5}}}},
    // Numbers in ids are from -6 to 6.
    {"rows_that_data_choose",
     "input ids: i32[n]\ninput table: f32[13, h]\noutput y: f32[n, h]\nassume n >= 1 and h >= 1\n"
     "{ [i, j] : 0 <= i < n and 0 <= j < h }\ny[i, j] = 2 * table[ids[i] + 6, j]\n",
     "assume h mod 4 = 0 and h <= 64\nsplit i 4 -> i_o:g.0 i_i:l.1\nsplit j 4 -> j_o:l.0 j_v:vec\n",
     {{{"n", 9}, {"h", 8}}, {{"n", 1}, {"h", 64}}}},
    {"shared_elements_that_data_choose",
     "input ids: i32[n]\ninput x: f32[13]\noutput y: f32[n]\ntemporary t: f32[13]\nassume n >= 1\n"
     "{ [j] : 0 <= j < 13 }\n{ [i] : 0 <= i < n }\nt[j] = 2 * x[j]\ny[i] = t[ids[i] + 6] + i // (ids[i] + 7)\n",
     "assume n <= 64\ntag i l.0 j l.0\n",
     {{{"n", 40}}, {{"n", 5}}}},
    {"places_that_data_choose",
     "input ids: i32[n]\ninput x: f32[n]\ninout y: f32[13]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
     "y[ids[i] + 6] = y[ids[i] + 6] + x[i]  {if=x[i] > 0}\n",
     "split i 8 -> o p\n",
     {{{"n", 40}}, {{"n", 5}}}},
    {"sums_as_the_tags_say",
     "input a: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n{ [i, k] : 0 <= i < n and 0 <= k < m }\n"
     "y[i] = sum(k, a[i, k] * a[i, k])\n",
     "tag i g.0\nsplit k 96 -> k_o k_t\nsplit k_t 32 -> k_w:w k_l:lane\n",
     {{{"n", 3}, {"m", 245}}, {{"n", 2}, {"m", 96}}, {{"n", 1}, {"m", 5}}}},
    {"maxima_and_sums_over_one_iname",
     "input x: f32[n, m]\noutput y: f32[n, m]\noutput z: i32[n]\nassume n >= 1 and m >= 1\n"
     "{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\ntop[i] = max(k, x[i, k])\ntotal[i] = sum(k, x[i, k] - top[i])\n"
     "y[i, j] = (x[i, j] - top[i]) * total[i]\nz[i] = argmax(k, x[i, k])\n",
     "assume m <= 64\ntag i g.0 k l.0\nsplit j 16 -> j_o j_i:l.0\n",
     {{{"n", 5}, {"m", 37}}, {{"n", 1}, {"m", 64}}, {{"n", 2}, {"m", 1}}}},
    {"maxima_that_all_lanes_have",
     "input x: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\n"
     "top[i] = max(k, x[i, k])\ny[i, j] = x[i, j] - top[i]\n",
     "tag i g.0\nsplit j 32 -> j_o j_i:lane\ntree k 32 -> part p:lane\nspace part lanes\nspace top private\n",
     {{{"n", 5}, {"m", 37}}}},
    {"squares_in_registers",
     "input a: f32[n, m]\ninput v: f32[m]\noutput b: f32[m, n]\nassume n >= 1 and m >= 1\n{ [i, j] : 0 <= i < n and 0 "
     "<= j < m }\n"
     "b[j, i] = 2 * a[i, j] - v[j]\n",
     "tile i j 32 16 -> i_o j_o i_b j_b\nsplit i_b 8 -> i_m i_v:vec, j_b 8 -> j_m j_v:vec\norder j_o i_o j_m i_m j_v "
     "i_v\nstream b\n",
     {{{"n", 40}, {"m", 24}}, {{"n", 39}, {"m", 17}}, {{"n", 2}, {"m", 3}}}},
    {"a_tile_that_is_added_to",
     "input a: f32[n, l]\ninput b: f32[l, m]\ninout c: f32[n, m]\nassume n >= 1 and m >= 1 and l >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }\nc[i, j] = c[i, j] + a[i, k] * b[k, j]  {inames=k}\n",
     "tile i j 8 4 -> i_o:g.0 j_o:g.1 i_i:l.1 j_i:l.0\norder i_o j_o k i_i j_i\nbuffer_array c[i_i, j_i] -> c_s p:l.0 "
     "q:l.1\n",
     {{{"n", 16}, {"m", 8}, {"l", 3}}, {{"n", 11}, {"m", 5}, {"l", 4}}}},
    {"what_is_computed_twice",
     "input a: f32[n]\noutput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i, k] : 0 <= i < n and 0 <= k < n }\n"
     "y[i] = (a[i] * 2 - 3) * (1 + (a[i] * (1 + 1) - 3))\nz[i] = sum(k, a[k] * a[i]) - (a[i] * 2 - 3)\n",
     "fold_constants\ncommon_subexpressions\nrealise_reductions\nsplit i 8 -> o:g.0 p:l.0\n",
     {{{"n", 21}}, {{"n", 8}}}},
    {"packs_and_a_tail",
     "input x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\nz[i] = 3 * x[i] + "
     "y[i]\n",
     "split i 32 -> o:g.0 p\nsplit p 4 -> q:l.0 v:vec\n",
     {{{"n", 64}}, {{"n", 39}}, {{"n", 3}}}},
    {"computed_where_it_is_needed",
     "input a: f32[n + 2]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n + 2 }\n{ [j] : 0 <= j < n }\n"
     "t[i] = a[i] * a[i] + 1\ny[j] = t[j] + t[j + 1] + t[j + 2]\n",
     "split j 8 -> o:g.0 p:l.0\nprecompute t[p] -> s q:l.0\n",
     {{{"n", 8}}, {{"n", 19}}}},
    {"matmul_of_any_size_with_slabs",
     "input a: f32[n, n]\ninput b: f32[n, n]\noutput c: f32[n, n]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "tile i j 8 8 -> i_o:g.0 j_o:g.1 i_i:l.1 j_i:l.0\nsplit k 4 -> k_o k_i\norder i_o j_o k_o i_i j_i k_i\n"
     "accumulate k_o -> acc\npeel k_o -> last where k_o >= floor(n/4)\n",
     {{{"n", 16}}, {{"n", 13}}, {{"n", 3}}}},
    {"funny_shape",
     "input a: f32[n, n + 12]\ninput b: f32[n + 12, n + 24]\noutput c: f32[n, n + 24]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n + 24 and 0 <= k < n + 12 }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "split k 4 -> k_o k_i\ntile i j 8 8 -> i_o:g.0 j_o:g.1 i_i:l.1 j_i:l.0\norder i_o j_o k_o i_i j_i k_i\n"
     "accumulate k_o -> acc\nextract_subst b_acc(p, q) = b[p, q]\nextract_subst a_acc(r, s) = a[r, s]\n"
     "precompute b_acc[k_i, j_i] -> b_s b_k:l.1 b_j:l.0\nprefetch a[i_i, k_i] -> a_s a_i:l.1 a_k:l.0\n",
     {{{"n", 10}}, {{"n", 4}}}},
    {"rank_one_in_one_column",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "split i 16 -> i_o:g.0 i_i:l.0\nsplit j 16 -> j_o:g.1 j_i\n",
     {{{"n", 37}}}},
    {"rank_one_with_a_column_in_shared_memory",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "split i 16 -> i_o:g.0 i_i:l.0\nsplit j 16 -> j_o:g.1 j_i\norder i_o j_o i_i j_i\nprefetch b[j_i] -> b_s q:l.0\n",
     {{{"n", 37}}}},
    {"rank_one_of_tiles_of_tiles",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "tile i j 32 32 -> i_o:g.0 j_o:g.1 i_m j_m\nsplit i_m 8 -> i_r i_i:l.0\nsplit j_m 8 -> j_r j_i:l.1\n",
     {{{"n", 45}}}},
    {"n_bodies",
     "input x: f32[n, 3]\noutput pot: f32[n]\nassume n >= 1\n{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < 3 }\n"
     "pot[i] = sum(j, if(i == j, 0, 1 + sum(k, (x[i, k] - x[j, k]) * (x[i, k] - x[j, k]))))\n",
     "split i 16 -> i_o:g.0 i_i:l.0\nsplit j 16 -> j_o j_i\norder i_o j_o i_i j_i k\naccumulate j_o -> acc\n",
     {{{"n", 33}}}},
    {"rows_below_their_maximum",
     "input x: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\n"
     "top[i] = max(k, x[i, k])\ny[i, j] = x[i, j] - top[i]\n",
     "tag i g.0\nsplit j 16 -> j_o j_i:l.0\ntree k 16 -> part p:l.0\n",
     {{{"n", 5}, {"m", 37}}}},
    {"temporaries_that_share_memory",
     "input a: f32[30]\ninput b: f32[30]\noutput c: f32[30]\noutput d: f32[30]\n{ [i, j, k, l] : 0 <= i, j, k, l < 30 "
     "}\n"
     "t1[i] = 2 * a[i]\nc[j] = t1[29 - j] + 1\nt2[k] = 3 * b[k]\nd[l] = t2[29 - l] + 2\n",
     "tag i l.0 j l.0 k l.0 l l.0\nalias t1 t2 -> pool\n",
     {{}}},
    {"dependent_domains",
     "input x: f32[n, n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n{ [j] : i <= j < n and j mod 2 = 0 }\n"
     "y[i] = sum(j, x[i, j])\n",
     "split i 8 -> o:g.0 p:l.0\n",
     {{{"n", 21}}}},
    {"a_map_that_is_a_split",
     "input x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i, e] : 0 <= 2 * i + e < n and 0 <= e < 2 }\n"
     "y[2 * i + e] = 2 * x[2 * i + e]\n",
     "map [i, e] -> u = 2 * i + e, v = e\norder v u\n",
     {{{"n", 21}}}},
    {"joined",
     "input a: f32[16, 16]\noutput b: f32[16, 16]\n{ [i, j] : 0 <= i < 16 and 0 <= j < 16 }\nb[i, j] = 2 * a[i, j]\n",
     "join i j -> ij:l.0\n",
     {{}}},
    {"triangle",
     "input x: f32[n]\noutput y: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= j <= i < n }\ny[i, j] = x[i] - x[j]\n",
     "tile i j 4 4 -> i_o:g.0 j_o i_i:l.0 j_i\n",
     {{{"n", 10}}}},
    {"every_third",
     "input x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n and i mod 3 = 1 }\ny[i] = x[i]\n",
     "split i 8 -> o:g.0 p:l.0\n",
     {{{"n", 20}}}},
    {"diamonds",
     "inout u: f32[9, 32]\n{ [t, i] : 1 <= t < 9 and 1 <= i < 31 }\nu[t, i] = u[t - 1, i - 1] + u[t - 1, i + 1] - u[t "
     "- 1, i]\n",
     "map [t, i] -> v = t + i, w = t - i + 32\ntile v w 4 4 -> v_o w_o v_i w_i\n",
     {{}}},
};

/// What the element at this place of an input is.
inline double small_number(size_t at) { return static_cast<double>(at * 7 % 13) - 6; }

struct TreeProgram {
  std::string kernel, steps;
  std::vector<std::map<std::string, int64_t>> sizes;
  std::function<double(size_t)> value = small_number;
};

// Sums over the threads of a block, of sizes that are no powers of two; and the place of a maximum.
inline std::vector<TreeProgram> tree_programs() {
  std::vector<TreeProgram> all;
  for (const int64_t size : {128, 5, 113, 67, 1}) {
    all.push_back(
        {fmt::format("input a: f32[{0}]\noutput y: f32[1]\n{{ [i] : 0 <= i < {0} }}\ny[0] = sum(i, a[i]) / 2\n", size),
         "tree i -> part p:l.0",
         {{}}});
    all.push_back(
        {fmt::format(
             "input a: f32[n, {0}]\noutput y: f32[n]\nassume n >= 1\n{{ [t, i] : 0 <= t < n and 0 <= i < {0} }}\n"
             "y[t] = min(i, a[t, i])\n",
             size),
         "tree i 16 -> part p:l.0\ntag t g.0",
         {{{"n", 7}}}});
  }
  const std::string any =
      "input a: f32[n]\noutput y: f32[1]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[0] = sum(i, a[i])\n";
  std::vector<std::map<std::string, int64_t>> sizes;
  for (const int64_t n : {1, 5, 67, 113, 128, 1000}) sizes.push_back({{"n", n}});
  all.push_back({any, "tree i 128 -> part p:l.0", sizes});
  all.push_back({any, "tree i 48 -> part p:l.0", sizes});

  const std::string place = "input x: f32[10000]\noutput y: i32[1]\n{ [v] : 0 <= v < 10000 }\ny[0] = argmax(v, x[v])\n",
                    by_threads = "tree v 128 -> part p:l.0";
  all.push_back(
      {place, by_threads, {{}}, [](size_t at) { return at == 7777 ? 2.0 : static_cast<double>(at % 3) - 2; }});
  // The lowest of equals, which another lane may have found; and where nothing is larger than -inf.
  all.push_back({place, by_threads, {{}}, [](size_t at) { return at == 7777 || at == 129 || at == 256 ? 2.0 : -1.0; }});
  all.push_back({"input x: f32[n]\noutput y: i32[1]\nassume n >= 0\n{ [v] : 5 <= v < n }\ny[0] = argmax(v, x[v])\n",
                 "tree v 8 -> part p:l.0",
                 {{{"n", 3}}, {{"n", 6}}, {{"n", 40}}},
                 [](size_t) { return -INFINITY; }});
  return all;
}

}  // namespace megalith::testing
