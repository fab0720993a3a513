#include "megalith/runtime/cuda/program.h"

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/program.h"

namespace megalith::runtime {

using jit::CudaDriver;

namespace {
enum FunctionAttribute { kMaxThreads = 0, kStaticSharedBytes = 1, kDynamicSharedBytes = 8 };
constexpr int kAttributeCooperative = 2;
}  // namespace

CudaProgram::CudaProgram(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                         const std::map<std::string, void*>& memory, const std::set<std::string>& shared)
    : device_(jit::cuda_device()), context_(device_.ordinal), memory_(memory) {
  place_tensors(graph, kernel, shared);
  ImageParts parts = image_parts(graph, kernel, addresses_);
  parts.scratch_bytes = 0;  // the host's; the card's is made below
  image_ = std::make_unique<LaunchImage>(kernel.tasks, std::move(parts));
  load(kernel);

  const Launch& host = image_->launch();
  launch_ = host;
  launch_.tasks = copy(host.tasks, image_->num_tasks(), "the tasks");
  launch_.waits = copy(host.waits, image_->num_waits(), "the waits");
  launch_.signals = copy(host.signals, image_->num_signals(), "the signals");
  launch_.list = copy(host.list, image_->num_tasks(), "the workers' lists");
  launch_.list_begin = copy(host.list_begin, host.num_workers + 1, "the workers' lists");
  launch_.operands = copy(host.operands, image_->num_operands(), "the operands");
  events_ = DeviceMemory(static_cast<int64_t>(sizeof(EventCounter)) * image_->num_events(), "the events");
  status_ = DeviceMemory(static_cast<int64_t>(sizeof(WorkerStatus)) * host.num_workers, "the workers' status");
  control_ = DeviceMemory(sizeof(Control), "the abort word");
  launch_.events = events_.data<EventCounter>();
  launch_.status = status_.data<WorkerStatus>();
  launch_.control = control_.data<Control>();
  launch_.scratch = scratch_.data<u8>();
  launch_.scratch_bytes = static_cast<u64>(scratch_.bytes()) / host.num_workers;
  log_info("[cuda] {} on {}: {}", image_->name(), device_.name, resources());
}

CudaProgram::~CudaProgram() {
  if (module_ != nullptr) CudaDriver::get().module_unload(module_);
}

void CudaProgram::place_tensors(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                                const std::set<std::string>& shared) {
  arena_ = DeviceMemory(kernel.tasks.arena_bytes, "the arena of activations");
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    if (tensor.kind == graph::TensorKind::activation) {
      addresses_.push_back(arena_.data<std::byte>() + kernel.tasks.buffers[i].offset);
      continue;
    }
    const auto found = memory_.find(tensor.name);
    MEGALITH_CHECK(found != memory_.end() && found->second, "the {} \"{}\" has no memory",
                   tensor.kind == graph::TensorKind::constant ? "constant" : "state", tensor.name);
    bytes_[tensor.name] = tensor.bytes();
    if (shared.contains(tensor.name)) {
      addresses_.push_back((shared_[tensor.name] = PinnedMemory(tensor.bytes(), tensor.name)).data());
      continue;
    }
    // Not all of a checkpoint's tensors are aligned in its file; here each begins where the driver likes it.
    DeviceMemory& memory = tensors_[tensor.name] = DeviceMemory(tensor.bytes(), fmt::format("\"{}\"", tensor.name));
    if (tensor.kind == graph::TensorKind::constant) memory.upload(found->second, tensor.bytes());
    addresses_.push_back(memory.data());
  }
}

void CudaProgram::load(const jit::CompiledKernel& kernel) {
  const CudaDriver& driver = CudaDriver::get();
  MEGALITH_CHECK(kernel.cuda.architecture == device_.architecture, "the kernel is for {}, but the GPU is {} ({})",
                 kernel.cuda.architecture, device_.architecture, device_.name);
  driver.check(driver.module_load(&module_, kernel.cuda.cubin.data()), "loading the kernel");
  driver.check(driver.module_function(&function_, module_, "megalith_worker"), "finding megalith_worker");
  int threads = 0, static_bytes = 0, blocks = 0;
  driver.check(driver.function_attribute(&threads, kMaxThreads, function_), "asking for the kernel's threads");
  driver.check(driver.function_attribute(&static_bytes, kStaticSharedBytes, function_), "asking for shared memory");
  threads_ = static_cast<unsigned>(threads);  // __launch_bounds__ says how many there must be
  resources_ = kernel.cuda.resources;

  const auto num_workers = static_cast<int>(image_->launch().num_workers);
  if (kernel.scratch_bytes + static_bytes <= device_.shared_bytes_per_block) {
    shared_bytes_ = static_cast<unsigned>(kernel.scratch_bytes);
    driver.check(driver.function_set_attribute(function_, kDynamicSharedBytes, static_cast<int>(shared_bytes_)),
                 "setting aside shared memory");
  } else {
    scratch_ = DeviceMemory((kernel.scratch_bytes + 127) / 128 * 128 * num_workers, "scratch");
  }
  // Workers wait for each other, so all must be on the card at once.
  driver.check(driver.occupancy(&blocks, function_, threads, shared_bytes_), "asking how many workers fit");
  MEGALITH_CHECK(num_workers <= blocks * device_.num_multiprocessors,
                 "{} workers must run at the same time, but {} has room for {} ({} multiprocessors, {} each)",
                 num_workers, device_.name, blocks * device_.num_multiprocessors, device_.num_multiprocessors, blocks);
}

template <class T>
T* CudaProgram::copy(const T* from, size_t count, const char* what) {
  const auto bytes = static_cast<int64_t>(count * sizeof(T));
  tables_.emplace_back(bytes, what);
  tables_.back().upload(from, bytes);
  return tables_.back().data<T>();
}

void CudaProgram::upload(const std::string& tensor) {
  tensors_.at(tensor).upload(memory_.at(tensor), bytes_.at(tensor));
}

void CudaProgram::download(const std::string& tensor) const {
  tensors_.at(tensor).download(memory_.at(tensor), bytes_.at(tensor));
}

void CudaProgram::launch(jit::CudaStream stream, u32 first_iteration) {
  const CudaDriver& driver = CudaDriver::get();
  image_->reset(first_iteration);
  const Launch& host = image_->launch();
  events_.upload(host.events, static_cast<int64_t>(sizeof(EventCounter)) * image_->num_events());
  status_.upload(host.status, static_cast<int64_t>(sizeof(WorkerStatus)) * host.num_workers);
  control_.upload(host.control, sizeof(Control));
  launch_.first_iteration = host.first_iteration;
  launch_.num_iterations = host.num_iterations;

  // Cooperative: the driver launches all blocks at once or refuses, also where others use the card.
  jit::CudaLaunchAttribute cooperative{};
  cooperative.id = kAttributeCooperative;
  cooperative.value.cooperative = 1;
  const jit::CudaLaunchConfig config{host.num_workers, 1, 1, threads_, 1, 1, shared_bytes_, stream, &cooperative, 1};
  void* parameters[] = {&launch_};
  driver.check(driver.launch(&config, function_, parameters, nullptr),
               fmt::format("launching {} workers at once", host.num_workers));
}

std::string CudaProgram::resources() const {
  return fmt::format("{}, {} threads a worker, scratch of {} in {}", resources_.text(), threads_,
                     format_bytes(scratch_.bytes() > 0 ? static_cast<int64_t>(launch_.scratch_bytes) : shared_bytes_),
                     scratch_.bytes() > 0 ? "device memory" : "shared memory");
}

}  // namespace megalith::runtime
