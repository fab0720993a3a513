#include "megalith/loop/transform/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "megalith/base/capacity_error.h"
#include "megalith/base/error.h"
#include "megalith/base/hash.h"
#include "megalith/loop/check.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/parallel.h"
#include "megalith/loop/recall.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/storage.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/steps.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

void check_scheduled(const Kernel& with_rules) {
  Kernel kernel = without_rules(with_rules);
  // What writes a kernel's code asks again what was asked after its last step.
  thread_local Recall<bool> checked(8);
  std::string question = print(kernel);
  if (checked.find(question)) return;
  check_names(kernel);
  kernel = realise_dealt_out(kernel);
  check_bounds(kernel);
  check_written_first(kernel, Domains(kernel));
  check_storage(kernel, Domains(kernel));
  for (const Kernel& stage : split_stages(kernel)) make_parallel(stage);
  checked.keep(std::move(question), true);
}

Schedule::Schedule(Kernel origin, Kernels others, Check check)
    : origin_(std::move(origin)), kernel_(origin_), others_(std::move(others)), check_(std::move(check)) {}

Schedule Schedule::parse(Kernel origin, const std::string& text, Kernels others, Check check) {
  Schedule schedule(std::move(origin), std::move(others), std::move(check));
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    try {
      schedule = schedule.then(line);
    } catch (const UserError& error) { throw UserError(fmt::format("line {}: {}", number, error.what())); }
  }
  return schedule;
}

Schedule Schedule::then(const std::string& line) const {
  const std::vector<std::string> words = step_words(line);
  if (words.empty()) return *this;
  Schedule next = *this;
  try {
    with_isl_limit(kernel_.name, [&] {
      next.kernel_ = run_step(kernel_, line, others_);
      check_(next.kernel_);
    });
  } catch (const CapacityError& error) {
    throw CapacityError(fmt::format("{} (\"{}\")", error.what(), line));
  } catch (const UserError& error) { throw UserError(fmt::format("{} (\"{}\")", error.what(), line)); }
  next.steps_.push_back(fmt::format("{}", fmt::join(words, " ")));
  return next;
}

std::string Schedule::text() const {
  std::string text;
  for (const std::string& step : steps_) text += step + "\n";
  return text;
}

std::string Schedule::hash() const {
  std::string all = print(origin_);
  for (const auto& [name, kernel] : others_) all += fmt::format("\n{}\n{}", name, print(kernel));
  return hash_hex(all + "\n" + text());
}

}  // namespace megalith::loop
