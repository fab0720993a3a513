// Ctrl-C in a host that takes signals itself, as Python does: its handler only makes a note, which somebody has to look
// at. Whoever waits for something that may take long does so here. A command that is ended by the signal needs none.
#pragma once

namespace megalith {

/// Throws what ends the wait, if the user wants that; no std::exception, since it is no error. To be called every few tens
/// of milliseconds, from any thread, with nothing locked that a signal handler might want.
void interruption_check();

/// What interruption_check() calls; nullptr, as to begin with: nothing.
void interruption_check_set(void (*check)());

}  // namespace megalith
