// Attention as layers of a PersistentKernel write it (python/megalith/attention_layers.py): q, k and v come as one tensor of
// bf16, the number of rows is dynamic, tables of angles are as wide as a head, and layers share their buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/ops/registry.h"

namespace megalith::testing {

struct StackedAttention {
  int64_t rows;  // at most
  bool head_norms;
  int64_t head = 64, groups = 2, per_group = 2;
  bool wide_tables = true;
  DType tables = DType::bf16;
  bool has_product = true;  // that makes q, k and v; otherwise they are bound from outside
  bool has_start = true;
  bool has_rope = true;
  int64_t requests = 2, pages = 16, page = 16;  // of each request; positions of each page
  int64_t hidden = 64;
  bool shares_cache = false;  // both layers write the same one, as steps of a draft model do
  bool alone = false;         // no kernel for another load looks at the caches

  int64_t columns() const { return groups * (per_group + 2) * head; }
};

inline std::shared_ptr<const graph::Registry> registry_of_stacked_attention() {
  auto result = std::make_shared<graph::Registry>(*ops::builtin());
  graph::operator_ starts("row_starts", "the first position of each row's request in this iteration");
  starts.input("request", {"T"}, DType::i32)
      .input("position", {"T"}, DType::i32)
      .output("start", {"T"}, DType::i32)
      .loops(R"({ [t, u] : 0 <= t < T and 0 <= u < T }
                start[t] = position[t] - sum(u, 1, request[u] == request[t] and position[u] < position[t]))");
  graph::operator_ copy("copy_rows", "y[t] = x[t], into a tensor with room for more");
  copy.input("x", {"T", "H"}).output("y", {"U", "H"}, DType::bf16).loops(R"({ [t, h] : 0 <= t < T and 0 <= h < H }
                                                                            y[t, h] = f32(x[t, h]))");
  graph::operator_ next("next_positions", "position[t] += 1");
  next.inout("position", {"T"}, DType::i32).loops(R"({ [t] : 0 <= t < T }
                                                     position[t] = position[t] + 1)");
  for (const graph::Operator& op : {graph::Operator(starts), graph::Operator(copy), graph::Operator(next)})
    result->add(op);
  return result;
}

/// Two layers, "0." and "1.", of which the second one reads what the first one made; behind them positions move on. States:
/// "counts" (how many rows there are), "request", "position", "page_table", "x", "result", caches, norms and tables.
inline graph::Graph stacked_attention(const StackedAttention& s) {
  graph::Graph g(registry_of_stacked_attention(), "stacked attention");
  g.dynamic_size("rows", g.state("counts", DType::i32, {1}), 0);
  const graph::Dim rows(s.rows, "rows");
  const int64_t positions = s.pages * s.page, width = s.wide_tables ? s.head : s.head / 2;
  const auto request = g.state("request", DType::i32, {rows}), position = g.state("position", DType::i32, {rows}),
             table = g.state("page_table", DType::i32, {s.requests, s.pages});
  // More angles than there are positions.
  const auto cosine = g.state("cosine", s.tables, {positions + 5, width}),
             sine = g.state("sine", s.tables, {positions + 5, width});
  if (s.has_start)
    g.add("row_starts", "starts", {request, position},
          {.outputs = {{"start", g.activation("rows.row_start", DType::i32, {rows})}}});
  graph::TensorId x = g.state("x", DType::bf16, {s.rows, s.hidden});
  const auto qkv = s.has_product ? g.activation("qkv", DType::bf16, {s.rows, s.columns()})
                                 : g.state("qkv", DType::bf16, {s.rows, s.columns()}),
             copied = g.activation("copied", DType::bf16, {s.rows, s.groups * s.per_group * s.head});
  for (const std::string at : {"0.", "1."}) {
    if (s.has_product)
      g.add("linear", at + "qkv_proj", {x, g.constant(at + "qkv.weight", DType::bf16, {s.columns(), s.hidden})},
            {.outputs = {{"y", qkv}}});
    const auto heads =
        g.add("split_heads", at + "split", {qkv},
              {.sizes = {{"G", s.groups}, {"E", s.per_group + 2}, {"T", s.rows}},
               .outputs = {{"q", g.activation(at + "q", DType::f32, {rows, s.groups * s.per_group * s.head})},
                           {"k", g.activation(at + "k", DType::f32, {rows, s.groups * s.head})},
                           {"v", g.activation(at + "v", DType::f32, {rows, s.groups * s.head})}}});
    const auto turned = [&](const std::string& name, graph::TensorId y) {
      if (s.head_norms)
        y = g.apply("head_norm", name + "_norm", {y, g.state(name + "_norm.weight", DType::bf16, {s.head})});
      return s.has_rope ? g.apply("rope", name + "_rope", {y, cosine, sine, position}, {.sizes = {{"M", s.head / 2}}})
                        : y;
    };
    const auto q = turned(at + "q", heads[0]), k = turned(at + "k", heads[1]);
    const std::vector<graph::Dim> cache = {s.requests * s.pages, s.page, s.groups, s.head};
    const std::string of = s.shares_cache ? "0." : at;
    const auto cached = [&](const std::string& name) {
      return g.has(name) ? g.find(name) : g.state(name, DType::bf16, cache, s.alone, !s.alone);
    };
    const auto k_cache = cached(of + "k_cache"), v_cache = cached(of + "v_cache");
    g.add("kv_append", at + "append", {k, heads[2], table, request, position, k_cache, v_cache});
    const auto y =
        g.apply("attention", at + "attention", {q, k_cache, v_cache, table, request, position},
                {.sizes = {{"S", positions}}, .attributes = {{"scale", 0.2}}, .dtypes = {{"y", DType::bf16}}});
    g.add("copy_rows", at + "copy", {y}, {.outputs = {{"y", copied}}});
    x = g.apply("linear", at + "o",
                {copied, g.constant(at + "o.weight", DType::bf16, {s.hidden, s.groups * s.per_group * s.head})},
                at == "0."
                    ? graph::NodeOptions{.dtypes = {{"y", DType::bf16}}}
                    : graph::NodeOptions{.outputs = {{"y", g.state("result", DType::bf16, {s.rows, s.hidden})}}});
  }
  g.add("next_positions", "next", {position});
  return g;
}

}  // namespace megalith::testing
