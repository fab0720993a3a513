// The schedules of all generated bodies of a graph as one text, the artifact `bodies.txt`:
//
//   body rmsnorm_0
//   # ss[t] = sum(k, x[t, k] * x[t, k])
//   tag h vec k vec
//
// Comments say what the body computes. A body that the text leaves out keeps the schedule that is proposed for it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megalith/graph/lower.h"

namespace megalith::codegen {

/// `kernels` with steps for each that has a generated body: those of default_schedule() where there are none.
std::vector<graph::LoweredKernel> with_schedules(const std::string& target, std::vector<graph::LoweredKernel> kernels);

/// Of kernels that have steps. `title`: the graph's name.
std::string print_schedules(const std::vector<graph::LoweredKernel>& kernels, const std::string& title);

/// The steps of `kernels` replaced by those of the text, empty lines and comments included, so that messages about a step count
/// the text's lines. UserError for what is no list of bodies' schedules.
std::vector<graph::LoweredKernel> parse_schedules(const std::string& target, std::vector<graph::LoweredKernel> kernels,
                                                  const std::string& text);

/// The steps of each body that stands in such a text, by name; behind as many empty lines as stand before them in the text.
std::map<std::string, std::string> read_schedules(const std::string& text);

/// checked_schedule() of all.
void check_schedules(const std::string& target, const std::vector<graph::LoweredKernel>& kernels);

}  // namespace megalith::codegen
