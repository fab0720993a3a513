// What the extension module `megalith._megalith` is made of: one function per C++ folder and one for operators, called
// from one short list in module.cpp. The bindings are thin: they hand over names, numbers and addresses. What is
// pleasant to use is written in Python above them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <type_traits>

#include "megalith/base/error.h"

namespace megalith::graph {
class Registry;
}

namespace megalith::python {

/// Megalith's operators and those that were declared from Python: what graphs take that name no registry.
std::shared_ptr<graph::Registry> shared_registry();

/// A value as messages show it (python/megalith/arguments.py).
inline std::string shown(nanobind::handle value) {
  return nanobind::str(nanobind::module_::import_("megalith.arguments").attr("shown")(value)).c_str();
}

/// An argument of a constructor; UserError that says what is wanted. Those of functions and methods are taken as what
/// they are, and python/megalith/signatures.py says what is wrong with them.
template <class T>
T argument(const char* where, const char* name, nanobind::handle value, const char* want) {
  T result{};
  bool fits = nanobind::try_cast(value, result);
  if constexpr (std::is_pointer_v<T>) fits = fits && result;  // None is a null pointer
  MEGALITH_CHECK(fits, "[{}] {} is {}, want {}", where, name, shown(value), want);
  return result;
}

void bind_base(nanobind::module_& module);      // errors, dtypes, version, turns
void bind_operator(nanobind::module_& module);  // Operator, Registry, checks of operators
void bind_graph(nanobind::module_& module);     // Graph
void bind_task(nanobind::module_& module);      // TaskGraph
void bind_jit(nanobind::module_& module);       // compile(), CompiledKernel
void bind_loop(nanobind::module_& module);      // LoopKernel
void bind_tensors(nanobind::module_& module);   // TensorView
void bind_runtime(nanobind::module_& module);   // DeviceArray, devices
void bind_model(nanobind::module_& module);     // Tokenizer
void bind_runner(nanobind::module_& module);    // GraphRunner
void bind_engine(nanobind::module_& module);    // Engine, TokenStream
void bind_async(nanobind::module_& module);     // AsyncEngine, Answer

}  // namespace megalith::python
