#include "megalith/runtime/loop_signature.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"

namespace megalith::runtime {

namespace {

using loop::QuasiAffine;
using loop::Role;

std::string shape_text(const LoopTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.num_dims, ", "));
}

int64_t bytes_of(const LoopTensor& tensor) {
  int64_t bytes = dtype_bytes(tensor.dtype);
  for (int d = 0; d < tensor.num_dims; ++d) bytes *= tensor.shape[static_cast<size_t>(d)];
  return bytes;
}

}  // namespace

LoopSignature::LoopSignature(const jit::OpenSchedule& schedule)
    : attributes_(schedule.kernel().attributes),
      prefix_(loop::message_prefix(schedule.kernel().name)),
      assumptions_(schedule.kernel().assumptions) {
  const loop::Kernel& kernel = schedule.kernel();
  for (const loop::Parameter& parameter : kernel.parameters) sizes_.push_back(parameter.name);
  const isl::set context = loop::Domains(kernel).context();
  assumed_ = loop::affine_set(context, sizes_);
  for (const bool outputs : {false, true}) {
    for (const loop::TensorArgument& tensor : kernel.tensors) {
      if (tensor.role == Role::temporary || (tensor.role == Role::output) != outputs) continue;
      Tensor& next =
          tensors_.emplace_back(Tensor{tensor.name, tensor.role, *tensor.dtype, schedule.is_open(tensor.name), {}, {}});
      std::vector<std::string> texts;
      for (const loop::Expr& size : tensor.shape) {
        const auto aff = loop::to_isl_aff(context.space(), size);
        MEGALITH_CHECK(aff, "{} the size {} of {} is not affine in the parameters: bind some of them (fix)", prefix_,
                       loop::print(size), tensor.name);
        next.shape.push_back(loop::quasi_affine(*aff, sizes_));
        texts.push_back(loop::print(size));
      }
      next.shape_text = fmt::format("[{}]", fmt::join(texts, ", "));
      MEGALITH_CHECK(next.shape.size() <= kMaxLoopDims, "{} {} has {} dimensions, at most {} are taken", prefix_,
                     tensor.name, next.shape.size(), kMaxLoopDims);
    }
    if (!outputs) num_inputs_ = tensors_.size();
  }
  MEGALITH_CHECK(
      tensors_.size() <= kMaxLoopTensors && sizes_.size() <= kMaxLoopSizes && attributes_.size() <= kMaxLoopSizes,
      "{} it has {} tensors, {} parameters and {} attributes, at most {} of each are taken", prefix_, tensors_.size(),
      sizes_.size(), attributes_.size(), kMaxLoopTensors);
  for (size_t i = 0; i < tensors_.size(); ++i) add_rules(i);
  std::ranges::stable_partition(rules_, [](const Rule& rule) { return rule.is_plain; });
}

void LoopSignature::add_rules(size_t tensor) {
  for (size_t d = 0; d < tensors_[tensor].shape.size(); ++d) {
    const QuasiAffine& form = tensors_[tensor].shape[d];
    for (size_t t = 0; t < form.terms.size(); ++t) {
      if (form.terms[t].variable < 0) continue;
      QuasiAffine rest = form;
      rest.terms.erase(rest.terms.begin() + static_cast<ptrdiff_t>(t));
      // Nothing else may depend on it: n + n // 2 does not tell n.
      std::vector<int64_t> none(sizes_.size(), 0), known(sizes_.size(), 0);
      known[static_cast<size_t>(form.terms[t].variable)] = kUnknown;
      if (!is_known(rest, known)) continue;
      const bool is_plain = form.terms[t].coefficient == 1 && rest.terms.empty() && rest.constant == 0;
      rules_.push_back({tensor, d, static_cast<size_t>(form.terms[t].variable), form.terms[t].coefficient,
                        std::move(rest), is_plain});
    }
  }
}

bool LoopSignature::is_known(const QuasiAffine& form, std::span<const int64_t> sizes) const {
  return std::ranges::all_of(form.terms, [&](const QuasiAffine::Term& term) {
    return term.variable >= 0 ? sizes[static_cast<size_t>(term.variable)] != kUnknown
                              : is_known(*term.numerator, sizes);
  });
}

bool LoopSignature::follow(const Rule& rule, std::span<const LoopTensor> tensors, std::span<int64_t> sizes) const {
  const LoopTensor& tensor = tensors[rule.tensor];
  if (sizes[rule.size] != kUnknown || !tensor.is_there || !is_known(rule.rest, sizes)) return false;
  const int64_t left = tensor.shape[rule.dimension] - rule.rest.eval(sizes.data());
  if (left % rule.coefficient != 0 || left / rule.coefficient < 0) return false;  // fail_shape() says what is wrong
  sizes[rule.size] = left / rule.coefficient;
  return true;
}

void LoopSignature::check_tensor(size_t index, const LoopTensor& tensor) const {
  const Tensor& want = tensors_[index];
  MEGALITH_CHECK(static_cast<size_t>(tensor.num_dims) == want.shape.size(), "{} {} has {} dimensions, {}, want {}: {}",
                 prefix_, want.name, tensor.num_dims, shape_text(tensor), want.shape.size(), want.shape_text);
  MEGALITH_CHECK(want.is_open || tensor.dtype == want.dtype,
                 "{} {} has the dtype {}, want {}: convert it, or leave the dtype out of the kernel's text", prefix_,
                 want.name, dtype_name(tensor.dtype), dtype_name(want.dtype));
  MEGALITH_CHECK(tensor.row_major,
                 "{} {} of shape {} is not row-major: pass .contiguous() (torch) or numpy.ascontiguousarray() of it",
                 prefix_, want.name, shape_text(tensor));
}

void LoopSignature::find_sizes(std::span<const LoopTensor> tensors, std::span<int64_t> sizes) const {
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors[i].is_there) check_tensor(i, tensors[i]);
  bool is_all_plain = true;
  for (const Rule& rule : rules_) {
    follow(rule, tensors, sizes);
    is_all_plain &= rule.is_plain;
  }
  for (bool more = !is_all_plain; more;) {
    more = false;
    for (const Rule& rule : rules_) more |= follow(rule, tensors, sizes);
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors[i].is_there) continue;
    for (size_t d = 0; d < tensors_[i].shape.size(); ++d)
      if (is_known(tensors_[i].shape[d], sizes) && tensors_[i].shape[d].eval(sizes.data()) != tensors[i].shape[d])
        fail_shape(i, tensors, sizes);
  }
  for (size_t i = 0; i < sizes_.size(); ++i)
    MEGALITH_CHECK(sizes[i] != kUnknown, "{} no shape tells the size {}: pass {}=...", prefix_, sizes_[i], sizes_[i]);
  if (!assumed_.contains(sizes.data())) {
    std::vector<std::string> values;
    for (size_t i = 0; i < sizes_.size(); ++i) values.push_back(fmt::format("{} = {}", sizes_[i], sizes[i]));
    throw UserError(fmt::format("{} with {} the kernel does not hold: it assumes {}", prefix_, fmt::join(values, ", "),
                                assumptions_));
  }
}

void LoopSignature::fail_shape(size_t index, std::span<const LoopTensor> tensors,
                               std::span<const int64_t> sizes) const {
  std::vector<std::string> want, why;
  const Tensor& tensor = tensors_[index];
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    want.push_back(is_known(tensor.shape[d], sizes) ? fmt::to_string(tensor.shape[d].eval(sizes.data())) : "any");
  for (size_t s = 0; s < sizes_.size(); ++s) {
    const auto rule = std::ranges::find_if(rules_, [&](const Rule& one) {
      return one.size == s && one.tensor != index && tensors[one.tensor].is_there && is_known(one.rest, sizes);
    });
    if (rule != rules_.end() && sizes[s] != kUnknown)
      why.push_back(fmt::format("{} = {} ({} has the shape {})", sizes_[s], sizes[s], tensors_[rule->tensor].name,
                                shape_text(tensors[rule->tensor])));
    else if (sizes[s] != kUnknown)
      why.push_back(fmt::format("{} = {}", sizes_[s], sizes[s]));
  }
  throw UserError(fmt::format("{} {} has the shape {}, want {} = [{}]{}{}", prefix_, tensor.name,
                              shape_text(tensors[index]), tensor.shape_text, fmt::join(want, ", "),
                              why.empty() ? "" : ", as ", fmt::join(why, ", ")));
}

int64_t LoopSignature::shape_of(size_t tensor, std::span<const int64_t> sizes,
                                std::array<int64_t, kMaxLoopDims>& shape) const {
  int64_t count = 1;
  for (size_t d = 0; d < tensors_[tensor].shape.size(); ++d) {
    shape[d] = std::max<int64_t>(0, tensors_[tensor].shape[d].eval(sizes.data()));
    MEGALITH_CHECK(!__builtin_mul_overflow(count, shape[d], &count), "{} {} would have more elements than memory holds",
                   prefix_, tensors_[tensor].name);
  }
  return count;
}

void LoopSignature::check_memory(std::span<const LoopTensor> tensors) const {
  const auto place = [](const LoopTensor& tensor) {
    return tensor.on_gpu ? fmt::format("on GPU {}", tensor.ordinal) : std::string("in the host's memory");
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const LoopTensor& tensor = tensors[i];
    MEGALITH_CHECK(tensor.on_gpu == tensors[0].on_gpu && (!tensor.on_gpu || tensor.ordinal == tensors[0].ordinal),
                   "{} {} lies {}, and {} {}: they must lie together", prefix_, tensors_[i].name, place(tensor),
                   tensors_[0].name, place(tensors[0]));
    MEGALITH_CHECK(tensor.data || bytes_of(tensor) == 0, "{} {} has no memory: its storage was freed", prefix_,
                   tensors_[i].name);
    if (tensors_[i].role == Role::input) continue;
    MEGALITH_CHECK(tensor.writable, "{} {} is written, and may only be read", prefix_, tensors_[i].name);
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data);  // NOLINT: addresses are compared
    for (size_t j = 0; j < tensors_.size(); ++j) {
      const auto other = reinterpret_cast<uintptr_t>(tensors[j].data);  // NOLINT: likewise
      MEGALITH_CHECK(j == i || begin + static_cast<uintptr_t>(bytes_of(tensor)) <= other ||
                         other + static_cast<uintptr_t>(bytes_of(tensors[j])) <= begin,
                     "{} {} is written, and shares memory with {}: pass tensors that lie apart, or declare an inout",
                     prefix_, tensors_[i].name, tensors_[j].name);
    }
  }
}

}  // namespace megalith::runtime
