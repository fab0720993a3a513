#include "megalith/base/threads.h"

#include <system_error>

#include "megalith/base/log.h"

namespace megalith {

std::vector<std::jthread> start_helpers(int count, const std::function<void()>& work) {
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(work);
  } catch (const std::system_error& error) {
    log_warn("{} of {} threads could be started ({}); it goes on with fewer", threads.size(), count, error.what());
  }
  return threads;
}

}  // namespace megalith
