#include "megalith/runtime/worker_thread.h"

#include <cerrno>
#include <system_error>

#include "megalith/codegen/emit.h"

namespace megalith::runtime {

namespace {

// The worker loop, the choice of a body, the body, what it calls, and what signals that are handled on it take.
static_assert(kWorkerStackBytes >= 8 * codegen::kMaxFrameBytes);

extern "C" void* megalith_worker_thread(void* main) {
  const std::unique_ptr<std::function<void()>> function(static_cast<std::function<void()>*>(main));
  (*function)();
  return nullptr;
}

int create(pthread_t& thread, size_t stack_bytes, std::function<void()>* main) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  const int code = pthread_create(&thread, &attributes, megalith_worker_thread, main);
  pthread_attr_destroy(&attributes);
  return code;
}

}  // namespace

WorkerThread::WorkerThread(std::function<void()> main) {
  auto function = std::make_unique<std::function<void()>>(std::move(main));
  // glibc takes what all libraries of the process keep for each thread out of the stack, and says EINVAL if it is more.
  constexpr size_t kMax = kWorkerStackBytes << 5;
  int code = EINVAL;
  for (size_t bytes = kWorkerStackBytes; code == EINVAL && bytes <= kMax; bytes *= 2)
    code = create(thread_, bytes, function.get());
  if (code != 0) throw std::system_error(code, std::generic_category());
  function.release();
  runs_ = true;
}

void WorkerThread::join() {
  if (!std::exchange(runs_, false)) return;
  pthread_join(thread_, nullptr);
}

}  // namespace megalith::runtime
