#include "megalith/base/interruption.h"

#include <atomic>

namespace megalith {

namespace {
std::atomic<void (*)()> current = nullptr;  // relaxed: nothing else is handed over with it
}  // namespace

void interruption_check() {
  if (void (*const check)() = current.load(std::memory_order_relaxed)) check();
}

void interruption_check_set(void (*check)()) { current.store(check, std::memory_order_relaxed); }

}  // namespace megalith
