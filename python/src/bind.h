// What the extension module `megalith._megalith` is made of: one function per C++ folder, called from one short list in
// module.cpp. The bindings are thin: they hand over names, numbers and addresses. What is pleasant to use is written in
// Python above them.
#pragma once

#include <nanobind/nanobind.h>

namespace megalith::python {

void bind_base(nanobind::module_& module);     // errors, dtypes, version
void bind_graph(nanobind::module_& module);    // Registry, Operator, Graph
void bind_task(nanobind::module_& module);     // TaskGraph
void bind_jit(nanobind::module_& module);      // compile(), CompiledKernel
void bind_runtime(nanobind::module_& module);  // TensorView, DeviceArray, devices
void bind_model(nanobind::module_& module);    // Tokenizer
void bind_engine(nanobind::module_& module);   // GraphRunner, Engine

}  // namespace megalith::python
