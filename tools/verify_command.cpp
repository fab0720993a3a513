// megalith verify: proves a task graph's file sound, or says where it is not. It trusts nothing but the file: whoever
// made it, Megalith or not, is not asked.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "megalith/base/json_quote.h"
#include "megalith/base/printable.h"
#include "megalith/task/verify.h"
#include "tools/command.h"
#include "tools/task_graph_file.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct VerifyOptions {
  std::string file;
  bool json = false;
};

std::string counts(const task::TaskGraph& tasks) {
  size_t waits = 0;
  for (const task::Task& task : tasks.tasks) waits += task.waits.size();
  return fmt::format("{}, {}, {}, {}, {}", plural(static_cast<int64_t>(tasks.tasks.size()), "task"),
                     plural(static_cast<int64_t>(tasks.events.size()), "event"),
                     plural(static_cast<int64_t>(waits), "wait"),
                     plural(static_cast<int64_t>(tasks.workers.size()), "worker"),
                     plural(static_cast<int64_t>(tasks.buffers.size()), "buffer"));
}

// Names say more than indices to people, indices more to programs; the JSON has both.
std::string finding_json(const task::TaskGraph& tasks, const task::Finding& finding) {
  auto name_of = [](const auto& all, int index) {
    return index >= 0 && index < static_cast<int>(all.size()) ? json_quote(all[static_cast<size_t>(index)].name)
                                                              : std::string("null");
  };
  return fmt::format(R"({{"kind": {}, "message": {}, "tasks": [{}], "event": {}, "buffer": {}}})",
                     json_quote(task::finding_kind_name(finding.kind)), json_quote(finding.message),
                     fmt::join(finding.tasks, ", "), name_of(tasks.events, finding.event),
                     name_of(tasks.buffers, finding.buffer));
}

int run_verify(const VerifyOptions& options) {
  const task::TaskGraph tasks = read_task_graph(options.file);
  const task::VerifyResult result = task::verify(tasks);
  if (options.json) {
    std::vector<std::string> findings;
    for (const task::Finding& finding : result.findings) findings.push_back(finding_json(tasks, finding));
    print(fmt::format("{{\"sound\": {}, \"tasks\": {}, \"events\": {}, \"findings\": [{}]}}\n", result.ok(),
                      tasks.tasks.size(), tasks.events.size(), fmt::join(findings, ",\n ")));
  } else if (result.ok()) {
    print(fmt::format("sound: {}; {}\n", counts(tasks), plural(result.num_orders_checked, "order") + " proved"));
  } else {
    for (const task::Finding& finding : result.findings)
      print(fmt::format("{}: {}\n", task::finding_kind_name(finding.kind), printable_line(finding.message)));
    note(fmt::format("megalith: not sound: {} in {}", plural(static_cast<int64_t>(result.findings.size()), "finding"),
                     counts(tasks)));
  }
  return result.ok() ? kExitOk : kExitError;
}

Action declare_verify(Arguments& arguments) {
  auto options = std::make_shared<VerifyOptions>();
  arguments.positional("FILE", options->file, "task graph as `inspect --stage tasks --json` writes it; - is stdin");
  arguments.flag("--json", options->json, "the findings as JSON");
  return [options] { return run_verify(*options); };
}

}  // namespace

Command verify_command() {
  return {"verify", "prove that a task graph has no race and no deadlock",
          "megalith inspect models/storyteller --stage tasks --json | megalith verify -", declare_verify};
}

}  // namespace megalith::tools
