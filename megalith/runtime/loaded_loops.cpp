#include "megalith/runtime/loaded_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>

#include "megalith/base/capacity_error.h"
#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"

namespace megalith::runtime {

namespace {

enum FunctionAttribute { kMaxThreads = 0, kStaticSharedBytes = 1, kNumRegisters = 4 };
constexpr std::array<int64_t, 3> kMaxBlocks = {(int64_t{1} << 31) - 1, 65535, 65535};
constexpr std::align_val_t kScratchAlignment{64};
constexpr size_t kMaxArguments = kMaxLoopTensors + kMaxLoopSizes + kMaxLoopSizes;

// Memory of the host for one call.
class HostScratch {
 public:
  HostScratch() = default;
  HostScratch(const HostScratch&) = delete;
  HostScratch& operator=(const HostScratch&) = delete;
  ~HostScratch() {
    if (data_) ::operator delete(data_, kScratchAlignment);
  }
  void* make(int64_t bytes) {
    return data_ = ::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 1)), kScratchAlignment);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace

LoadedLoops::LoadedLoops(std::shared_ptr<const jit::LoopProgram> program, const LoopSignature& signature, int ordinal)
    : program_(std::move(program)), prefix_(signature.prefix()) {
  for (const codegen::LoopSource& source : program_->sources) {
    parts_.push_back(make_part(source, signature));
    has_checks_ = has_checks_ || !source.checks.empty();
  }
  if (jit::is_cuda_target(program_->target)) {
    load_cuda(ordinal);
    return;
  }
  for (Part& part : parts_)
    part.function =
        program_->build.library.function<void(void* const*, const long long*, const float*)>(part.source->name.c_str());
}

LoadedLoops::Part LoadedLoops::make_part(const codegen::LoopSource& source, const LoopSignature& signature) {
  Part part{.source = &source};
  for (const std::string& name : source.tensors) part.tensors.push_back(place_of(name, signature));
  const size_t most = kMaxLoopTensors - (source.checks.empty() ? 0 : 1);
  MEGALITH_CHECK(part.tensors.size() <= most, "{} it has {} tensors and temporaries that are everyone's, at most {}",
                 prefix_, part.tensors.size(), most);
  for (const std::string& name : source.sizes) {
    const auto found = std::ranges::find(signature.sizes(), name);
    MEGALITH_CHECK(found != signature.sizes().end(), "{} has no size \"{}\"", prefix_, name);
    part.sizes.push_back(static_cast<size_t>(found - signature.sizes().begin()));
  }
  for (const std::string& name : source.attributes) {
    const auto found = std::ranges::find(signature.attributes(), name, &loop::Attribute::name);
    MEGALITH_CHECK(found != signature.attributes().end(), "{} has no attribute \"{}\"", prefix_, name);
    part.attributes.push_back(static_cast<size_t>(found - signature.attributes().begin()));
  }
  return part;
}

int LoadedLoops::place_of(const std::string& name, const LoopSignature& signature) {
  const auto argument = std::ranges::find(signature.tensors(), name, &LoopSignature::Tensor::name);
  if (argument != signature.tensors().end()) return static_cast<int>(argument - signature.tensors().begin());
  const auto known = std::ranges::find(scratch_, name, &Scratch::name);
  if (known != scratch_.end()) return -1 - static_cast<int>(known - scratch_.begin());
  const loop::TensorArgument& tensor = *program_->kernel.find_tensor(name);
  MEGALITH_CHECK(tensor.role == loop::Role::temporary, "{} has no argument \"{}\"", prefix_, name);
  MEGALITH_CHECK(scratch_.size() < kMaxLoopTensors, "{} it has more than {} temporaries that are everyone's", prefix_,
                 kMaxLoopTensors);
  const isl::set context = loop::Domains(program_->kernel).context();
  Scratch& scratch = scratch_.emplace_back(Scratch{name, {}, dtype_bytes(*tensor.dtype)});
  for (const loop::Expr& size : tensor.shape) {
    const auto aff = loop::to_isl_aff(context.space(), size);
    MEGALITH_CHECK(aff, "{} the size {} of {} is not affine in the parameters", prefix_, loop::print(size), name);
    scratch.shape.push_back(loop::quasi_affine(*aff, signature.sizes()));
  }
  return -static_cast<int>(scratch_.size());
}

void LoadedLoops::load_cuda(int ordinal) {
  driver_ = &jit::CudaDriver::get();
  const CudaContextGuard guard(ordinal);
  context_ = CudaContextHold::of_current();
  driver_->check(driver_->module_load(module_.out(), program_->cuda.cubin.data()),
                 fmt::format("loading the kernel {}", parts_[0].source->name));
  if (has_checks_) {
    const codegen::LoopFault none;
    device_fault_ = DeviceMemory(sizeof(none), "what checks find");
    device_fault_.upload(&none, sizeof(none));
  }
  for (Part& part : parts_) {
    driver_->check(driver_->module_function(&part.cuda_function, module_.get(), part.source->name.c_str()),
                   fmt::format("looking for the function {} in its machine code", part.source->name));
    const auto attribute = [&](int which) {
      int value = 0;
      driver_->check(driver_->function_attribute(&value, which, part.cuda_function), "asking what the kernel takes");
      return value;
    };
    int64_t threads = 1;
    for (const int64_t number : part.source->threads) threads *= number;
    // 0 of a driver that does not say.
    if (const int most = attribute(kMaxThreads); most > 0 && threads > most)
      throw CapacityError(fmt::format(
          "{} a block has {} threads of {} registers each, and this GPU holds {} such threads at most: split "
          "by less, or tag fewer inames l.N",
          prefix_, threads, attribute(kNumRegisters), most));
  }
}

int64_t LoadedLoops::scratch_bytes(const Scratch& scratch, const int64_t* sizes) const {
  int64_t bytes = scratch.element_bytes;
  for (const loop::QuasiAffine& size : scratch.shape)
    MEGALITH_CHECK(!__builtin_mul_overflow(bytes, std::max<int64_t>(size.eval(sizes), 0), &bytes),
                   "{} the temporary {} would be larger than memory", prefix_, scratch.name);
  return bytes;
}

void LoadedLoops::launch(std::span<const LoopTensor> tensors, std::span<const int64_t> sizes,
                         std::span<const float> attributes, jit::CudaStream stream) {
  const bool is_cuda = driver_ != nullptr;
  struct Entered {
    explicit Entered(const CudaContextHold* hold) : is_in(hold && hold->enter()) {}
    ~Entered() {
      if (is_in) CudaContextHold::leave();
    }
    bool is_in;
  } entered(is_cuda ? &context_ : nullptr);
  if (is_cuda && !entered.is_in)
    throw SystemError(fmt::format("[cuda] {} the GPU's context cannot be used any more", prefix_));
  std::unique_lock<std::mutex> lock;
  if (is_cuda && (!scratch_.empty() || has_checks_)) lock = std::unique_lock(mutex_);
  std::array<HostScratch, kMaxLoopTensors> host_scratch;
  std::array<void*, kMaxLoopTensors> scratch;
  for (size_t i = 0; i < scratch_.size(); ++i) {
    const int64_t bytes = std::max<int64_t>(scratch_bytes(scratch_[i], sizes.data()), 1);
    if (!is_cuda) {
      scratch[i] = host_scratch[i].make(bytes);
      continue;
    }
    DeviceMemory& memory = device_scratch_[{stream, i}];
    if (memory.bytes() < bytes) memory = DeviceMemory(bytes, fmt::format("the temporary {}", scratch_[i].name));
    scratch[i] = memory.data();
  }
  for (const Part& part : parts_) {
    std::array<void*, kMaxLoopTensors> addresses;
    std::array<int64_t, kMaxLoopSizes> own_sizes;
    std::array<float, kMaxLoopSizes> own_attributes;
    for (size_t i = 0; i < part.sizes.size(); ++i) own_sizes[i] = sizes[part.sizes[i]];
    for (size_t i = 0; i < part.attributes.size(); ++i) own_attributes[i] = attributes[part.attributes[i]];
    for (size_t i = 0; i < part.tensors.size(); ++i) {
      const int at = part.tensors[i];
      addresses[i] = at >= 0 ? tensors[static_cast<size_t>(at)].data : scratch[static_cast<size_t>(-1 - at)];
    }
    codegen::LoopFault fault;
    if (!part.source->checks.empty()) addresses[part.tensors.size()] = is_cuda ? device_fault_.data() : &fault;
    if (is_cuda) {
      launch_cuda(part, addresses.data(), own_sizes.data(), own_attributes.data(), stream);
      if (!part.source->checks.empty()) check_fault_cuda(part, stream);
      continue;
    }
    static_assert(sizeof(long long) == sizeof(int64_t));
    part.function(addresses.data(), reinterpret_cast<const long long*>(own_sizes.data()), own_attributes.data());
    part.source->check_fault(fault, prefix_);
  }
}

void LoadedLoops::check_fault_cuda(const Part& part, jit::CudaStream stream) {
  driver_->check(driver_->stream_synchronize(stream), fmt::format("waiting for the kernel {}", part.source->name));
  codegen::LoopFault fault;
  device_fault_.download(&fault, sizeof(fault));
  if (fault.found == 0) return;
  const codegen::LoopFault none;
  device_fault_.upload(&none, sizeof(none));
  part.source->check_fault(fault, prefix_);
}

void LoadedLoops::launch_cuda(const Part& part, void** tensors, const int64_t* sizes, const float* attributes,
                              jit::CudaStream stream) {
  std::array<int64_t, 3> blocks = {1, 1, 1};
  for (size_t axis = 0; axis < 3; ++axis) {
    for (const loop::PiecewiseAffine& last : part.source->last_block[axis]) {
      int64_t most = 0;
      if (last.eval(sizes, most)) blocks[axis] = std::max(blocks[axis], most + 1);
    }
    if (blocks[axis] > kMaxBlocks[axis])
      throw CapacityError(
          fmt::format("{} there would be {} blocks along g.{}, and a GPU takes {} at most: split by more, "
                      "or use g.0, which takes {}",
                      prefix_, blocks[axis], axis, kMaxBlocks[axis], kMaxBlocks[0]));
  }
  std::array<void*, kMaxArguments> parameters;
  size_t count = 0;
  const size_t num_addresses = part.tensors.size() + (part.source->checks.empty() ? 0 : 1);
  for (size_t i = 0; i < num_addresses; ++i) parameters[count++] = &tensors[i];
  for (size_t i = 0; i < part.sizes.size(); ++i) parameters[count++] = const_cast<int64_t*>(&sizes[i]);
  for (size_t i = 0; i < part.attributes.size(); ++i) parameters[count++] = const_cast<float*>(&attributes[i]);
  const std::array<int64_t, 3>& threads = part.source->threads;
  const jit::CudaLaunchConfig config{static_cast<unsigned>(blocks[0]),
                                     static_cast<unsigned>(blocks[1]),
                                     static_cast<unsigned>(blocks[2]),
                                     static_cast<unsigned>(threads[0]),
                                     static_cast<unsigned>(threads[1]),
                                     static_cast<unsigned>(threads[2]),
                                     0,
                                     stream,
                                     nullptr,
                                     0};
  if (const jit::CudaCode code = driver_->launch(&config, part.cuda_function, parameters.data(), nullptr))
    driver_->check(code, fmt::format("launching the kernel {}", part.source->name));
}

}  // namespace megalith::runtime
