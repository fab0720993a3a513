// What a launch begins with: counters, status words and the abort word. Each kernel of an engine has its own, and uses them
// again whenever another one ends and it goes on. A counter that is left over holds a wait that should not hold yet, or never
// holds one. So each launch is looked at before its workers begin, on whichever machine.
#pragma once

#include <string>

#include "megalith/runtime/image.h"

namespace megalith::runtime {

/// Names the first of these words that is not as a run from `first_iteration` must find it; "" if all are. Exchanges are not
/// among them: they lie on the GPU, which clears them.
std::string why_not_ready(const LaunchImage& image, const EventCounter* events, const WorkerStatus* status,
                          const Control& control, u32 first_iteration);

}  // namespace megalith::runtime
