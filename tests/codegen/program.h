// Emits kernels, compiles the source with the system's compiler, and runs tasks of them through a launch with one
// worker, so that tests can compare with loop::interpret.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megalith/codegen/emit.h"
#include "megalith/graph/lower.h"
#include "megalith/loop/interpret.h"
#include "megalith/runtime/protocol.h"

namespace megalith::codegen::testing {

/// A kernel as a test writes it down.
struct Spec {
  std::string name;
  std::string text;  // of the loop kernel, declarations included
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> tiled;
  std::map<std::string, std::pair<int64_t, int64_t>> values;  // integer tensors: smallest and largest value, inclusive
  const graph::TunedBody* body = nullptr;
  std::map<std::string, double> magnitudes = {};  // of float tensors whose random values are not up to 1
  const graph::Operator* op = nullptr;            // whose epilogue the body is given
  std::optional<std::string> steps = {};          // of the body's schedule; nothing: as it is proposed
};

/// What `op` means, with its tuned body for CPUs: the text that the operator declares. `dtypes`: of operands that are
/// to have another one than declared; T is dynamic.
Spec spec_of(const graph::Operator& op, std::string name, std::map<std::string, int64_t> sizes,
             const std::map<std::string, DType>& dtypes = {});

graph::LoweredKernel lower(const Spec& spec);

/// Inputs and inouts with random values, rounded to their dtypes.
loop::Arrays random_arrays(const Spec& spec, unsigned seed);

class Program {
 public:
  /// Compiles with `compiler` and `flags` after those of codegen::cpu_compile_flags(); all warnings are errors.
  Program(const std::vector<Spec>& specs, const std::string& compiler = "c++",
          const std::string& flags = "-march=native", const std::string& more_source = "");
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Runs the kernel `name` as one task per tile; `tiles`: tile sizes of tiled inames (absent: the whole range),
  /// `sizes`: values of dynamic sizes (absent: the largest), `aliases`: operands that are the memory of another one.
  /// Outputs and inouts of `arrays` are replaced.
  void run(const std::string& name, loop::Arrays& arrays, const std::map<std::string, int64_t>& tiles = {},
           const std::map<std::string, int64_t>& sizes = {},
           const std::map<std::string, std::string>& aliases = {}) const;
  /// Tasks of the kernel `name`, on memory of the caller's. UserError "WHAT: VALUE is 9, below 7" for a fault.
  void launch(const std::string& name, const std::vector<void*>& operands,
              const std::vector<runtime::TaskRecord>& tasks) const;
  /// A function or datum of the compiled source.
  void* symbol(const char* symbol_name) const;

  const Spec& spec(const std::string& name) const;
  const EmittedSource& source() const { return source_; }
  const std::string& info() const { return info_; }
  double compile_seconds() const { return compile_seconds_; }

 private:
  size_t index_of(const std::string& name) const;

  std::vector<Spec> specs_;
  std::vector<graph::LoweredKernel> kernels_;
  EmittedSource source_;
  std::string info_;
  double compile_seconds_ = 0;
  void* library_ = nullptr;
  void* entry_ = nullptr;
};

/// Runs the interpreter and the program on the same inputs; the largest of |got - want| / (1 + |want|) over all
/// outputs, in units of the output dtype's tolerance. Below 1 is right.
double difference(const Program& program, const std::string& name, unsigned seed,
                  const std::map<std::string, int64_t>& tiles = {}, const std::map<std::string, int64_t>& sizes = {});

bool compiler_exists(const std::string& compiler);

/// visit(program, machine) for `specs` compiled for other instruction sets than this machine's, and by another compiler
/// if there is one; by another compiler for another instruction set only with all configurations. `machine` says which; `more_flags`: of all of them, with a space before each.
void on_other_machines(const std::vector<Spec>& specs,
                       const std::function<void(const Program& there, const std::string& machine)>& visit,
                       const std::string& more_flags = "");

}  // namespace megalith::codegen::testing
