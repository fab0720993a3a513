// The subcommands of `megalith`, a file each: tools/<verb>_command.cpp. Adding one is adding its file and its line
// here. main.cpp knows only what this header says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/arguments.h"

namespace megalith::tools {

// What the process says at its end.
constexpr int kExitOk = 0;
constexpr int kExitError = 1;        // what was asked for could not be done, or is not so
constexpr int kExitUsage = 2;        // what was asked for could not be understood
constexpr int kExitInterrupt = 130;  // Ctrl-C, as shells count it

/// Found only once the arguments are looked at together; ends with kExitUsage and points to --help.
struct UsageError {
  std::string message;
};

/// Does the work once the arguments are parsed; returns the exit code. Results go to stdout, everything else to stderr.
using Action = std::function<int()>;

struct Command {
  const char* name;     // one word, or two: "bench latency"
  const char* summary;  // a line in the list of commands, and the head of the command's own help
  const char* example;  // the foot of its help
  Action (*declare)(Arguments& arguments);
};

Command run_command();
Command chat_command();
Command serve_command();
Command bench_command();
Command bench_kernel_command();
Command bench_graph_command();
Command bench_latency_command();
Command bench_serve_command();
Command profile_command();
Command compile_command();
Command inspect_command();
Command verify_command();
Command tune_command();
Command loops_command();
Command devices_command();
Command bench_load_command();
Command bench_arrival_command();
Command bench_soak_command();
Command logits_command();
Command cache_command();
Command doctor_command();
Command version_command();

/// In the order of the help.
inline std::vector<Command> all_commands() {
  return {run_command(),           chat_command(),        serve_command(),         bench_command(),
          bench_kernel_command(),  bench_graph_command(), bench_latency_command(), bench_serve_command(),
          bench_arrival_command(), bench_load_command(),  bench_soak_command(),    profile_command(),
          compile_command(),       inspect_command(),     tune_command(),          verify_command(),
          logits_command(),        devices_command(),     loops_command(),         cache_command(),
          doctor_command(),        version_command()};
}

}  // namespace megalith::tools
