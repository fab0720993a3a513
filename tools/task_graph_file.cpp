#include "tools/task_graph_file.h"

#include "megalith/base/error.h"
#include "megalith/task/json.h"
#include "tools/terminal.h"

namespace megalith::tools {

task::TaskGraph read_task_graph(const std::string& path) {
  const std::string text = read_input(path);
  try {
    return task::from_json(text);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", path == "-" ? "stdin" : path, error.what()));
  }
}

}  // namespace megalith::tools
