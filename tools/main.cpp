#include <malloc.h>

#include "tools/command_line.h"

int main(int argc, char** argv) {
  // A large model's plan is tens of megabytes in small pieces. malloc asks the system for 128 KB at a time, and so often
  // that a warm start took a tenth longer.
  mallopt(M_TOP_PAD, 32 << 20);
  return megalith::tools::command_line(argc, argv);
}
