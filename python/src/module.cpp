#include "python/src/bind.h"
#include "python/src/interpreter.h"

NB_MODULE(_megalith, module) {
  module.doc() = "Megalith's C++ library, as megalith's Python layer uses it.";
  megalith::python::bind_base(module);
  megalith::python::bind_interpreter(module);
  megalith::python::bind_operator(module);
  megalith::python::bind_graph(module);
  megalith::python::bind_task(module);
  megalith::python::bind_jit(module);
  megalith::python::bind_loop(module);
  megalith::python::bind_tensors(module);
  megalith::python::bind_runtime(module);
  megalith::python::bind_model(module);
  megalith::python::bind_runner(module);
  megalith::python::bind_engine(module);
  megalith::python::bind_async(module);
}
