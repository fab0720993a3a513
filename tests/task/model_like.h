// A task list with the shape of a real decoder's (Qwen3-8B at batch 1: 36 layers, 32 heads on 8 KV heads), without the
// compiler in front of it: for tests of how fast planning is and how well it balances.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megalith/task/plan.h"

namespace megalith::test {

struct ModelShape {
  int layers = 36;
  int64_t hidden = 4096, heads = 32, kv_heads = 8, head = 128, ffn = 12288, vocab = 151936, context = 4096;
  int64_t kv_chunks = 4;
  double tiles_per_worker = 1;
};

class ModelLike {
 public:
  ModelLike(int num_workers, const ModelShape& shape) : s(shape) {
    tiles_ = std::max<int64_t>(1, static_cast<int64_t>(shape.tiles_per_worker * num_workers));
    options.num_workers = num_workers;
    options.name = "model_like";
    const int token = buffer("token", {1}, task::Memory::state, DType::i32);
    const int position = buffer("position", {1}, task::Memory::state, DType::i32);
    int x = buffer("embedded", {1, s.hidden});
    vector("embed", {token}, x, s.hidden, 1);
    for (int i = 0; i < s.layers; ++i) x = layer(fmt::format("layer.{}", i), x, position);
    const int normed = buffer("norm", {1, s.hidden}),
              logits = buffer("logits", {1, s.vocab}, task::Memory::arena, DType::f32);
    vector("norm", {x}, normed, s.hidden, 1);
    linear("lm_head", {normed}, logits, s.hidden, s.vocab);
    const int best = buffer("best", {tiles_, 2}, task::Memory::arena, DType::f32);
    for (int64_t j = 0; j < tiles_; ++j)
      add("argmax", "n", j, j + 1, {{logits, {{0, s.vocab * j / tiles_}, {1, s.vocab * (j + 1) / tiles_}}}},
          {{best, {{j, 0}, {j + 1, 2}}}}, 500);
    ++node_;
    add("sample", "t", 0, 1, {{best, {{0, 0}, {tiles_, 2}}}, whole(position)}, {whole(token), whole(position)}, 1000);
    options.gate_task = static_cast<int>(tasks.size()) - 1;
  }

  std::vector<task::Task> tasks;
  std::vector<task::Buffer> buffers;
  task::PlanOptions options;

 private:
  int layer(const std::string& name, int x, int position) {
    const int64_t kv = s.kv_heads * s.head, q = s.heads * s.head, group = s.heads / s.kv_heads;
    const int normed = buffer(name + ".norm", {1, s.hidden}), qkv = buffer(name + ".qkv", {1, q + 2 * kv});
    const int rotated = buffer(name + ".q", {1, s.heads, s.head}), out = buffer(name + ".attention", {1, q});
    const int keys = buffer(name + ".keys", {s.context, s.kv_heads, s.head}, task::Memory::state);
    const int values = buffer(name + ".values", {s.context, s.kv_heads, s.head}, task::Memory::state);
    const int partial = buffer(name + ".partial", {s.kv_chunks, s.heads, s.head + 2}, task::Memory::arena, DType::f32);
    const int middle = buffer(name + ".middle", {1, s.hidden}), normed2 = buffer(name + ".norm2", {1, s.hidden});
    const int gate_up = buffer(name + ".gate_up", {1, 2 * s.ffn}), act = buffer(name + ".silu", {1, s.ffn});
    const int down = buffer(name + ".down", {1, s.hidden});

    vector(name + ".norm", {x}, normed, s.hidden, 1);
    linear(name + ".qkv", {normed}, qkv, s.hidden, q + 2 * kv);
    for (int64_t h = 0; h < s.heads; ++h)
      add(name + ".rope_q", "h", h, h + 1, {{qkv, {{0, h * s.head}, {1, (h + 1) * s.head}}}, whole(position)},
          {{rotated, {{0, h, 0}, {1, h + 1, s.head}}}}, 300);
    ++node_;
    for (int64_t h = 0; h < s.kv_heads; ++h)
      add(name + ".kv_append", "h", h, h + 1,
          {{qkv, {{0, q + h * s.head}, {1, q + (h + 1) * s.head}}},
           {qkv, {{0, q + kv + h * s.head}, {1, q + kv + (h + 1) * s.head}}},
           whole(position)},
          {{keys, {{0, h, 0}, {s.context, h + 1, s.head}}}, {values, {{0, h, 0}, {s.context, h + 1, s.head}}}}, 400);
    ++node_;
    for (int64_t c = 0; c < s.kv_chunks; ++c)
      for (int64_t h = 0; h < s.kv_heads; ++h)
        add(fmt::format("{}.attention{}", name, c), "h", h, h + 1,
            {{rotated, {{0, h * group, 0}, {1, (h + 1) * group, s.head}}},
             {keys, {{0, h, 0}, {s.context, h + 1, s.head}}},
             {values, {{0, h, 0}, {s.context, h + 1, s.head}}},
             whole(position)},
            {{partial, {{c, h * group, 0}, {c + 1, (h + 1) * group, s.head + 2}}}}, 3000);
    ++node_;
    for (int64_t h = 0; h < s.heads; ++h)
      add(name + ".merge", "h", h, h + 1, {{partial, {{0, h, 0}, {s.kv_chunks, h + 1, s.head + 2}}}},
          {{out, {{0, h * s.head}, {1, (h + 1) * s.head}}}}, 400);
    ++node_;
    linear(name + ".o", {out, x}, middle, q, s.hidden);
    vector(name + ".norm2", {middle}, normed2, s.hidden, 1);
    linear(name + ".gate_up", {normed2}, gate_up, s.hidden, 2 * s.ffn);
    for (int64_t j = 0; j < tiles_; ++j) {
      const int64_t begin = s.ffn * j / tiles_, end = s.ffn * (j + 1) / tiles_;
      add(name + ".silu", "n", begin, end,
          {{gate_up, {{0, begin}, {1, end}}}, {gate_up, {{0, s.ffn + begin}, {1, s.ffn + end}}}},
          {{act, {{0, begin}, {1, end}}}}, 300);
    }
    ++node_;
    linear(name + ".down", {act, middle}, down, s.ffn, s.hidden);
    return down;
  }

  // One or a few tasks over a vector.
  void vector(const std::string& name, const std::vector<int>& in, int out, int64_t n, int64_t pieces) {
    std::vector<task::Region> reads;
    for (int b : in) reads.push_back(whole(b));
    for (int64_t j = 0; j < pieces; ++j)
      add(name, "n", n * j / pieces, n * (j + 1) / pieces, reads,
          {{out, {{0, n * j / pieces}, {1, n * (j + 1) / pieces}}}}, 1500);
    ++node_;
  }

  // out[n] = sum over k: every tile reads all of the input, and its tile of the residual if there is one.
  void linear(const std::string& name, const std::vector<int>& in, int out, int64_t k, int64_t n) {
    const int weight = buffer(name + ".weight", {n, k}, task::Memory::constant);
    for (int64_t j = 0; j < tiles_; ++j) {
      const int64_t begin = n * j / tiles_, end = n * (j + 1) / tiles_;
      std::vector<task::Region> reads = {whole(in[0]), {weight, {{begin, 0}, {end, k}}}};
      if (in.size() > 1) reads.push_back({in[1], {{0, begin}, {1, end}}});
      add(name, "n", begin, end, reads, {{out, {{0, begin}, {1, end}}}}, static_cast<double>((end - begin) * k) / 18);
    }
    ++node_;
  }

  int buffer(const std::string& name, std::vector<int64_t> shape, task::Memory memory = task::Memory::arena,
             DType dtype = DType::bf16) {
    buffers.push_back({.name = name, .dtype = dtype, .shape = std::move(shape), .memory = memory});
    return static_cast<int>(buffers.size()) - 1;
  }
  task::Region whole(int b) const {
    const std::vector<int64_t>& shape = buffers[static_cast<size_t>(b)].shape;
    return {b, {loop::Corner(shape.size(), 0), loop::Corner(shape)}};
  }
  void add(const std::string& name, const std::string& iname, int64_t begin, int64_t end,
           std::vector<task::Region> reads, std::vector<task::Region> writes, double cost_ns) {
    tasks.push_back({.name = fmt::format("{}[{}={}:{}]", name, iname, begin, end),
                     .node = node_,
                     .tile = {{iname, begin, end}},
                     .reads = std::move(reads),
                     .writes = std::move(writes),
                     .cost_ns = cost_ns});
  }

  const ModelShape s;
  int64_t tiles_ = 1;
  int node_ = 0;
};

}  // namespace megalith::test
