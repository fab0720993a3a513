// The language of schedules: what a line says, executed. Internal to loop/transform/; loop/transform/schedule.h lists it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// The words of a line; none if it is empty or a comment.
std::vector<std::string> step_words(const std::string& line);

/// What the line makes of the kernel. UserError if it does not read or does not apply.
Kernel run_step(const Kernel& kernel, const std::string& line, const std::map<std::string, Kernel>& others);

/// The usage of every step, a line each.
std::vector<std::string> step_usages();

/// What other systems call a step, and its name here.
std::map<std::string, std::string> step_aliases();

}  // namespace megalith::loop
