#include "megalith/jit/open_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <sstream>

#include "megalith/base/capacity_error.h"
#include "megalith/base/error.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/steps.h"

namespace megalith::jit {

namespace {

using loop::Kernel;
using loop::Role;

/// Steps after which an argument is another one for who calls the kernel.
const std::set<std::string> kArgumentSteps = {"axes",          "permute_axes", "rename",
                                              "separate_axis", "split_axis",   "vector_axis"};

// A line for each domain: what stands behind its last brace goes to the next line.
std::string with_lines(const std::string& text) {
  std::string result;
  bool is_domain = false, is_start = true, is_comment = false;
  int depth = 0;
  for (const char c : text) {
    if (c == '\n') is_comment = false;
    is_comment |= c == '#';
    result += c;
    if (is_comment) continue;
    if (is_start && c == '{') is_domain = true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    // "[n] -> { ... }" begins a domain, too, and no instruction begins with a bracket.
    if (is_start && c == '[') is_domain = true;
    if (depth == 0 && c == '}' && is_domain)
      result += '\n', is_domain = false, is_start = true;
    else if (c == '\n' && depth == 0)
      is_start = true, is_domain = false;
    else if (c != ' ' && c != '\t' && c != '\r')
      is_start = false;
  }
  return result;
}

Kernel with_types(Kernel kernel, const std::map<std::string, DType>& dtypes) {
  for (loop::TensorArgument& tensor : kernel.tensors) {
    if (tensor.dtype) continue;
    const auto given = dtypes.find(tensor.name);
    if (given != dtypes.end())
      tensor.dtype = given->second;
    else if (tensor.role == Role::input || tensor.role == Role::inout)
      tensor.dtype = DType::f32;
  }
  loop::with_isl_limit(kernel.name, [&] {
    loop::infer_types(kernel);
    loop::infer_shapes(kernel);
  });
  return kernel;
}

Kernel read(const std::string& text) {
  MEGALITH_CHECK(text.size() <= loop::kMaxTextBytes, "[loop] the kernel's text has {} bytes, want at most {}",
                 text.size(), loop::kMaxTextBytes);
  return loop::parse_kernel(with_lines(text));
}

}  // namespace

OpenSchedule::OpenSchedule(const std::string& text) : text_(read(text)), schedule_(with_types(text_, {})) {
  loop::with_isl_limit(text_.name, [&] { loop::check_scheduled(schedule_.kernel()); });
}

OpenSchedule OpenSchedule::then(const std::string& line) const {
  OpenSchedule next = *this;
  next.schedule_ = schedule_.then(line);
  if (next.schedule_.steps().size() == schedule_.steps().size()) return next;
  std::istringstream words(next.schedule_.steps().back());
  std::string word, from;
  words >> word >> from;
  const auto before = first_names_.find(from);
  const std::string first = before == first_names_.end() ? from : before->second;
  if (kernel().find_tensor(from) && !next.kernel().find_tensor(from)) {
    // It has another name, or its parts have.
    for (const loop::TensorArgument& tensor : next.kernel().tensors)
      if (!kernel().find_tensor(tensor.name)) next.first_names_[tensor.name] = first;
    next.first_names_.erase(from);
  }
  return next;
}

OpenSchedule OpenSchedule::with(const std::string& name, const Kernel& kernel) const {
  OpenSchedule next = *this;
  next.others_[name] = kernel;
  next.schedule_ = loop::Schedule::parse(schedule_.origin(), schedule_.text(), next.others_);
  return next;
}

OpenSchedule OpenSchedule::plain() const {
  OpenSchedule result = *this;
  result.schedule_ = loop::Schedule(schedule_.origin(), others_);
  result.first_names_.clear();
  const OpenSchedule without_steps = result;
  const std::map<std::string, std::string> aliases = loop::step_aliases();
  for (size_t i = 0; i < schedule_.steps().size(); ++i) {
    const std::string& step = schedule_.steps()[i];
    std::istringstream words(step);
    std::string word, what;
    words >> word >> what;
    if (const auto alias = aliases.find(word); alias != aliases.end()) word = alias->second;
    const bool is_of_arguments = word == "batch" || word == "fix" || word == "fuse";
    const loop::TensorArgument* tensor = result.kernel().find_tensor(what);
    const bool is_of_argument = tensor && tensor->role != Role::temporary && kArgumentSteps.contains(word);
    if (!is_of_arguments && !is_of_argument) continue;
    try {
      result = result.then(step);
    } catch (const UserError&) {  // it rests on steps before it: subscripts have one value each behind a `peel`
      result = without_steps;
      for (size_t before = 0; before <= i; ++before) result = result.then(schedule_.steps()[before]);
    }
  }
  return result;
}

bool OpenSchedule::is_open(const std::string& tensor) const {
  const auto first = first_names_.find(tensor);
  const loop::TensorArgument* found = text_.find_tensor(first == first_names_.end() ? tensor : first->second);
  return found && found->role != Role::temporary && !found->dtype;
}

loop::Schedule OpenSchedule::typed(const std::map<std::string, DType>& dtypes) const {
  std::map<std::string, DType> by_first_name;
  bool is_same = true;
  for (const auto& [name, dtype] : dtypes) {
    if (!is_open(name)) continue;
    const auto first = first_names_.find(name);
    by_first_name[first == first_names_.end() ? name : first->second] = dtype;
    is_same &= kernel().find_tensor(name)->dtype == dtype;
  }
  if (is_same) return schedule_;
  try {
    return loop::Schedule::parse(with_types(text_, by_first_name), schedule_.text(), others_);
  } catch (const CapacityError&) { throw; } catch (const UserError& error) {
    std::vector<std::string> types;
    for (const auto& [name, dtype] : by_first_name) types.push_back(fmt::format("{} {}", dtype_name(dtype), name));
    throw UserError(fmt::format("{} (its schedule, made anew for {})", error.what(), fmt::join(types, ", ")));
  }
}

}  // namespace megalith::jit
