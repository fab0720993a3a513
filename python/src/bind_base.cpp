#include <nanobind/stl/string.h>

#include "megalith/base/dtype.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/interruption.h"
#include "megalith/runtime/launcher.h"
#include "python/src/bind.h"

namespace nb = nanobind;

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
  }
}

// Python's handler of Ctrl-C only makes a note, which nobody reads while a compiler is waited for.
void raise_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
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

  interruption_check_set(&raise_signals);

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
