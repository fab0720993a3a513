// The loop kernel: an operator's meaning. A set of iteration points (an isl domain over inames, the loop variables) and
// instructions with subscripted accesses. Everything else (reference results, footprints, costs, code) is derived.
//
// Semantics
//   * A kernel has size parameters (T, H; bound to integers before anything is run), scalar attributes (eps), tensors
//     (inputs, outputs, inouts, temporaries) and an ordered list of instructions.
//   * Each instruction runs once for every point of its domain: the kernel's domain projected onto the inames that the
//     instruction is within. It is within the inames that occur in its target's subscripts (and those it names with
//     {inames=...}); inames bound by a reduction are private to that reduction. Of several domain texts only those
//     count that list an iname the instruction is within, or one that such a text mentions: with { [i] : 0 <= i < n }
//     and { [j] : 0 <= j < i } apart, `a[i] = sum(j, 1)` sets a[0] = 0; in one text, no point has i = 0 and a[0] is not
//     set.
//   * Order. Instructions sit in one loop nest, built in text order: an instruction shares the loops that are open when
//     it is reached as far as its inames allow, in the order in which the domain lists them, and opens the rest (it
//     shares the longest common beginning of the open loops and its own inames in domain order; `order j, i` in the text
//     puts another order in the domains' place). So two neighbours
//     within the same inames run interleaved, point by point; with different inames, one after the other. loop/nest.h
//     builds this nest, and is used by the interpreter and by every code generator.
//     A line `barrier` between two instructions ends all loops: what stands before it is done, everywhere, before what
//     stands behind it begins. On a GPU that takes a kernel for each part (loop/stages.h).
//   * `sum(k, e)`, `max(k, e)`, `min(k, e)`, `argmax(k, e)` reduce over inames; `sum((j, k), e)` over several;
//     `sum(k, e, c)` only over points where the condition c holds (c may depend on data: `s <= position[t]`). An empty
//     sum is 0, an empty max -inf, an empty min +inf. argmax is the lowest iname value that attains the maximum
//     (exactly one iname); over nothing it is 0.
//   * `if(c, a, b)` evaluates only the chosen side, so it may guard a subscript.
//   * A subscript is an affine form of inames and parameters (floor division `//` and `mod` by constants included), or
//     depends on data (a tensor read inside it); then the access counts as touching the whole of that dimension. What is
//     not affine is checked when it is evaluated: a subscript outside its tensor, as large as that is today, is an
//     error that ends the run, and nothing is read or written there.
//   * `//` rounds down, and `mod` has the sign of its divisor. A divisor of 0 is an error like a subscript outside. The
//     lowest i64 over -1 is itself.
//   * A cast to a whole number, and storing into a narrower one, goes towards 0 and ends at the edges of the type; NaN
//     becomes the lowest number, which is no place in a tensor.
//   * `rule f(a) = e` lets expressions say f(x) for e with x in place of a. e may use inames that have a value where f
//     is called. Rules are a way of writing: without_rules() gives the kernel without them, and that is what is asked,
//     run and made code of.
//   * Arithmetic on bf16 and f16 happens in f32; mixing integers and floats gives the float; `/` always gives a float.
//     Storing rounds to the tensor's dtype, to nearest even; so does a cast to bf16 or f16. The interpreter computes in
//     float64 and rounds where a cast to those says so, nowhere else.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/base/dtype.h"

namespace megalith::loop {

enum class ReduceOp { sum, max, min, argmax };

/// One node of an expression tree; a plain value.
struct Expr {
  enum class Kind {
    number,     // number, is_integer
    name,       // an iname, a parameter or an attribute
    subscript,  // name[args...]
    call,       // name(args...): functions, and the operators "+", "-", "*", "/", "//", "mod", "neg",
                // "<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "if"; casts are calls of a dtype's name
    reduce,     // reduce over inames of args[0], where args[1] (if present) holds
  };
  Kind kind = Kind::number;
  double number = 0;
  bool is_integer = false;
  std::string name;
  std::vector<Expr> args;
  ReduceOp reduce = ReduceOp::sum;
  std::vector<std::string> inames;
  DType dtype = DType::f32;  // set by infer_types(); conditions are i32
};

/// What one iname becomes: a loop; an axis along which tasks are cut; the index of a block or of a thread in it, along
/// axis 0 (the fastest), 1 or 2; of a lane in its warp or of a warp in its block, which are the axes 0 and 1 of a block whose
/// axis 0 is a warp; a loop that is unrolled; the lanes of a vector; iterations that are interleaved. No tag changes what
/// the kernel means, and the interpreter does not look at them: loop/parallel.h checks that they may.
enum class InameTag {
  loop,
  task,
  block_0,
  block_1,
  block_2,
  thread_0,
  thread_1,
  thread_2,
  unroll,
  vector,
  interleave,
  lane,
  warp
};

/// One assignment: target = value, at every point of its domain where `condition` holds.
struct Instruction {
  std::string id;  // unique; "insn0", ... unless the text names it with {id=...}
  Expr target;     // a subscript
  Expr value;
  std::optional<Expr> condition;        // {if=...}
  std::vector<std::string> within;      // in the order of the domain's inames
  std::vector<std::string> depends_on;  // ids; {dep=a:b}
  std::vector<std::string> unordered;   // ids; {nosync=a:b}: the author vouches that no thread has to wait for those
  bool is_behind_barrier = false;       // over all that stands before it
  std::map<std::string, InameTag>
      tags;  // of inames in this instruction alone, where that is not the kernel's; {tag=s:lane}
};

enum class Role { input, output, inout, temporary };

/// Whose a temporary is: a thread's ("private"), a warp's, an element a lane ("lanes"), a block's ("shared") or everyone's
/// ("global"). Where none is said, it is worked out from who reads what (loop/parallel.h); lanes only where they are asked for.
enum class Space { automatic, thread, warp, block, global };

/// A tensor of the kernel. Row-major. Shapes are affine in the parameters.
struct TensorArgument {
  std::string name;
  Role role = Role::input;
  std::optional<DType> dtype;  // absent until infer_types() or the operator's binding sets it
  std::vector<Expr> shape;     // empty and shape_known = false: to be inferred from the accesses
  bool shape_known = false;
  Space space = Space::automatic;  // of a temporary
  std::string storage;             // of a temporary: those that name the same share memory; "" for none
  bool is_streamed = false;        // of what is written: a CPU stores vectors of it past its caches
};

/// A size: bound to an integer for one use of the kernel. A dynamic parameter is bound to its largest value when the
/// kernel is compiled, and its true value is read from memory each time a task runs.
struct Parameter {
  std::string name;
  bool dynamic = false;
};

/// A scalar constant of floating type with a default.
struct Attribute {
  std::string name;
  double value = 0;
};

/// A name for an expression of other expressions.
struct Rule {
  std::string name;
  std::vector<std::string> arguments;
  Expr body;
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<Attribute> attributes;
  std::vector<TensorArgument> tensors;
  std::vector<std::string> domains;  // isl set text, e.g. "{ [t, h] : 0 <= t < T and 0 <= h < H }"; each iname in one
  std::string assumptions;           // isl constraint text over the parameters, e.g. "n >= 1"; "" for none
  std::vector<Instruction> instructions;
  std::vector<Rule> rules;
  std::vector<std::string> order;        // of all inames, where it is not the domains'; else empty
  std::map<std::string, InameTag> tags;  // "task.x" and so on are given by position in the partition, not here
  // An opaque kernel states which elements are read and written, but not the arithmetic: it gives footprints and
  // counts, and cannot be interpreted or turned into code (operators that no loop kernel can say; see
  // graph/operator.h).
  bool opaque = false;

  const TensorArgument* find_tensor(const std::string& name) const;
  TensorArgument* find_tensor(const std::string& name);
  bool is_parameter(const std::string& name) const;
  bool is_attribute(const std::string& name) const;
  const Rule* find_rule(const std::string& name) const;
  /// All inames, in the order of the loops: `order`, or that in which the domains list them.
  std::vector<std::string> inames() const;
};

// Shorthand for passes that build expressions.
Expr make_integer(int64_t value);
Expr make_number(double value);
Expr make_name(std::string name);
Expr make_call(std::string name, std::vector<Expr> args);

/// True if `name` occurs in the expression as an iname, parameter or attribute.
bool mentions(const Expr& expr, const std::string& name);
/// True if a tensor is read anywhere in the expression: its value depends on data.
bool reads_tensor(const Expr& expr);
/// Same tree, dtypes aside.
bool same_expression(const Expr& a, const Expr& b);

/// Values of parameters and attributes for one use of a kernel.
struct Binding {
  std::map<std::string, int64_t> sizes;
  std::map<std::string, double> attributes;
};

}  // namespace megalith::loop
