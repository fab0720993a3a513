#include "tools/command_line.h"
#include "tools/heap.h"

int main(int argc, char** argv) {
  megalith::tools::grow_heap_in_large_pages();
  return megalith::tools::command_line(argc, argv);
}
