#include "python/src/interpreter.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "megalith/base/interruption.h"
#include "python/src/bind.h"

namespace nb = nanobind;

namespace megalith::python {

namespace {

// What ends a call before its work is done. No std::exception: nobody on the way shall take it for an error.
struct Interrupted {
  std::shared_ptr<nb::python_error> raised;  // by a signal's handler; none: the interpreter ends
};

// How long the end waits for calls in other threads. A run ends within 100 ms and what the longest task takes.
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kLook{1};

std::atomic<bool> is_ending = false;
std::atomic<unsigned long> ending_thread = 0;  // written before is_ending
std::atomic<int> calls = 0;                    // inside an Unlocked
std::set<const EndsWithInterpreter*>& cancelled_at_end() {
  static auto* const all = new std::set<const EndsWithInterpreter*>;
  return *all;
}

bool must_end() { return is_ending && ending_thread != PyThread_get_thread_ident(); }

// Runs what takes the lock. Where Python ends the thread instead, by unwinding, the thread stays here for ever.
template <class Take>
auto take_lock(Take take) noexcept {
#ifdef __GLIBCXX__
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    for (;;) ::pause();
  }
#else
  return take();
#endif
}

struct Locked {
  PyGILState_STATE state = take_lock([] { return PyGILState_Ensure(); });
  ~Locked() { PyGILState_Release(state); }
};

// Python's handler of Ctrl-C only makes a note, which nobody reads while a compiler or a kernel is waited for.
void check_interpreter() {
  if (PyGILState_GetThisThreadState() == nullptr) return;  // a helper: who waits for it looks
  if (must_end()) throw Interrupted();
  const Locked lock;
  if (PyErr_CheckSignals() != 0) throw Interrupted{std::make_shared<nb::python_error>()};
}

void end() {
  ending_thread = PyThread_get_thread_ident();
  is_ending = true;
  for (const EndsWithInterpreter* one : cancelled_at_end()) (*one)();
  PyThreadState* const state = PyEval_SaveThread();
  const auto last = std::chrono::steady_clock::now() + kPatience;
  while (calls > 0 && std::chrono::steady_clock::now() < last) std::this_thread::sleep_for(kLook);
  PyEval_RestoreThread(state);
  // What the frames of other threads hold is never let go, which is no fault that anybody should hear of.
  const auto frames = nb::cast<nb::dict>(nb::module_::import_("sys").attr("_current_frames")());
  if (nb::len(frames) > (frames.contains(ending_thread.load()) ? 1u : 0u)) nb::set_leak_warnings(false);
}

// A fork has none of the other threads, and what their frames hold is never let go.
void after_fork() {
  calls = 0;
  nb::set_leak_warnings(false);
}

// While the interpreter ends, what a call fails with is that end: an engine that was closed under it, for example.
void translate(const std::exception_ptr& pointer, void*) {
  const auto end_thread = [] { PyErr_SetNone(PyExc_SystemExit); };  // in silence
  try {
    std::rethrow_exception(pointer);
  } catch (const Interrupted& interrupted) {
    interrupted.raised ? interrupted.raised->restore() : end_thread();
  } catch (...) {
    if (!must_end()) throw;
    end_thread();
  }
}

}  // namespace

Unlocked::Unlocked(For use) {
  ++calls;  // before the look, so that end() sees it or is seen
  if (use == For::work && must_end()) {
    --calls;
    throw Interrupted();
  }
  state_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  take_lock([this] {
    PyEval_RestoreThread(state_);
    return 0;
  });
  --calls;
}

EndsWithInterpreter::EndsWithInterpreter(std::function<void()> end) : end_(std::move(end)) {
  cancelled_at_end().insert(this);
}

EndsWithInterpreter::~EndsWithInterpreter() { cancelled_at_end().erase(this); }

void bind_interpreter(nb::module_&) {
  nb::register_exception_translator(translate);
  interruption_check_set(&check_interpreter);
  ::pthread_atfork(nullptr, nullptr, after_fork);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(end));
}

}  // namespace megalith::python
