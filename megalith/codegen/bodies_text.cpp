#include "megalith/codegen/bodies_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"
#include "megalith/codegen/body_schedule.h"
#include "megalith/codegen/dialect.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/text.h"

namespace megalith::codegen {

namespace {

bool is_generated(const graph::LoweredKernel& kernel) { return !kernel.body && !kernel.kernel.opaque; }

struct Section {
  int line = 0;       // of its heading
  std::string steps;  // behind as many empty lines as stand before it, so that messages count those of the file
};

std::map<std::string, Section> read_sections(const std::string& text) {
  std::map<std::string, Section> sections;
  Section* open = nullptr;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first, name, more;
    if (!(words >> first)) continue;
    if (first == "body") {
      MEGALITH_CHECK(words >> name && !(words >> more), "line {}: want \"body NAME\"", number);
      const auto [section, is_new] = sections.try_emplace(name);
      MEGALITH_CHECK(is_new, "line {}: the body \"{}\" stands there twice, first in line {}", number, name,
                     section->second.line);
      open = &section->second;
      open->line = number;
      open->steps.assign(static_cast<size_t>(number), '\n');
      continue;
    }
    MEGALITH_CHECK(open, "line {}: \"{}\" stands before the first body: want \"body NAME\"", number, plain_text(first));
    open->steps.resize(open->steps.size() + static_cast<size_t>(number - 1) -
                           static_cast<size_t>(std::ranges::count(open->steps, '\n')),
                       '\n');
    open->steps += line + "\n";
  }
  return sections;
}

}  // namespace

std::vector<graph::LoweredKernel> with_schedules(const std::string& target, std::vector<graph::LoweredKernel> kernels) {
  const Dialect dialect = dialect_of(target);
  for (graph::LoweredKernel& kernel : kernels)
    if (is_generated(kernel) && !kernel.steps)
      loop::with_isl_limit(kernel.name, [&] {
        kernel.steps = default_schedule(kernel, loop::bind(kernel.kernel, kernel.binding), dialect);
      });
  return kernels;
}

std::string print_schedules(const std::vector<graph::LoweredKernel>& kernels, const std::string& title) {
  std::string text = fmt::format("# {}: the schedules of generated bodies\n", plain_text(title));
  for (const graph::LoweredKernel& kernel : kernels) {
    if (!kernel.steps) continue;
    text += fmt::format("\nbody {}\n", kernel.name);
    for (const std::string& domain : kernel.kernel.domains) text += fmt::format("# {}\n", domain);
    for (const loop::Instruction& instruction : kernel.kernel.instructions)
      text += fmt::format("# {}: {} = {}\n", instruction.id, loop::print(instruction.target),
                          loop::print(instruction.value));
    text += *kernel.steps;
  }
  return text;
}

std::vector<graph::LoweredKernel> parse_schedules(const std::string& target, std::vector<graph::LoweredKernel> kernels,
                                                  const std::string& text) {
  for (const auto& [name, section] : read_sections(text)) {
    const auto kernel = std::ranges::find(kernels, name, &graph::LoweredKernel::name);
    MEGALITH_CHECK(kernel != kernels.end(), "line {}: there is no body \"{}\"", section.line, plain_text(name));
    MEGALITH_CHECK(is_generated(*kernel), "line {}: the body of \"{}\" is not generated: it has no schedule",
                   section.line, name);
    kernel->steps = section.steps;
  }
  return with_schedules(target, std::move(kernels));
}

std::map<std::string, std::string> read_schedules(const std::string& text) {
  std::map<std::string, std::string> schedules;
  for (auto& [name, section] : read_sections(text)) schedules[name] = std::move(section.steps);
  return schedules;
}

void check_schedules(const std::string& target, const std::vector<graph::LoweredKernel>& kernels) {
  const Dialect dialect = dialect_of(target);
  for (const graph::LoweredKernel& kernel : kernels)
    if (kernel.steps) checked_schedule(kernel, loop::bind(kernel.kernel, kernel.binding), dialect, *kernel.steps);
}

}  // namespace megalith::codegen
