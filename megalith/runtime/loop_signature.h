// What a scheduled loop kernel of one's own is called with: its tensors, and how their shapes tell its sizes. Whoever calls
// hands over addresses and shapes; nothing of them is believed that can be looked at.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megalith/base/dtype.h"
#include "megalith/jit/open_schedule.h"
#include "megalith/loop/affine.h"
#include "megalith/loop/kernel.h"

namespace megalith::runtime {

// Arguments lie in arrays of fixed length, so that a call allocates nothing.
inline constexpr size_t kMaxLoopTensors = 32, kMaxLoopSizes = 32, kMaxLoopDims = 8;

/// A tensor of somebody else's.
struct LoopTensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  bool is_there = false;  // an output may be missing until its shape is known
  bool on_gpu = false;
  bool writable = true;
  bool row_major = true;
  int ordinal = 0;  // of the GPU
  int num_dims = 0;
  std::array<int64_t, kMaxLoopDims> shape;
};

class LoopSignature {
 public:
  struct Tensor {
    std::string name;
    loop::Role role = loop::Role::input;
    DType dtype = DType::f32;
    bool is_open = false;  // takes any dtype
    std::vector<loop::QuasiAffine> shape;
    std::string shape_text;  // "[n, m + 2]"
  };
  static constexpr int64_t kUnknown = -1;

  /// UserError if a size of a tensor cannot be worked out from the kernel's parameters, or if there are too many.
  explicit LoopSignature(const jit::OpenSchedule& schedule);

  /// In the order of a call: inputs and inouts as the kernel lists them, then outputs.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  size_t num_inputs() const { return num_inputs_; }
  const std::vector<std::string>& sizes() const { return sizes_; }
  const std::vector<loop::Attribute>& attributes() const { return attributes_; }
  const std::string& prefix() const { return prefix_; }  // of messages

  /// Fills in the sizes that are kUnknown from the shapes of tensors that are there, and checks all tensors that are there:
  /// rank, dtype, shape, layout, and what the kernel assumes. UserError naming the argument.
  void find_sizes(std::span<const LoopTensor> tensors, std::span<int64_t> sizes) const;
  /// The shape of a tensor for these sizes, and its number of elements.
  int64_t shape_of(size_t tensor, std::span<const int64_t> sizes, std::array<int64_t, kMaxLoopDims>& shape) const;
  /// UserError where a tensor that is written shares memory with another, is read-only, or lies elsewhere than the others.
  void check_memory(std::span<const LoopTensor> tensors) const;

 private:
  // dimension = coefficient * size + rest
  struct Rule {
    size_t tensor, dimension, size;
    int64_t coefficient;
    loop::QuasiAffine rest;
    bool is_plain;  // coefficient 1, no rest
  };
  void add_rules(size_t tensor);
  bool follow(const Rule& rule, std::span<const LoopTensor> tensors, std::span<int64_t> sizes) const;
  void check_tensor(size_t index, const LoopTensor& tensor) const;
  [[noreturn]] void fail_shape(size_t index, std::span<const LoopTensor> tensors, std::span<const int64_t> sizes) const;
  bool is_known(const loop::QuasiAffine& form, std::span<const int64_t> sizes) const;

  std::vector<Tensor> tensors_;
  size_t num_inputs_ = 0;
  std::vector<std::string> sizes_;
  std::vector<loop::Attribute> attributes_;
  std::vector<Rule> rules_;  // the plain ones first
  std::string prefix_, assumptions_;
  loop::AffineSet assumed_;
};

}  // namespace megalith::runtime
