// Operators: what a graph's nodes are made of. An operator is declared once, in one file of ops/, and everything else
// follows from the declaration: its signature, its meaning (a loop kernel), how it splits into tasks, which hand-tuned
// bodies may stand in for the generated one on a target, and the sizes on which tests and benchmarks run it.
//
//   Operator rmsnorm() {
//     return operator_("rmsnorm", "y = x / rms(x) * weight, per row")
//         .input("x", {"T", "H"}).input("weight", {"H"}, DType::bf16).output("y", {"T", "H"})
//         .attribute("eps", 1e-6)
//         .loops(R"({ [t, h, k] : 0 <= t < T and 0 <= h < H and 0 <= k < H }
//                   ss[t]   = sum(k, f32(x[t, k]) * f32(x[t, k]))
//                   y[t, h] = f32(x[t, h]) * rsqrt(ss[t] / H + eps) * f32(weight[h]))")
//         .tasks({"t"})
//         .test({{"T", 3}, {"H", 100}});
//   }
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megalith/base/dtype.h"
#include "megalith/loop/interpret.h"
#include "megalith/loop/kernel.h"

namespace megalith::graph {

struct Operand {
  std::string name;
  loop::Role role;
  std::vector<std::string> shape;  // products of sizes and whole numbers: "H", "N * D"
  DType dtype = DType::f32;        // default: of outputs unless the node says otherwise, and of random test inputs
  bool exact_dtype = false;        // no other dtype will do: it would lose what the operator promises
  std::string index_into;          // integer inputs: the size S such that all values are in [0, S); "" for any
};

/// An iname along which tasks are cut.
struct TaskAxis {
  std::string iname;
  int64_t multiple = 1;  // tiles are multiples of this, the last one excepted
};

/// What lowering knows about a node when it asks whether a tuned body applies.
struct BodyQuery {
  std::map<std::string, DType> dtypes;         // per operand
  std::map<std::string, int64_t> sizes;        // dynamic sizes at their largest value
  bool int8 = false;                           // weights that are streamed come in int8 (kernels/int8_layout.h)
  std::map<std::string, int64_t> stream = {};  // how, as far as somebody chose (NodeSchedule::stream)
};

/// Weights that a body takes from its worker's stream instead of from memory (kernels/stream_layout.h).
struct StreamedWeights {
  std::vector<std::string> operands;  // each [rows, columns]; they take turns, a group of rows each
  std::string axis;                   // the task axis that counts rows
  std::string step;                   // the size of what one value of the axis stands for; "" for one row
  std::string activations = "T";      // the size that counts rows of activations
  std::string columns = "K";
  bool splits = false;      // columns may be taken in parts, where activations would not fit otherwise
  bool holds = false;       // of more tokens than travel as words activations must be in registers
  bool n_parallel = false;  // with many rows of activations warpgroups have groups of their own, of `step` rows
  // The task axis that counts slices of `columns` columns of a row (split-K), one a task, and how many there are; "": a row is
  // whole.
  std::string slice_axis = {}, slice_count = {};
  // Many rows of activations may be multiplied by two tasks together, half of the columns each (TaskGraph: partners).
  bool may_have_partners = false;
};

/// Weights that a body reads in panels instead of row by row (kernels/panel_layout.h).
struct PackedWeights {
  std::vector<std::string> operands;  // each a constant of [rows, columns]
  std::string axis;                   // the task axis that counts rows, cut between panels; "" if none does
};

/// A hand-tuned body: the function template `name` in kernels/<target>/<file>, or in a text that came with the
/// operator.
struct TunedBody {
  std::string target;
  std::string file;
  std::string name;
  std::function<bool(const BodyQuery&)> applies;  // empty: always
  std::vector<std::string> exchanged = {};        // operands that it can take as words that carry a flag
  std::vector<std::string> blocked = {};          // operands that it can take in blocks (row_blocks.h)
  std::vector<std::string> paired = {};           // caches that it can take in pairs of heads (head_pairs.h)
  // Inputs that may be the tensor of an output: it reads each element of them right before it writes it.
  std::vector<std::string> in_place = {};
  // Memory of its worker's own that it works in, shared memory on a GPU, scratch on a CPU; empty: none.
  std::function<int64_t(const BodyQuery&)> area_bytes = {};
  std::optional<StreamedWeights> streamed = {};
  std::optional<PackedWeights> packed = {};
  bool rounds_operands = false;  // to bf16, where the loop kernel multiplies f32: what it adds up is as exact as that
  bool has_epilogue = false;     // what it writes it may be given an epilogue for (Operator::epilogue)
  // Whether it multiplies by whole warpgroups (kernels/cuda/arch/wgmma.cuh) without streaming; empty: never.
  std::function<bool(const BodyQuery&)> multiplies_wide = {};
  // A task axis along which tiles have more to do: tokens of a prompt, with keys before them. And one along which they have
  // less, as long as a text has not all the tokens that there is room for: chunks of its positions. Empty: none.
  std::string grows_along = {}, shrinks_along = {};
  // An axis whose tiles all have as much to do as the first one, though of one row, which costs are of, the last has nothing.
  std::string alike_along = {};
  // An axis of heads, of which even ones are near even workers on a GPU, and odd ones near odd ones (kernels/head_pairs.h).
  std::string sides_along = {};
  // Set: what of its reads it can bring near before its turn, changing nothing; and what it had better bring near a task later.
  std::string prefetch = {}, prefetch_late = {};
  // Set: what makes ready the first iteration of a kernel that was launched behind another one (runtime/cuda/program.h).
  std::string take_over = {};
  // Set: the source itself, instead of a file. Its function gets typed views of what its task may touch, and nothing of
  // the worker (codegen/views.h). With `watched` views look at every access, on a CPU: for tests.
  std::string text = {};
  bool watched = false;
};

/// Of an operator that was fused with what came behind it: bodies of the one compute `values`, temporaries of the loop kernel
/// (one, or two of a gate and what it lets through), and the last instruction makes the output of them, element by element.
/// That is generated, and inlined where a body writes (kernels/cuda/epilogue/finished.cuh, kernels/cpu/finished.h).
struct Epilogue {
  std::vector<std::string> values;
  std::vector<std::string> operands;  // that it reads besides

  bool is_value(const std::string& tensor) const { return std::ranges::find(values, tensor) != values.end(); }
};

/// A plain C++ meaning, for the few operators that no loop kernel can say.
using Reference = std::function<void(const loop::Binding&, loop::Arrays&)>;

struct Operator {
  std::string name;
  std::string doc;
  std::vector<Operand> operands;  // inputs, inouts and outputs in the order of declaration
  std::vector<loop::Attribute> attributes;
  std::vector<std::string> extra_sizes;  // sizes that no operand's shape tells; a node must give them
  std::string loops;                     // loop-kernel text: domains and instructions
  Reference reference;                   // set: the loop kernel is opaque, accesses only
  std::vector<TaskAxis> axes;
  // The task axis each of whose values writes other elements of the inouts than any other one, which tables say; or "".
  std::string scatters;
  std::vector<TunedBody> bodies;
  std::vector<std::map<std::string, int64_t>> tests;
  std::optional<Epilogue> epilogue = {};
  bool any_sizes = false;  // is tested on sizes of 1 and on small odd ones, too

  const Operand* find(const std::string& operand) const;
};

/// All that a compilation takes from an operator, as text: two operators of one name that differ in it differ in
/// kernels. What bodies decide by functions is left out: those come with the program.
std::string definition(const Operator& op);

class Registry;

/// Builds an Operator; see the example at the top.
class operator_ {
 public:
  operator_(std::string name, std::string doc);
  operator_& input(std::string name, std::vector<std::string> shape, DType dtype = DType::f32);
  /// An integer input whose values lie in [0, size).
  operator_& index(std::string name, std::vector<std::string> shape, std::string size);
  operator_& inout(std::string name, std::vector<std::string> shape, DType dtype = DType::f32);
  operator_& output(std::string name, std::vector<std::string> shape, DType dtype = DType::f32);
  /// The operand declared last must have the dtype it was declared with.
  operator_& exactly();
  operator_& attribute(std::string name, double default_value);
  operator_& size(std::string name);
  operator_& loops(std::string text);
  /// Bodies compute these temporaries; the last instruction of the loop kernel makes the output of them and of `operands`.
  operator_& epilogue_of(std::vector<std::string> values, std::vector<std::string> operands = {});
  /// The loop kernel from those of other operators (graph/compose.h). Behind operands, attributes, sizes and epilogue_of.
  operator_& composed(const std::string& program, const Registry& of);
  /// Makes the loop kernel opaque: it says what is touched, `reference` what is computed.
  operator_& reference(Reference reference);
  operator_& tasks(std::vector<TaskAxis> axes);
  operator_& tasks(std::initializer_list<const char*> inames);
  /// Rows, counted by this axis, go to different elements of the inouts: whoever fills the tables that say where sees to
  /// that. So tasks of different rows need not wait for each other.
  operator_& scatters(std::string axis);
  operator_& body(std::string target, std::string file, std::string name,
                  std::function<bool(const BodyQuery&)> applies = {});
  operator_& body(TunedBody body);
  operator_& test(std::map<std::string, int64_t> sizes);
  operator Operator() const { return op_; }  // NOLINT: the builder is the declaration

 private:
  Operator op_;
};

/// The operators that a graph may use, by name. A copy shares them.
class Registry {
 public:
  const Operator& add(Operator op);
  /// The same, but takes the place of one of that name. Graphs that have that one keep it.
  const Operator& replace(Operator op);
  /// UserError naming near ones if there is none.
  const Operator& get(const std::string& name) const;
  bool has(const std::string& name) const { return operators_.contains(name); }
  std::vector<std::string> names() const;

 private:
  std::map<std::string, std::shared_ptr<const Operator>> operators_;
  std::vector<std::shared_ptr<const Operator>> replaced_;
};

}  // namespace megalith::graph
