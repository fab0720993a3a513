#include "megalith/jit/measured_schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/hash.h"
#include "megalith/base/log.h"
#include "megalith/codegen/bodies_text.h"
#include "megalith/jit/compiler.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/loop/text.h"

namespace megalith::jit {

namespace {

constexpr size_t kMaxBytes = 60'000;  // of the list; KernelCache reads 64 KiB of a note

std::string note_of(const std::string& family) { return "tuned-" + family; }

// What measurements depend on. "" where there is no such machine.
std::string machine_of(const std::string& target) {
  if (!is_cuda_target(target)) return cpu_features();
  try {
    const CudaDeviceInfo device = cuda_device();
    return target == "cuda" || target == "cuda:" + device.architecture ? device.name : "";
  } catch (const SystemError&) { return ""; }
}

std::string text_of(const graph::LoweredKernel& kernel) {
  std::string text = loop::print(kernel.kernel);
  for (const auto& [size, value] : kernel.binding.sizes) text += fmt::format("{} = {}\n", size, value);
  for (const auto& [name, value] : kernel.binding.attributes) text += fmt::format("{} = {}\n", name, value);
  return text;
}

}  // namespace

bool have_same_body(const graph::LoweredKernel& a, const graph::LoweredKernel& b) { return text_of(a) == text_of(b); }

MeasuredSchedules::MeasuredSchedules(const KernelCache& cache, const std::string& target)
    : cache_(cache), target_(target), family_(target_family(target)), entries_(read()) {
  if (!entries_.empty()) machine_ = machine_of(target);  // no driver is asked where nothing was tuned
}

std::vector<MeasuredSchedules::Entry> MeasuredSchedules::read() const {
  const std::string text = cache_.note(note_of(family_));
  std::vector<Entry> entries;
  if (text.empty()) return entries;
  try {
    for (const auto& entry : nlohmann::json::parse(text))
      entries.push_back({entry.at("machine"), entry.at("body"), entry.at("name"), entry.at("steps")});
  } catch (const nlohmann::json::exception&) {
    log_warn("{}/compilers/{} is not what was written: what was tuned is not used", cache_.directory(),
             note_of(family_));
    return {};
  }
  return entries;
}

std::string MeasuredSchedules::key(const graph::LoweredKernel& kernel) const { return hash_hex(text_of(kernel)); }

std::string MeasuredSchedules::identity() const {
  std::string text;
  for (const Entry& entry : entries_)
    if (entry.machine == machine_) text += entry.body + "\n" + entry.steps + "\n";
  return text.empty() ? "" : hash_hex(text);
}

std::vector<graph::LoweredKernel> MeasuredSchedules::take(std::vector<graph::LoweredKernel> kernels) const {
  if (entries_.empty()) return kernels;
  for (graph::LoweredKernel& kernel : kernels) {
    if (kernel.body || kernel.kernel.opaque || kernel.steps) continue;
    const std::string body = key(kernel);
    const auto found = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.machine == machine_ && entry.body == body; });
    if (found == entries_.end()) continue;
    graph::LoweredKernel scheduled = kernel;
    scheduled.steps = found->steps;
    try {
      codegen::check_schedules(family_, {scheduled});
      kernel = std::move(scheduled);
    } catch (const UserError& error) {
      log_warn("the tuned schedule of {} is left out: {}", kernel.name, error.what());
    }
  }
  return kernels;
}

void MeasuredSchedules::keep(const graph::LoweredKernel& kernel, const std::string& steps, const std::string& why) {
  replace(kernel, {{"", key(kernel), kernel.name, fmt::format("# {}\n{}", why, steps)}});
}
bool MeasuredSchedules::forget(const graph::LoweredKernel& kernel) { return replace(kernel, {}); }

bool MeasuredSchedules::replace(const graph::LoweredKernel& kernel, std::vector<Entry> by) {
  machine_ = machine_of(target_);
  MEGALITH_CHECK(!machine_.empty(), "what is measured here says nothing of {}: use the target of this machine",
                 target_);
  entries_ = read();  // what others kept meanwhile
  const std::string body = key(kernel);
  const bool was_there =
      std::erase_if(entries_, [&](const Entry& entry) { return entry.machine == machine_ && entry.body == body; }) > 0;
  for (Entry& entry : by) {
    entry.machine = machine_;
    entries_.push_back(std::move(entry));
  }
  const auto text = [&] {
    nlohmann::json list = nlohmann::json::array();
    for (const Entry& entry : entries_)
      list.push_back({{"machine", entry.machine}, {"body", entry.body}, {"name", entry.name}, {"steps", entry.steps}});
    return list.dump(1);
  };
  while (!entries_.empty() && text().size() > kMaxBytes) entries_.erase(entries_.begin());
  cache_.note_set(note_of(family_), text());
  return was_there;
}

}  // namespace megalith::jit
