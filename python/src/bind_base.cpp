#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <new>
#include <stdexcept>

#include "megalith/base/dtype.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/format.h"
#include "megalith/base/interruption.h"
#include "megalith/base/turn.h"
#include "megalith/runtime/launcher.h"
#include "megalith/runtime/topology.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

namespace {

// The kinds of error, made once and kept for as long as the process lives.
struct Exceptions {
  PyObject *error, *user, *internal, *system, *hang;
};
Exceptions exceptions;

PyObject* new_exception(nb::module_& module, const char* name, const char* doc, nb::tuple bases) {
  const std::string full = std::string("megalith.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr);
  if (type == nullptr) nb::raise_python_error();
  module.attr(name) = nb::handle(type);
  return type;
}

std::string no_memory() {
  return fmt::format(
      "[memory] there is not enough memory ({} available, less if a limit is set: ulimit -v): a size is too large, or "
      "something else must be closed",
      format_bytes(runtime::memory_available_bytes()));
}

// The narrowest kind first: each is also what stands below it.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const runtime::HangError& error) {
    PyErr_SetString(exceptions.hang, error.what());
  } catch (const InternalError& error) {
    PyErr_SetString(exceptions.internal, error.what());
  } catch (const UserError& error) {
    PyErr_SetString(exceptions.user, error.what());
  } catch (const SystemError& error) { PyErr_SetString(exceptions.system, error.what()); } catch (const Error& error) {
    PyErr_SetString(exceptions.error, error.what());
  } catch (const std::system_error& error) {  // the standard library's: a thread that cannot be started
    PyErr_SetString(exceptions.system, system_error(error).what());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(exceptions.system, no_memory().c_str());
  } catch (const std::length_error&) {  // of a container that was to be larger than memory can be
    PyErr_SetString(exceptions.system, no_memory().c_str());
  }
}

// A turn as a context manager. Its methods are C++: no signal handler comes in between the turn and Python's taking note.
struct TurnScope {
  std::shared_ptr<Turn> turn;
  std::string where;
};

void bind_turn(nb::module_& module) {
  nb::class_<TurnScope>(module, "TurnScope")
      .def(
          "__enter__", [](const TurnScope& scope) { scope.turn->take(scope.where); }, nb::call_guard<Unlocked>())
      .def("__exit__", [](const TurnScope& scope, nb::args) { scope.turn->give_back(); });
  nb::class_<Turn>(module, "Turn", "Turns at something that one caller uses at a time.")
      .def(
          "__init__", [](Turn* self, const std::string& what) { new (self) Turn(what); }, "what"_a)
      .def(
          "__call__",
          [](const std::shared_ptr<Turn>& turn, const std::string& where) {
            return TurnScope{turn, where};
          },
          "where"_a, "A context in which the call `where` has the turn.");
}

}  // namespace

void bind_base(nb::module_& module) {
  exceptions.error =
      new_exception(module, "Error", "Base of all of Megalith's errors.", nb::make_tuple(nb::handle(PyExc_Exception)));
  const nb::handle error(exceptions.error);
  exceptions.user = new_exception(module, "UserError", "The input is wrong: a tensor, a shape, an option, a file.",
                                  nb::make_tuple(error, nb::handle(PyExc_ValueError)));
  exceptions.internal =
      new_exception(module, "InternalError", "Megalith is wrong: something that holds in it does not hold.",
                    nb::make_tuple(error, nb::handle(PyExc_RuntimeError)));
  exceptions.system = new_exception(module, "SystemError",
                                    "The system is wrong: a compiler that failed, no GPU, no memory, a full disk.",
                                    nb::make_tuple(error, nb::handle(PyExc_RuntimeError)));
  exceptions.hang =
      new_exception(module, "HangError", "A kernel made no progress; the message says who waits for what.",
                    nb::make_tuple(nb::handle(exceptions.internal)));
  nb::register_exception_translator(translate);

  bind_turn(module);
  module.attr("__version__") = MEGALITH_VERSION;
  module.def(
      "dtype_bytes", [](const std::string& name) { return dtype_bytes(dtype_parse(name)); }, nb::arg("dtype"),
      "Bytes of one element of \"bf16\", \"f16\", \"f32\", \"i8\", \"i32\" or \"i64\".");
  module.def(
      "write_file",
      [](const nb::object& path, const std::string& text) {
        PyObject* bytes = nullptr;  // a name need not be UTF-8
        if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) throw nb::python_error();
        const auto name = nb::steal<nb::bytes>(bytes);
        file_write_atomic({name.c_str(), name.size()}, text);
      },
      nb::arg("path"), nb::arg("text"),
      "Writes a file such that a reader sees the old one or the new one, never a part. A link that another user has "
      "put "
      "in its place is not followed. SystemError if that fails.");
}

}  // namespace megalith::python
