// Tensors for a graph that is to be timed and has no model's files: floats are random, integers what a file says of them, or
// random where an operator points with them and 0 elsewhere; a dynamic size of which nothing is said is at its largest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "megalith/engine/graph_runner.h"
#include "megalith/graph/graph_file.h"
#include "megalith/runtime/cuda/memory.h"

namespace megalith::engine {

class MadeUpTensors {
 public:
  /// Memory for all constants and states of `graph`, which is the file's, or what rules made of it; on the side where the
  /// target wants it. SystemError if there is not enough. `file` must outlive it.
  MadeUpTensors(const graph::GraphFile& file, const graph::Graph& graph, bool on_gpu);

  /// By name.
  const std::map<std::string, TensorMemory>& places() const { return places_; }

 private:
  void add_parts(const graph::Tensor& stacked);
  void add(const std::string& name, const graph::Tensor& like, int64_t rows,
           const std::map<std::string, int64_t>& limits);
  void fill_random(std::byte* at, const graph::Tensor& like, int64_t elements);
  void fill_integers(std::byte* at, const std::string& name, const graph::Tensor& like, int64_t elements,
                     const std::map<std::string, int64_t>& limits);
  int64_t largest(const std::string& dynamic) const;

  const graph::GraphFile& file_;
  bool on_gpu_;
  std::mt19937_64 random_{7};
  std::deque<std::vector<std::byte>> host_;
  std::deque<runtime::DeviceMemory> device_;
  std::map<std::string, TensorMemory> places_;
};

}  // namespace megalith::engine
