// What the steps of a schedule are made of: for each its name, how it is written, and what reads it and does it. Internal to
// loop/transform/steps.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megalith/loop/transform/line_reader.h"

namespace megalith::loop {

struct Step {
  const char* usage;
  Kernel (*run)(const Kernel&, LineReader&);
  bool keeps_rules = false;  // else it sees the kernel without them
};
using StepTable = std::map<std::string, Step>;

/// Steps that say which loops there are, what becomes of them and in which order all runs; reductions are loops, too.
StepTable steps_of_loops();
/// Steps that say what is computed, of which tensors, and where those stand.
StepTable steps_of_values();

using Names = std::vector<std::string>;

Kernel with_tags(Kernel kernel, const std::vector<TaggedName>& names);
Names plain(const std::vector<TaggedName>& names);

// Of a step that takes a name, and of one that takes nothing.
template <Kernel (*function)(const Kernel&, const std::string&)>
Kernel name_step(const Kernel& kernel, LineReader& line) {
  const std::string name = line.name();
  line.end();
  return function(kernel, name);
}

template <Kernel (*function)(const Kernel&)>
Kernel plain_step(const Kernel& kernel, LineReader& line) {
  line.end();
  return function(kernel);
}

}  // namespace megalith::loop
