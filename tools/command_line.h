// The `megalith` command as a function: for a program that knows architectures of its own (examples/parallel_block), too.
#pragma once

namespace megalith::tools {

/// What main() of the command does; its exit status.
int command_line(int argc, char** argv);

}  // namespace megalith::tools
