// Python's interpreter, as calls that take long must treat it: its lock is let go meanwhile, its signals are looked at, and
// its end ends them. Nothing else in the bindings touches the lock.
//
// How a process ends (docs/python.md, "Threads, processes, Ctrl-C"): when Python's exit handlers run, calls in other threads
// are ended, and their threads with SystemExit; open streams are cancelled. A thread that does not come back in time is left
// where it waits for the lock. Python would end it there by unwinding its stack (pthread_exit), and stacks of C++ must not
// be unwound through destructors: std::terminate.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <functional>

namespace megalith::python {

/// Lets go of the lock for as long as it lives, for calls that take long. Throws where the interpreter ends and this is
/// another thread than the one that ends it, unless the call only cleans up.
class Unlocked {
 public:
  enum class For { work, cleaning_up };
  explicit Unlocked(For use = For::work);
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

/// What is to be cancelled when the interpreter ends though no thread is in a call of it. With the lock held.
class EndsWithInterpreter {
 public:
  explicit EndsWithInterpreter(std::function<void()> end);
  ~EndsWithInterpreter();
  EndsWithInterpreter(const EndsWithInterpreter&) = delete;
  EndsWithInterpreter& operator=(const EndsWithInterpreter&) = delete;

  void operator()() const { end_(); }

 private:
  std::function<void()> end_;
};

void bind_interpreter(nanobind::module_& module);

}  // namespace megalith::python
