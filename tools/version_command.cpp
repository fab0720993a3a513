// megalith version: which build this is.
#include <fmt/format.h>

#include "megalith/jit/build_id.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

Action declare_version(Arguments&) {
  return [] {
    print(fmt::format("megalith {} (build {})\n", MEGALITH_VERSION, jit::build_id().substr(0, 12)));
    return kExitOk;
  };
}

}  // namespace

Command version_command() { return {"version", "which Megalith this is", "megalith version", declare_version}; }

}  // namespace megalith::tools
