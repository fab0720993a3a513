// What is said of a run that a fault in its data has ended: a subscript outside its tensor, a division by zero.
#pragma once

#include "megalith/runtime/image.h"

namespace megalith::runtime {

/// UserError naming the task, the access, the value and what it may be, if a worker has noted a fault; of several the
/// one in the earliest task. `workers`: the status of each, after the run.
void throw_fault(const LaunchImage& image, const WorkerStatus* workers);

}  // namespace megalith::runtime
