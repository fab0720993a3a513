#include "megalith/runtime/cuda/program.h"

#include <algorithm>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/base/log.h"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/runtime/apart.h"
#include "megalith/runtime/cuda/cache_map.h"
#include "megalith/runtime/launch_state.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/program.h"

namespace megalith::runtime {

using jit::CudaDriver;

namespace {
enum FunctionAttribute { kMaxThreads = 0, kStaticSharedBytes = 1, kDynamicSharedBytes = 8 };
constexpr int kAttributeCooperative = 2, kAttributeClusterDimension = 4;
}  // namespace

CudaProgram::CudaProgram(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                         const std::map<std::string, void*>& memory, const std::set<std::string>& shared,
                         std::map<std::string, void*> on_device, bool late_weights)
    : device_(jit::cuda_device()),
      graph_(&graph),
      memory_(memory),
      on_device_(std::move(on_device)),
      layouts_(kernel.schedule.layouts),
      streams_(plan_streams(kernel.tasks)),
      has_partners_(std::ranges::any_of(kernel.tasks.streams,
                                        [](const task::WeightStream& stream) { return stream.order.partners; })) {
  check_apart(graph, memory);
  check_apart(graph, on_device_);
  const CudaContextGuard context(device_.ordinal);
  place_tensors(graph, kernel, shared);
  ImageParts parts = image_parts(graph, kernel, addresses_);
  parts.scratch_bytes = 0;  // the host's; the card's is made below
  parts.first_chunks = streams_.first_chunks;
  for (size_t b = 0; b < addresses_.size(); ++b)
    parts.exchanges.push_back(kernel.tasks.buffers[b].memory == task::Memory::exchange ? addresses_[b] : nullptr);
  image_ = std::make_unique<LaunchImage>(kernel.tasks, std::move(parts));
  check_frames(*image_);
  load(kernel);
  place_streams();

  const Launch& host = image_->launch();
  launch_ = host;
  launch_.tasks = copy(host.tasks, image_->num_tasks(), "the tasks");
  launch_.waits = copy(host.waits, image_->num_waits(), "the waits");
  launch_.signals = copy(host.signals, image_->num_signals(), "the signals");
  launch_.list = copy(host.list, image_->num_tasks(), "the workers' lists");
  launch_.list_begin = copy(host.list_begin, host.num_workers + 1, "the workers' lists");
  launch_.operands = copy(host.operands, image_->num_operands(), "the operands");
  if (streams_.num_chunks() > 0) {
    launch_.streams = stream_memory_.data<u8>();
    launch_.stream = copy(streams_.streams.data(), streams_.streams.size(), "the streams");
    launch_.stream_runs = copy(streams_.runs.data(), streams_.runs.size(), "the streams' runs");
    launch_.sides = sides_;
    launch_.scales = scales_.data<u8>();
  }
  if (const std::optional<CacheMap> map = map_of_caches(graph, layouts_, addresses_, device_))
    launch_.cache_map = copy(&*map, 1, "the map of the caches");
  events_ = DeviceMemory(static_cast<int64_t>(sizeof(EventCounter)) * image_->num_events(), "the events");
  status_ = DeviceMemory(static_cast<int64_t>(sizeof(WorkerStatus)) * host.num_workers, "the workers' status");
  control_ = DeviceMemory(sizeof(Control), "the abort flag");
  reset_ = PinnedMemory(events_.bytes() + status_.bytes() + control_.bytes(), "the events");
  launch_.events = events_.data<EventCounter>();
  launch_.status = status_.data<WorkerStatus>();
  launch_.control = control_.data<Control>();
  launch_.scratch = scratch_.data<u8>();
  launch_.scratch_bytes = static_cast<u64>(scratch_.bytes()) / host.num_workers;
  log_info("[cuda] {} on {}: {}, {} of streams{}, {} of exchange", image_->name(), device_.name, resources(),
           format_bytes(streams_.bytes()), is_on_sides() ? " on the two sides of the L2" : "",
           format_bytes(exchange_.bytes()));
  if (!late_weights) load_weights({this});
}

void CudaProgram::place_tensors(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                                const std::set<std::string>& shared) {
  arena_ = DeviceMemory(kernel.tasks.arena_bytes, "the arena of activations");
  place_exchange(kernel.tasks);
  for (size_t i = 0; i < graph.tensors().size(); ++i)
    if (const graph::Tensor& tensor = graph.tensors()[i];
        kernel.schedule.layouts[i] == graph::Layout::head_pairs && !on_device_.contains(tensor.name))
      caches_.add(tensor.name, tensor.bytes(),
                  {static_cast<unsigned>(tensor.shape[1].size), static_cast<unsigned>(tensor.shape[2].size),
                   static_cast<unsigned>(tensor.shape[3].size * dtype_bytes(tensor.dtype))});
  caches_.allocate();
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    const task::Buffer& buffer = kernel.tasks.buffers[i];
    if (tensor.kind == graph::TensorKind::activation) {
      addresses_.push_back(buffer.memory == task::Memory::exchange ? exchange_.data<std::byte>() + exchange_offsets_[i]
                                                                   : arena_.data<std::byte>() + buffer.offset);
      continue;
    }
    if (const auto there = on_device_.find(tensor.name); there != on_device_.end()) {
      addresses_.push_back(there->second);
      continue;
    }
    host_memory(tensor);  // an error, if there is none
    if (!streams_.totals.in_place[i]) {
      addresses_.push_back(nullptr);
      continue;
    }
    bytes_[tensor.name] = tensor.bytes();
    if (shared.contains(tensor.name)) {
      addresses_.push_back((shared_[tensor.name] = PinnedMemory(tensor.bytes(), tensor.name)).data());
      continue;
    }
    if (caches_.contains(tensor.name)) {
      addresses_.push_back(caches_.address(tensor.name));
      continue;
    }
    // Not all of a checkpoint's tensors are aligned in its file; here each begins where the driver likes it.
    DeviceMemory& memory = tensors_[tensor.name] = DeviceMemory(tensor.bytes(), fmt::format("\"{}\"", tensor.name));
    addresses_.push_back(memory.data());
  }
}

std::map<std::string, void*> CudaProgram::placed() const {
  std::map<std::string, void*> places;
  for (const auto& [name, bytes] : bytes_) {
    if (const auto shared = shared_.find(name); shared != shared_.end())
      places[name] = shared->second.data();
    else
      places[name] = caches_.contains(name) ? caches_.address(name) : tensors_.at(name).data();
  }
  return places;
}

const void* CudaProgram::host_memory(const graph::Tensor& tensor) const {
  const auto found = memory_.find(tensor.name);
  MEGALITH_CHECK(found != memory_.end() && found->second, "the {} \"{}\" has no memory",
                 tensor.kind == graph::TensorKind::constant ? "constant" : "state", tensor.name);
  return found->second;
}

// One block, so that one call clears it before a launch: a word of an earlier run must not look like one of this.
void CudaProgram::place_exchange(const task::TaskGraph& tasks) {
  constexpr int64_t kAlignment = 256;
  int64_t bytes = 0;
  for (const task::Buffer& buffer : tasks.buffers) {
    exchange_offsets_.push_back(bytes);
    if (buffer.memory == task::Memory::exchange) bytes += (buffer.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  exchange_ = DeviceMemory(bytes, "the exchange of activations");
}

// What the worker's frames have room for (runtime/cuda/worker.cuh).
void CudaProgram::check_frames(const LaunchImage& image) const {
  for (u32 t = 0; t < image.num_tasks(); ++t) {
    const TaskRecord& task = image.launch().tasks[t];
    MEGALITH_CHECK(
        task.num_waits <= kFrameWaits && task.num_signals <= kFrameSignals && task.num_operands <= kFrameOperands,
        "task \"{}\" has {} waits, {} signals and {} operands; a GPU's worker takes {}, {} and {}", image.task_name(t),
        task.num_waits, task.num_signals, task.num_operands, kFrameWaits, kFrameSignals, kFrameOperands);
  }
}

void CudaProgram::load(const jit::CompiledKernel& kernel) {
  const CudaDriver& driver = CudaDriver::get();
  MEGALITH_CHECK(kernel.cuda.architecture == device_.architecture, "the kernel is for {}, but the GPU is {} ({})",
                 kernel.cuda.architecture, device_.architecture, device_.name);
  driver.check(driver.module_load(module_.out(), kernel.cuda.cubin.data()), "loading the kernel");
  driver.check(driver.module_function(&function_, module_.get(), "megalith_worker"), "finding megalith_worker");
  int threads = 0, static_bytes = 0, blocks = 0;
  driver.check(driver.function_attribute(&threads, kMaxThreads, function_), "asking for the kernel's threads");
  driver.check(driver.function_attribute(&static_bytes, kStaticSharedBytes, function_), "asking for shared memory");
  threads_ = static_cast<unsigned>(threads);  // __launch_bounds__ says how many there must be
  resources_ = kernel.cuda.resources;

  const auto num_workers = static_cast<int>(image_->launch().num_workers);
  // What the compiler has there, then the worker's variables (shared_variables.cuh), which may be among that, the
  // ring, and the area (weight_ring.cuh).
  const int slots = kernel.ring_slots();
  const int64_t variables =
      stream::kStaticBytes + stream::kVariablesBytes + stream::more_variables_bytes(kernel.stream_rows);
  MEGALITH_CHECK(static_bytes <= variables || slots == 0,
                 "a kernel's variables take {} bytes of shared memory, want at most {}", static_bytes, variables);
  const int64_t shared_bytes = std::max<int64_t>(variables - static_bytes, 0) +
                               slots * (stream::kChunkBytes + kernel.scale_bytes) + kernel.area_bytes;
  MEGALITH_CHECK(shared_bytes + static_bytes <= device_.shared_bytes_per_block,
                 "a worker needs {} bytes of shared memory, but {} gives a block {}; try fewer --max-batched-tokens",
                 shared_bytes + static_bytes, device_.name, device_.shared_bytes_per_block);
  MEGALITH_CHECK(slots > 0 || streams_.num_chunks() == 0,
                 "no room for weights beside {} bytes of activations in the shared memory of {}; try fewer "
                 "--max-batched-tokens",
                 kernel.area_bytes, device_.name);
  shared_bytes_ = static_cast<unsigned>(shared_bytes);
  driver.check(driver.function_set_attribute(function_, kDynamicSharedBytes, static_cast<int>(shared_bytes_)),
               "setting aside shared memory");
  if (kernel.scratch_bytes > 0)
    scratch_ = DeviceMemory((kernel.scratch_bytes + 127) / 128 * 128 * num_workers, "scratch");
  load_take_over(kernel, static_bytes + static_cast<int>(shared_bytes));
  // Workers wait for each other, so all must be on the card at once.
  driver.check(driver.occupancy(&blocks, function_, threads, shared_bytes_), "asking how many workers fit");
  MEGALITH_CHECK(num_workers <= blocks * device_.num_multiprocessors,
                 "{} workers must run at the same time, but {} has room for {} ({} multiprocessors, {} each)",
                 num_workers, device_.name, blocks * device_.num_multiprocessors, device_.num_multiprocessors, blocks);
}

// The task that ends a token loop knows how to begin it.
void CudaProgram::load_take_over(const jit::CompiledKernel& kernel, int shared_bytes) {
  const CudaDriver& driver = CudaDriver::get();
  const auto& tasks = kernel.tasks.tasks;
  const auto ends_loop = [&](const task::Task& task) {
    return kernel.tasks.gate && std::ranges::find(task.signals, *kernel.tasks.gate) != task.signals.end();
  };
  if (std::ranges::count_if(tasks, ends_loop) != 1) return;
  take_over_task_ = static_cast<u32>(std::ranges::find_if(tasks, ends_loop) - tasks.begin());
  const jit::CudaCode code = driver.module_function(&take_over_, module_.get(), "megalith_take_over");
  if (code == jit::kCudaNotFound) {
    take_over_ = nullptr;
    return;
  }
  driver.check(code, "finding megalith_take_over");
  int static_bytes = 0;
  driver.check(driver.function_attribute(&static_bytes, kStaticSharedBytes, take_over_), "asking for shared memory");
  take_over_shared_bytes_ = static_cast<unsigned>(shared_bytes - static_bytes);
  driver.check(driver.function_set_attribute(take_over_, kDynamicSharedBytes, shared_bytes - static_bytes),
               "setting aside shared memory");
  driver.check(driver.event_create(is_reset_.out(), jit::kCudaEventWithoutTiming), "making an event");
}

void CudaProgram::upload(const std::string& tensor) {
  if (caches_.contains(tensor)) return caches_.upload(tensor, memory_.at(tensor));
  tensors_.at(tensor).upload(memory_.at(tensor), bytes_.at(tensor));
}

void CudaProgram::download(const std::string& tensor) const {
  if (caches_.contains(tensor)) return caches_.download(tensor, memory_.at(tensor));
  tensors_.at(tensor).download(memory_.at(tensor), bytes_.at(tensor));
}

void CudaProgram::download(const graph::Graph& graph, graph::TensorId activation, void* to) const {
  const graph::Tensor& tensor = graph.tensor(activation);
  MEGALITH_ASSERT(tensor.kind == graph::TensorKind::activation, "[cuda] \"{}\" is no activation", tensor.name);
  const auto* const at = static_cast<const std::byte*>(addresses_.at(static_cast<size_t>(activation)));
  const auto address = reinterpret_cast<jit::CudaAddress>(at);
  const bool is_words = at >= exchange_.data<std::byte>() && at < exchange_.data<std::byte>() + exchange_.bytes();
  const auto num_words = static_cast<size_t>(tensor.bytes() / 4);
  std::vector<u64> words(is_words ? num_words : 0);
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.copy_to_host(is_words ? words.data() : to, address,
                                   is_words ? num_words * sizeof(u64) : static_cast<size_t>(tensor.bytes())),
               "copying from the GPU");
  for (size_t i = 0; i < words.size(); ++i) static_cast<u32*>(to)[i] = static_cast<u32>(words[i]);
  if (layouts_[static_cast<size_t>(activation)] != graph::Layout::fragments) return;
  const int64_t rows = tensor.shape[0].size, columns = tensor.shape[1].size;
  auto* const elements = static_cast<uint16_t*>(to);
  const std::vector<uint16_t> blocks(elements, elements + rows * columns);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      elements[row * columns + column] = blocks[static_cast<size_t>(row_blocks::index(row, column, rows))];
}

void CudaProgram::launch(jit::CudaStream stream, u32 first_iteration) {
  reset(stream, first_iteration);
  launch_workers(stream);
}

bool CudaProgram::launch_behind(jit::CudaStream stream, jit::CudaStream beside, batch::LoadRange range) {
  if (take_over_ == nullptr) return false;
  const CudaDriver& driver = CudaDriver::get();
  reset(beside, 0);
  driver.check(driver.event_record(is_reset_.get(), beside), "copying to the GPU");
  driver.check(driver.stream_wait(stream, is_reset_.get(), 0), "waiting for a copy to the GPU");
  const jit::CudaLaunchConfig config{1, 1, 1, threads_, 1, 1, take_over_shared_bytes_, stream, nullptr, 0};
  void* parameters[] = {&launch_, &take_over_task_, &range};
  driver.check(driver.launch(&config, take_over_, parameters, nullptr), "launching what begins behind another kernel");
  launch_workers(stream);
  return true;
}

void CudaProgram::reset(jit::CudaStream stream, u32 first_iteration) {
  const CudaDriver& driver = CudaDriver::get();
  image_->reset(first_iteration);
  const Launch& host = image_->launch();
  // What was copied or cleared without a stream may still be on its way, and `stream` does not wait for it.
  driver.check(driver.stream_synchronize(nullptr), "copying to the GPU");
  auto* staged = reset_.data<std::byte>();
  const auto copy = [&](const DeviceMemory& memory, const void* from, size_t bytes) {
    std::memcpy(staged, from, bytes);
    driver.check(driver.copy_to_device_async(memory.address(), staged, bytes, stream), "copying to the GPU");
    staged += bytes;
  };
  if (image_->num_events() > 0) copy(events_, host.events, sizeof(EventCounter) * image_->num_events());
  copy(status_, host.status, sizeof(WorkerStatus) * host.num_workers);
  copy(control_, host.control, sizeof(Control));
  const auto* const events = reset_.data<EventCounter>();
  const auto* const status = reinterpret_cast<const WorkerStatus*>(events + image_->num_events());
  const std::string trouble = why_not_ready(
      *image_, events, status, *reinterpret_cast<const Control*>(status + host.num_workers), first_iteration);
  MEGALITH_ASSERT(trouble.empty(), "[cuda] {} cannot start: {}", image_->name(), trouble);
  if (exchange_.bytes() > 0)
    driver.check(driver.memory_set_async(exchange_.address(), 0, static_cast<size_t>(exchange_.bytes()), stream),
                 "clearing the exchange");
  launch_.first_iteration = host.first_iteration;
  launch_.num_iterations = host.num_iterations;
}

void CudaProgram::launch_workers(jit::CudaStream stream) {
  const CudaDriver& driver = CudaDriver::get();
  const u32 num_workers = image_->launch().num_workers;
  ++launch_.sides.launch;
  // Cooperative: the driver launches all blocks at once or refuses, also where others use the card.
  jit::CudaLaunchAttribute attributes[2] = {};
  attributes[0].id = kAttributeCooperative;
  attributes[0].value.cooperative = 1;
  attributes[1].id = kAttributeClusterDimension;
  attributes[1].value.cluster[0] = 2, attributes[1].value.cluster[1] = attributes[1].value.cluster[2] = 1;
  const u32 num_blocks = has_partners_ ? (num_workers + 1) / 2 * 2 : num_workers;
  const jit::CudaLaunchConfig config{
      num_blocks, 1, 1, threads_, 1, 1, shared_bytes_, stream, attributes, has_partners_ ? 2u : 1u};
  void* parameters[] = {&launch_};
  driver.check(driver.launch(&config, function_, parameters, nullptr),
               fmt::format("launching {} workers at once", num_workers));
}

void CudaProgram::profile(u64 iterations) {
  const CudaContextGuard context(device_.ordinal);
  // Off first: the old records make room for the new, and without room for those the kernel writes none.
  launch_.profile = nullptr;
  launch_.profile_capacity = 0;
  launch_.profile_clocks = nullptr;
  profile_ = {};
  profile_clocks_ = {};
  if (iterations == 0) return;
  const u32 num_workers = image_->launch().num_workers;
  const u32 capacity = profile_capacity_for(profile_longest_list(image_->launch()) * iterations);
  profile_ =
      DeviceMemory(static_cast<int64_t>(sizeof(ProfileRecord)) * capacity * num_workers, "the profile's records");
  profile_clocks_ =
      DeviceMemory(static_cast<int64_t>(sizeof(ProfileClock)) * profile_clock_capacity(capacity) * num_workers,
                   "the profile's clocks");
  launch_.profile = profile_.data<ProfileRecord>();
  launch_.profile_capacity = capacity;
  launch_.profile_clocks = profile_clocks_.data<ProfileClock>();
}

Profile CudaProgram::profile_take() const {
  const u32 num_workers = image_->launch().num_workers, capacity = launch_.profile_capacity;
  Profile profile;
  if (launch_.profile == nullptr) return profile;
  const CudaContextGuard context(device_.ordinal);
  profile.has_streams = launch_.streams != nullptr;
  std::vector<ProfileRecord> records(static_cast<size_t>(capacity) * num_workers);
  const size_t clocks_of_worker = profile_clock_capacity(capacity);
  std::vector<ProfileClock> clocks(clocks_of_worker * num_workers);
  std::vector<WorkerStatus> status(num_workers);
  profile_.download(records.data(), profile_.bytes());
  profile_clocks_.download(clocks.data(), profile_clocks_.bytes());
  status_.download(status.data(), status_.bytes());
  for (u32 w = 0; w < num_workers; ++w) {
    const u32 done = status[w].tasks_done;
    const std::vector<ClockPair> pairs = profile_clocks_of(clocks.data() + clocks_of_worker * w, capacity, done);
    profile.workers.push_back(
        profile_unroll(records.data() + static_cast<size_t>(w) * capacity, capacity, done, pairs));
    if (w == 0) profile.clock_rate = clock_rate_of(pairs);
  }
  return profile;
}

int64_t CudaProgram::bytes_held() const {
  int64_t bytes = arena_.bytes() + scratch_.bytes() + exchange_.bytes() + stream_memory_.bytes() + scales_.bytes() +
                  caches_.bytes();
  for (const auto& [name, memory] : tensors_) bytes += memory.bytes();
  return bytes;
}

std::string CudaProgram::resources() const {
  return fmt::format(
      "{}, {} threads and {} of shared memory a worker{}", resources_.text(), threads_, format_bytes(shared_bytes_),
      scratch_.bytes() > 0 ? fmt::format(", scratch of {}", format_bytes(static_cast<int64_t>(launch_.scratch_bytes)))
                           : "");
}

}  // namespace megalith::runtime
