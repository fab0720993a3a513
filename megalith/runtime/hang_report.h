// What each worker of a run that stands still is doing, in words: the task, the event it waits for, what the counter
// has and what it wants; or the value whose flag it waits for, who writes it, and the sequence number that it has and
// the one that it wants. From the words that the workers write down (W1 and W3 of runtime/protocol.h), wherever those
// lie.
#pragma once

#include <functional>
#include <string>

#include "megalith/runtime/image.h"

namespace megalith::runtime {

/// Loads a word of an exchange (W5), from wherever exchanges lie.
using LoadWord = std::function<u64(const void* address)>;

/// `workers` and `events`: as many as the image has; they may change while they are read.
std::string hang_report(const LaunchImage& image, const WorkerStatus* workers, const EventCounter* events,
                        int64_t idle_ms, const LoadWord& load_word = {});

}  // namespace megalith::runtime
