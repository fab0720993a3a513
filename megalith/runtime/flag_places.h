// Where the flags of exchanges lie in memory: from a word that a worker waits at to its tensor, its elements and the tasks
// that write it. For whoever has to say why nothing moves (runtime/hang_report.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megalith/runtime/protocol.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

class FlagPlaces {
 public:
  FlagPlaces() = default;
  /// `addresses`: per buffer, where an exchange begins; nullptr of others.
  FlagPlaces(const task::TaskGraph& graph, const std::vector<const void*>& addresses);

  struct Place {
    const void* address = nullptr;
    std::string range;         // "h[0:1, 16:18]"
    std::vector<u32> writers;  // tasks, in the program's order
  };
  /// The word that WorkerStatus::flag names, if `task` reads it.
  std::optional<Place> find(u64 flag, u32 task) const;

 private:
  struct Part {
    u32 task;
    loop::Box box;
  };
  struct Exchange {
    std::string name;
    std::vector<int64_t> shape;
    const std::byte* address = nullptr;
    int64_t num_words = 0;
    int64_t elements_a_word = 1;
    std::vector<Part> writes, reads;
  };
  std::vector<Exchange> exchanges_;
};

}  // namespace megalith::runtime
