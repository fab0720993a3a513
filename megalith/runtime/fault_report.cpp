#include "megalith/runtime/fault_report.h"

#include "megalith/base/error.h"

namespace megalith::runtime {

namespace {

std::string fault_text(const LaunchImage& image, const WorkerStatus& status) {
  const Fault& fault = status.fault;
  codegen::CheckText text = image.check_text(fault);
  if (text.what.empty()) text = {fmt::format("fails its check {}", fault.check), "what it uses"};
  const std::string task = fault.task < image.num_tasks() ? image.task_name(fault.task) : "?";
  const std::string wrong = fault.extent == kDivides ? fmt::format("by zero: {} is 0", text.value)
                                                     : fmt::format("outside: index {} is {}, allowed 0 <= index < {}",
                                                                   text.value, fault.value, fault.extent);
  return fmt::format(
      "[launch] {}: task \"{}\"{} {} {}. The run ended in iteration {}; nothing outside of a tensor was read or "
      "written. Look at what made that value",
      image.name(), task, image.node_text(fault.task), text.what, wrong, status.iteration);
}

}  // namespace

void throw_fault(const LaunchImage& image, const WorkerStatus* workers) {
  const WorkerStatus* first = nullptr;
  for (u32 w = 0; w < image.launch().num_workers; ++w)
    if (workers[w].fault.found != 0 && (first == nullptr || workers[w].fault.task < first->fault.task))
      first = &workers[w];
  if (first != nullptr) throw UserError(fault_text(image, *first));
}

}  // namespace megalith::runtime
