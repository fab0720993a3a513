#include "megalith/runtime/loop_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/loop/interpret.h"

namespace megalith::runtime {

namespace {

constexpr uint8_t kAligned = 0x80, kDtype = 0x0f, kInferred = 0x0f;
constexpr uint8_t kIsOne = 1, kIsMultiple = 2;

template <class Names, class Projection>
bool has_name(const Names& names, const std::string& name, Projection projection) {
  return std::ranges::find(names, name, projection) != names.end();
}

std::string architecture_of(int ordinal) {
  static const std::vector<jit::CudaDeviceInfo> devices = jit::cuda_devices();
  MEGALITH_CHECK(ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size(), "there is no GPU {}: there are {}",
                 ordinal, devices.size());
  return devices[static_cast<size_t>(ordinal)].architecture;
}

}  // namespace

LoopKernel::LoopKernel(const std::string& text, LoopSpecializing specializing)
    : LoopKernel(jit::OpenSchedule(text), std::move(specializing)) {}

LoopKernel::LoopKernel(jit::OpenSchedule schedule, LoopSpecializing specializing)
    : schedule_(std::move(schedule)),
      specializing_(std::move(specializing)),
      signature_(std::make_shared<LoopSignature>(schedule_)),
      compiled_(std::make_shared<Compiled>()) {
  for (const LoopSignature::Tensor& tensor : signature_->tensors()) {
    const bool looks = specializing_.alignment && !specializing_.never.contains(tensor.name);
    tensor_masks_.push_back(static_cast<uint8_t>(kDtype | (looks ? kAligned : 0)));
  }
  for (const std::string& size : signature_->sizes()) {
    const bool looks = !specializing_.never.contains(size);
    size_masks_.push_back(static_cast<uint8_t>((looks && specializing_.ones ? kIsOne : 0) |
                                               (looks && specializing_.divisibility ? kIsMultiple : 0)));
  }
  for (const std::string& name : specializing_.never)
    MEGALITH_CHECK(has_name(signature_->tensors(), name, &LoopSignature::Tensor::name) ||
                       has_name(signature_->sizes(), name, std::identity()) ||
                       has_name(schedule_.schedule().origin().parameters, name, &loop::Parameter::name) ||
                       schedule_.schedule().origin().find_tensor(name),
                   "{} there is no tensor and no size \"{}\" that would not be specialized", signature_->prefix(),
                   name);
}

LoopCall LoopKernel::call() const {
  LoopCall call;
  call.sizes.fill(LoopSignature::kUnknown);
  for (size_t i = 0; i < signature_->tensors().size(); ++i) call.tensors[i].dtype = signature_->tensors()[i].dtype;
  for (size_t i = 0; i < signature_->attributes().size(); ++i)
    call.attributes[i] = static_cast<float>(signature_->attributes()[i].value);
  return call;
}

void LoopKernel::find_sizes(LoopCall& call) const {
  signature_->find_sizes({call.tensors.data(), signature_->tensors().size()},
                         {call.sizes.data(), signature_->sizes().size()});
}

LoopKernel::Key LoopKernel::key_of(const LoopCall& call) const {
  Key key{};
  const LoopTensor& first = call.tensors[0];
  key[0] = first.on_gpu ? 1 : 0;
  key[1] = first.on_gpu ? static_cast<uint8_t>(first.ordinal) : 0;
  size_t at = 4;
  for (size_t i = 0; i < tensor_masks_.size(); ++i) {
    const LoopTensor& tensor = call.tensors[i];
    const bool is_aligned = reinterpret_cast<uintptr_t>(tensor.data) % jit::kLoopAlignment == 0;  // NOLINT: an address
    const uint8_t dtype =
        tensor.is_there || !signature_->tensors()[i].is_open ? static_cast<uint8_t>(tensor.dtype) : kInferred;
    key[at++] = static_cast<uint8_t>((dtype | (is_aligned ? kAligned : 0)) & tensor_masks_[i]);
  }
  for (size_t i = 0; i < size_masks_.size(); ++i) {
    const int64_t size = call.sizes[i];
    const int known = (size == 1 ? kIsOne : 0) | (size % jit::kLoopMultiple == 0 ? kIsMultiple : 0);
    key[at++] = static_cast<uint8_t>(known & size_masks_[i]);
  }
  return key;
}

LoopKernel::Entry* LoopKernel::find(const Key& key, const std::string& target) const {
  const std::scoped_lock lock(compiled_->looking);
  const auto is_it = [&](const Entry& entry) {
    return std::memcmp(entry.key.data(), key.data(), key_bytes()) == 0 && entry.target == target;
  };
  if (compiled_->last && is_it(*compiled_->last)) return compiled_->last;
  for (const std::unique_ptr<Entry>& entry : compiled_->entries)
    if (is_it(*entry)) return compiled_->last = entry.get();
  return nullptr;
}

LoadedLoops* LoopKernel::find(const LoopCall& call) const {
  const Entry* entry = find(key_of(call), "");
  return entry ? entry->loaded.get() : nullptr;
}

LoopKernel::Entry& LoopKernel::keep(std::unique_ptr<Entry> entry) const {
  const std::scoped_lock lock(compiled_->looking);
  compiled_->newest = entry->program;
  compiled_->entries.push_back(std::move(entry));
  return *compiled_->entries.back();
}

std::map<std::string, DType> LoopKernel::dtypes(const LoopCall& call) const {
  std::map<std::string, DType> result;
  for (size_t i = 0; i < signature_->tensors().size(); ++i)
    if (call.tensors[i].is_there) result[signature_->tensors()[i].name] = call.tensors[i].dtype;
  return result;
}

DType LoopKernel::output_dtype(const LoopCall& call, size_t tensor) const {
  const LoopSignature::Tensor& output = signature_->tensors()[tensor];
  if (!output.is_open) return output.dtype;
  if (const LoadedLoops* loaded = find(call)) return *loaded->program()->kernel.find_tensor(output.name)->dtype;
  return *schedule_.typed(dtypes(call)).kernel().find_tensor(output.name)->dtype;
}

std::shared_ptr<const jit::LoopProgram> LoopKernel::compile(const LoopCall& call, const std::string& target) const {
  const Key key = key_of(call);
  jit::LoopSpecialization known;
  size_t at = 4;
  for (size_t i = 0; i < signature_->tensors().size(); ++i, ++at)
    if (key[at] & kAligned) known.aligned.insert(signature_->tensors()[i].name);
  for (size_t i = 0; i < signature_->sizes().size(); ++i, ++at) {
    if (key[at] & kIsOne) known.constants[signature_->sizes()[i]] = 1;
    if (key[at] & kIsMultiple) known.multiples.insert(signature_->sizes()[i]);
  }
  return std::make_shared<jit::LoopProgram>(
      jit::compile_loop_program(schedule_.typed(dtypes(call)).kernel(), known, target));
}

LoadedLoops& LoopKernel::make(const LoopCall& call, std::shared_ptr<const jit::LoopProgram>* made) const {
  const Key key = key_of(call);
  if (const Entry* entry = find(key, "")) return *entry->loaded;
  const std::scoped_lock lock(compiled_->compiling);
  if (const Entry* entry = find(key, "")) return *entry->loaded;  // by the thread that this one waited for
  auto entry = std::make_unique<Entry>();
  entry->key = key;
  // An output that will be made has the same code as one that is given with the dtype that it will have.
  LoopCall known = call;
  for (size_t i = signature_->num_inputs(); i < signature_->tensors().size(); ++i)
    if (!call.tensors[i].is_there) known.tensors[i].dtype = output_dtype(call, i), known.tensors[i].is_there = true;
  if (const Entry* same = find(key_of(known), "")) {
    entry->program = same->program;
    entry->loaded = same->loaded;
    return *keep(std::move(entry)).loaded;
  }
  const LoopTensor& first = call.tensors[0];
  const std::string target = first.on_gpu ? "cuda:" + architecture_of(first.ordinal) : "cpu";
  entry->program = compile(known, target);
  entry->loaded = std::make_shared<LoadedLoops>(entry->program, *signature_, first.ordinal);
  if (made) *made = entry->program;
  if (key_of(known) != key) {
    auto given = std::make_unique<Entry>(*entry);
    given->key = key_of(known);
    keep(std::move(given));
  }
  return *keep(std::move(entry)).loaded;
}

std::shared_ptr<const jit::LoopProgram> LoopKernel::make_for(const LoopCall& call, const std::string& target,
                                                             std::shared_ptr<const jit::LoopProgram>* made) const {
  const std::string full = jit::target_with_architecture(target);
  const Key key = key_of(call);
  if (const Entry* entry = find(key, full)) return entry->program;
  const std::scoped_lock lock(compiled_->compiling);
  if (const Entry* entry = find(key, full)) return entry->program;
  auto entry = std::make_unique<Entry>();
  entry->key = key;
  entry->target = full;
  entry->program = compile(call, full);
  if (made) *made = entry->program;
  return keep(std::move(entry)).program;
}

void LoopKernel::run(LoopCall& call) const {
  find_sizes(call);
  const size_t num_tensors = signature_->tensors().size();
  signature_->check_memory({call.tensors.data(), num_tensors});
  make(call).launch({call.tensors.data(), num_tensors}, {call.sizes.data(), signature_->sizes().size()},
                    {call.attributes.data(), signature_->attributes().size()}, call.stream);
}

void LoopKernel::interpret(LoopCall& call) const {
  const std::vector<LoopSignature::Tensor>& tensors = signature_->tensors();
  loop::Binding binding;
  for (size_t i = 0; i < signature_->sizes().size(); ++i) binding.sizes[signature_->sizes()[i]] = call.sizes[i];
  for (size_t i = 0; i < signature_->attributes().size(); ++i)
    binding.attributes[signature_->attributes()[i].name] = call.attributes[i];
  loop::Arrays arrays;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const LoopTensor& tensor = call.tensors[i];
    MEGALITH_CHECK(!tensor.on_gpu, "{} {} lies on a GPU, and the interpreter runs on the host (MEGALITH_INTERPRET)",
                   signature_->prefix(), tensors[i].name);
    if (tensors[i].role == loop::Role::output) continue;
    loop::Array& array = arrays[tensors[i].name] =
        loop::Array::zeros({tensor.shape.begin(), tensor.shape.begin() + tensor.num_dims});
    for (size_t at = 0; at < array.values.size(); ++at)
      array.values[at] = element_load(tensor.data, tensor.dtype, static_cast<int64_t>(at));
  }
  loop::interpret(schedule_.typed(dtypes(call)).kernel(), binding, arrays);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].role == loop::Role::input) continue;
    const loop::Array& array = arrays.at(tensors[i].name);
    for (size_t at = 0; at < array.values.size(); ++at)
      element_store(call.tensors[i].data, call.tensors[i].dtype, static_cast<int64_t>(at), array.values[at]);
  }
}

std::shared_ptr<const jit::LoopProgram> LoopKernel::newest() const {
  const std::scoped_lock lock(compiled_->looking);
  return compiled_->newest;
}

size_t LoopKernel::num_compiled() const {
  const std::scoped_lock lock(compiled_->looking);
  std::set<const jit::LoopProgram*> programs;
  for (const std::unique_ptr<Entry>& entry : compiled_->entries) programs.insert(entry->program.get());
  return programs.size();
}

}  // namespace megalith::runtime
