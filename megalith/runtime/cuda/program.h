// A program on a GPU: a compiled kernel, loaded, with the memory it runs on. Weights are copied to the card once, those
// that stream into the order in which workers read them; states begin as zeros there and are copied when asked for. The
// counterpart of runtime/program.h.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/jit/compile.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/cuda/caches.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/cuda/streams.h"
#include "megalith/runtime/image.h"
#include "megalith/runtime/profile_rings.h"

namespace megalith::runtime {

class StagedUpload;

class CudaProgram {
 public:
  /// `memory`: the host's copy of every constant and state, by tensor name. States named in `shared` lie in pinned
  /// memory that the host sees while the kernel runs. Tensors in `on_device` lie on the card already, at that address,
  /// and are used where they are. Weights are loaded by load_weights(), which follows, if they are `late`. SystemError if the
  /// GPU is too small, or cannot hold all workers at the same time.
  CudaProgram(const graph::Graph& graph, const jit::CompiledKernel& kernel, const std::map<std::string, void*>& memory,
              const std::set<std::string>& shared = {}, std::map<std::string, void*> on_device = {},
              bool late_weights = false);
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;

  /// Loads those of programs of one model and GPU, whose graphs are still there: each comes over the link once.
  static void load_weights(const std::vector<CudaProgram*>& programs);

  /// Copies a tensor from or to the host's copy. Not while the kernel runs.
  void upload(const std::string& tensor);
  void download(const std::string& tensor) const;
  /// Copies an activation of the last iteration to `to`, words without their epochs. All are whole only if the tasks
  /// were planned without reuse (jit::CompileOptions).
  void download(const graph::Graph& graph, graph::TensorId activation, void* to) const;
  /// Where constants and states lie that are read in place, by name: what another program may be given as `on_device`.
  std::map<std::string, void*> placed() const;
  /// Where a state lies of which the card has a copy that is read in place.
  jit::CudaAddress address(const std::string& state) const { return tensors_.at(state).address(); }
  int64_t bytes(const std::string& state) const { return bytes_.at(state); }
  /// A tensor of `shared`.
  template <class T>
  T* shared(const std::string& tensor) const {
    return shared_.at(tensor).data<T>();
  }

  /// Asks for records of the tasks of the newest `iterations`, 0: for none; then, after a run, what was recorded.
  void profile(u64 iterations);
  Profile profile_take() const;

  const LaunchImage& image() const { return *image_; }
  void set_num_iterations(u32 num_iterations) { image_->set_num_iterations(num_iterations); }
  int ordinal() const { return device_.ordinal; }

  /// On `stream`, behind what is there: counters, status and abort word as LaunchImage::reset() has them, and the launch
  /// of all workers. Not before the last one has ended.
  void launch(jit::CudaStream stream, u32 first_iteration);
  /// The same behind another program of the same states that is still running on `stream`: without the host, this one lays out
  /// the first rows and runs if the other one ends because of a load in `range`, and otherwise ends as it begins. `beside`: a
  /// stream for what can be done before. False if the kernel cannot.
  bool launch_behind(jit::CudaStream stream, jit::CudaStream beside, batch::LoadRange range);
  const DeviceMemory& status() const { return status_; }
  const DeviceMemory& events() const { return events_; }
  const DeviceMemory& control() const { return control_; }
  /// Bytes of the card's memory for activations and for copies of what the host has: weights, streams, states.
  int64_t bytes_held() const;
  /// Whether streams, and caches in pairs of heads, lie on the sides of the L2 (runtime/cuda/sides.h).
  bool is_on_sides() const { return sides_.maps != nullptr; }
  /// "72 registers, ..., scratch of 1024 bytes in shared memory".
  std::string resources() const;

 private:
  void place_tensors(const graph::Graph& graph, const jit::CompiledKernel& kernel, const std::set<std::string>& shared);
  void place_exchange(const task::TaskGraph& tasks);
  void load(const jit::CompiledKernel& kernel);
  void load_take_over(const jit::CompiledKernel& kernel, int shared_bytes);
  /// On `stream`.
  void reset(jit::CudaStream stream, u32 first_iteration);
  void launch_workers(jit::CudaStream stream);
  void check_frames(const LaunchImage& image) const;
  void place_streams();
  void deal_streams();
  bool may_have_sides() const;
  /// Of a matrix that lies at `weights` what is to be done with it, to `table`; and then, on that stream, that.
  void upload_records(int matrix, const void* weights, StagedUpload& upload, const DeviceMemory& table);
  void pack(int matrix, jit::CudaStream stream, const DeviceMemory& table);
  const void* host_memory(const graph::Tensor& tensor) const;
  template <class T>
  T* copy(const T* from, size_t count, const char* what) {
    const auto bytes = static_cast<int64_t>(count * sizeof(T));
    tables_.emplace_back(bytes, what);
    tables_.back().upload(from, bytes);
    return tables_.back().template data<T>();
  }

  jit::CudaDeviceInfo device_;
  const graph::Graph* graph_;  // until weights are loaded
  const std::map<std::string, void*>& memory_;
  std::map<std::string, void*> on_device_;
  std::vector<graph::Layout> layouts_;  // per tensor
  StreamPlan streams_;
  DeviceMemory arena_, exchange_, stream_memory_, scales_, taken_;
  Sides sides_{};
  PairedCaches caches_;
  std::map<std::string, DeviceMemory> tensors_;
  std::map<std::string, int64_t> bytes_;
  std::map<std::string, PinnedMemory> shared_;
  std::vector<int64_t> exchange_offsets_;  // per tensor
  std::vector<void*> addresses_;           // per tensor
  std::unique_ptr<LaunchImage> image_;
  DeviceMemory status_, events_, control_, scratch_, profile_, profile_clocks_;
  PinnedMemory reset_;  // what the next launch finds in events, status and control
  std::vector<DeviceMemory> tables_;
  Launch launch_{};
  CudaModuleOwner module_;
  jit::CudaFunction function_ = nullptr;
  unsigned threads_ = 0, shared_bytes_ = 0;
  const bool has_partners_;  // workers are launched as clusters of two
  // What lays out the first rows of launch_behind(), by the task that does so at the end of an iteration.
  jit::CudaFunction take_over_ = nullptr;
  unsigned take_over_shared_bytes_ = 0;
  u32 take_over_task_ = 0;
  CudaEventOwner is_reset_;
  jit::KernelResources resources_;
};

}  // namespace megalith::runtime
