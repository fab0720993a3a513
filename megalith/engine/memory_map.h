// The memory of a model: weights mapped from the checkpoint (never held twice) or made up at random, and the states of
// the decoder's graph, zeroed. What a runtime::Program is bound to.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/model/config.h"
#include "megalith/model/safetensors.h"
#include "megalith/runtime/memory.h"

namespace megalith::engine {

/// Whether a tensor of a decoder's graph is a layer's cache of keys or values.
bool is_kv_cache(const graph::Tensor& tensor);
/// Whether it is one of the two tables of rotary embeddings, of whichever model.
bool is_rope_table(const graph::Tensor& tensor);

class MemoryMap {
 public:
  /// Binds every constant of `graph` to the checkpoint's tensor of that name; UserError naming the tensor, its shape
  /// and dtype, and what was wanted. Quantised ones are made here. `weights` must outlive this. A tensor of the model
  /// that no constant is made of is a UserError, too: without it another model would be run than the one that was
  /// trained.
  void bind_weights(const graph::Graph& graph, const Weights& weights);
  /// Binds every constant to random values of a size that keeps activations tame; the same for the same seed, and the same in a draft
  /// model as in a model of its shape.
  void bind_random(const graph::Graph& graph, uint64_t seed);
  /// Makes the tables "rope.cos" and "rope.sin" of a decoder for sequences of up to `max_seq_len` tokens, or fills them
  /// anew for prompts of another length.
  /// `prefix`: what their names begin with, of a draft model's.
  void bind_rope(const graph::Graph& graph, const ModelConfig& config, int64_t max_seq_len, int64_t prompt_tokens = 0,
                 const std::string& prefix = "");
  /// Zeroed memory for every state; those that have enough keep what they have. `written`: by a kernel that runs here, so that all of it will be needed, and
  /// SystemError if it cannot be had; of copies of what lies on a GPU most pages are never touched.
  void bind_states(const graph::Graph& graph, bool written = true);

  /// Gives up pages that lie wholly within bytes of a weight which nobody will read again: made-up and stacked ones are
  /// gone for good, those of a checkpoint come back from the file when they are touched. From any thread.
  void release(const std::byte* begin, int64_t bytes) const;

  /// Random values in the state `name`, as if somebody had computed them.
  void fill_state(const graph::Graph& graph, const std::string& name, uint64_t seed);

  const std::map<std::string, void*>& addresses() const { return addresses_; }
  template <class T>
  T* get(const std::string& name) const {
    return static_cast<T*>(addresses_.at(name));
  }
  int64_t state_bytes() const { return state_bytes_; }

 private:
  void* allocate(int64_t bytes, const std::string& what);
  void stack(const graph::Tensor& tensor, const Weights& weights);
  void quantize(const graph::Tensor& tensor, const graph::Tensor& scale, const WeightTensor& found);

  std::map<std::string, void*> addresses_;
  std::map<std::string, int64_t> bytes_of_state_;
  std::deque<runtime::Mapping> mappings_;
  int64_t state_bytes_ = 0;
};

}  // namespace megalith::engine
