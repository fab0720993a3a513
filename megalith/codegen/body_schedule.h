// The schedule of a generated body: how its loops and sums go to the threads of a worker, as a text in the language of
// loop/transform/schedule.h. default_schedule() proposes one, `bodies.txt` holds them all (bodies_text.h), and
// generate_body() does what it is told: tags are the only thing by which it distributes.
//
// A worker has a fixed number of threads, and a task as many iterations as its tile: an axis goes round. So what tags say of a
// body is less than what they say of a kernel of one's own (docs/schedules.md has the table):
//
//   tag    a loop                                       the innermost iname of a sum, max, min or argmax
//   for    all threads, in step                         in order
//   l.0    threads take iterations in turns             the threads that run it share its terms
//   w      warps take iterations in turns               -
//   lane   -                                            the same; where one thread runs it, 16 partial results
//   vec    vectors of a CPU                             16 partial results
//   unr    unrolled                                     -
#pragma once

#include <string>

#include "megalith/codegen/dialect.h"
#include "megalith/graph/lower.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::codegen {

/// Of a body that nobody wrote a schedule for. An innermost loop with independent iterations is dealt out: to warps if an
/// iteration sums what lies side by side in memory, to threads otherwise, or on a CPU to vectors. `bound`: lowered.kernel with
/// its static sizes put in (loop::bind).
std::string default_schedule(const graph::LoweredKernel& lowered, const loop::Kernel& bound, const Dialect& dialect);

/// The kernel after the steps of `schedule`, none of which is checked: of a text that was made or checked before.
loop::Kernel scheduled_body(const loop::Kernel& bound, const std::string& schedule);

/// All steps of a text, each checked. UserError with the line, the loop or sum, and what would be legal, if a step does not
/// read, changes what tasks read and write, or deals out what depends on each other.
loop::Schedule checked_schedule(const graph::LoweredKernel& lowered, const loop::Kernel& bound, const Dialect& dialect,
                                const std::string& text);

}  // namespace megalith::codegen
