// Weights from safetensors files: 8 bytes of header length, a JSON header {name: {dtype, shape, data_offsets}}, raw
// data. Files are mapped, not read: opening a model costs its headers, and the bytes arrive as they are touched.
//
// Nothing in a file is believed. The header may have 100 MB, every offset must lie in the file, no two tensors may
// share a byte, and a tensor must have as many bytes as its shape and dtype say. All complaints are UserErrors that
// name the file and the tensor. A file that another process cuts short while it is mapped reads as zeros from there on:
// check_files() tells.
//
// The index of a checkpoint in shards decides which file a tensor comes from: copies elsewhere do not count, and what
// it names need not be there unless somebody asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/dtype.h"
#include "megalith/base/file.h"

namespace megalith {

struct WeightTensor {
  std::string name;  // in its file
  DType dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // row-major, aligned to the dtype; lives as long as the Weights it came from
};

/// The tensors of a model: one file, or all shards of an index.
///   Weights weights = Weights::open("models/storyteller");
///   const WeightTensor& embedding = weights.get("model.embed_tokens.weight");
class Weights {
 public:
  /// `path` is a .safetensors file, or a folder with model.safetensors or model.safetensors.index.json.
  static Weights open(const std::string& path);

  /// nullptr if there is no such tensor. UserError if there is one of a dtype that Megalith cannot compute with.
  const WeightTensor* find(std::string_view name) const;
  /// As find(), but a missing tensor is a UserError that lists near names.
  const WeightTensor& get(std::string_view name) const;
  /// Where they come from.
  const std::string& path() const { return path_; }
  /// The names of all tensors that are there, sorted, those of unsupported dtypes included.
  std::vector<std::string> names() const;
  /// Gives each tensor another name; those for which `name_of` returns "" are gone. UserError if two get the same one.
  void rename(const std::function<std::string(const std::string&)>& name_of);
  /// Takes in the tensors of another model, and its files. UserError if both have one of a name.
  void join(Weights other);
  /// SystemError naming the file if one has been cut short since it was opened.
  void check_files() const;
  /// Bytes of all tensors together.
  int64_t total_bytes() const;

 private:
  struct Entry {
    WeightTensor tensor;
    std::string unsupported;  // the dtype's name in the file if Megalith has no such DType, else ""
    std::string file;
  };
  /// Of a shard, `takes` says which of its tensors count.
  void add_file(const std::string& path, const std::function<bool(const std::string& name)>& takes = {});
  void add_index(const std::string& folder, const std::string& index_path);

  std::string path_;
  std::deque<MappedFile> files_;
  std::vector<std::unique_ptr<std::byte[]>> realigned_;  // copies of tensors whose file misaligns them
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> absent_;  // what to say to somebody who asks for this one
};

/// The bytes of a safetensors file with `tensors`, larger elements first so that all are aligned.
std::string safetensors_bytes(std::span<const WeightTensor> tensors);
/// Writes them (atomically).
void safetensors_write(const std::string& path, std::span<const WeightTensor> tensors);

}  // namespace megalith
