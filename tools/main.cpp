#include "tools/command_line.h"

int main(int argc, char** argv) { return megalith::tools::command_line(argc, argv); }
