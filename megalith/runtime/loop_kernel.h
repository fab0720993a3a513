// A loop kernel of one's own, to be called: a schedule, and what was compiled of it. A call finds by its arguments' types,
// places and sizes what is specialized for them, with one look-up and no allocation, or compiles it.
//
//   runtime::LoopKernel scale("{ [i] : 0 <= i < n }\nb[i] = 2 * a[i]");
//   scale = scale.then("split i 16 -> o p").then("vectorise p");
//   runtime::LoopCall call = scale.call();
//   call.tensors[0] = ...;                         // a; then b
//   scale.run(call);
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "megalith/jit/open_schedule.h"
#include "megalith/runtime/loaded_loops.h"
#include "megalith/runtime/loop_signature.h"

namespace megalith::runtime {

/// What of its arguments a kernel is compiled for, beside their types.
struct LoopSpecializing {
  bool alignment = true;        // tensors at a multiple of 16 bytes
  bool divisibility = true;     // sizes that are multiples of 16
  bool ones = true;             // sizes that are 1
  std::set<std::string> never;  // tensors and sizes of which nothing is assumed
};

/// Arguments in the order of the kernel's signature.
struct LoopCall {
  std::array<LoopTensor, kMaxLoopTensors> tensors;
  std::array<int64_t, kMaxLoopSizes> sizes;  // LoopSignature::kUnknown where shapes tell
  std::array<float, kMaxLoopSizes> attributes;
  jit::CudaStream stream = nullptr;
};

class LoopKernel {
 public:
  explicit LoopKernel(const std::string& text, LoopSpecializing specializing = {});
  LoopKernel(jit::OpenSchedule schedule, LoopSpecializing specializing);

  LoopKernel then(const std::string& line) const { return {schedule_.then(line), specializing_}; }
  const jit::OpenSchedule& schedule() const { return schedule_; }
  const LoopSpecializing& specializing() const { return specializing_; }
  const LoopSignature& signature() const { return *signature_; }

  /// Nothing is there yet; sizes unknown, attributes as the kernel has them.
  LoopCall call() const;
  /// Sizes from shapes, checked (LoopSignature::find_sizes()). With all tensors there, they are checked, too.
  void find_sizes(LoopCall& call) const;

  /// What is specialized for the call, if it was compiled before. Tensors without an address count as aligned.
  LoadedLoops* find(const LoopCall& call) const;
  /// The same, or compiles it. Safe from several threads, each waits for the others. `made`: set to what was compiled, or
  /// found in the cache, if this call did.
  LoadedLoops& make(const LoopCall& call, std::shared_ptr<const jit::LoopProgram>* made = nullptr) const;
  /// Compiles for a target that need not be there: "cuda:sm_90a". Found in the cache by whoever calls it on such a GPU.
  std::shared_ptr<const jit::LoopProgram> make_for(const LoopCall& call, const std::string& target,
                                                   std::shared_ptr<const jit::LoopProgram>* made = nullptr) const;
  /// The dtype of an output that is not there: as declared, or that of its values for the dtypes of the others.
  DType output_dtype(const LoopCall& call, size_t tensor) const;
  /// find_sizes(), check_memory(), make(), launch().
  void run(LoopCall& call) const;
  /// By the interpreter, in float64, on the host.
  void interpret(LoopCall& call) const;

  /// The newest that was compiled or found in the cache; nullptr if none was.
  std::shared_ptr<const jit::LoopProgram> newest() const;
  size_t num_compiled() const;

 private:
  // Where, then a byte for each tensor (dtype, alignment) and each size (1, a multiple of 16, or neither).
  using Key = std::array<uint8_t, 4 + kMaxLoopTensors + kMaxLoopSizes>;
  struct Entry {
    Key key;
    std::string target;  // of programs that are not loaded; else ""
    std::shared_ptr<const jit::LoopProgram> program;
    std::shared_ptr<LoadedLoops> loaded;  // nullptr of those
  };
  struct Compiled {
    std::mutex looking, compiling;
    std::vector<std::unique_ptr<Entry>> entries;
    Entry* last = nullptr;
    std::shared_ptr<const jit::LoopProgram> newest;
  };
  Key key_of(const LoopCall& call) const;
  size_t key_bytes() const { return 4 + signature_->tensors().size() + signature_->sizes().size(); }
  Entry* find(const Key& key, const std::string& target) const;
  std::map<std::string, DType> dtypes(const LoopCall& call) const;
  std::shared_ptr<const jit::LoopProgram> compile(const LoopCall& call, const std::string& target) const;
  Entry& keep(std::unique_ptr<Entry> entry) const;

  jit::OpenSchedule schedule_;
  LoopSpecializing specializing_;
  std::shared_ptr<const LoopSignature> signature_;
  std::vector<uint8_t> tensor_masks_, size_masks_;  // what of an argument counts
  std::shared_ptr<Compiled> compiled_;
};

}  // namespace megalith::runtime
