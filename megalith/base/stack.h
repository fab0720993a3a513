// How much of its stack a thread has left. What recurses as deep as its input says asks here, beside a limit of its own:
// a thread's stack may be small (`ulimit -s`, a thread of somebody else's), and beyond it lies other memory.
#pragma once

namespace megalith {

/// Whether there is room for what may come before the next question: a few frames and a message.
bool stack_has_room();

}  // namespace megalith
