#include "megalith/loop/interpret.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/loop/evaluate.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

// A node of the nest, ready to run.
struct Step {
  CompiledLoop loop;  // if the body is not empty
  std::vector<Step> body;

  const Instruction* instruction = nullptr;
  std::string prefix;  // of messages
  AffineSet guard;
  bool is_guarded = false;
  EvaluablePtr condition, value;
  std::unique_ptr<Location> target;
  std::optional<DType> whole;  // of the target, if that is whole numbers

  void run(int64_t* slots) const {
    if (instruction) {
      run_instruction(slots);
      return;
    }
    int64_t begin = 0, end = 0;
    loop.range.eval(slots, begin, end);
    for (int64_t i = begin; i < end; ++i) {
      slots[loop.slot] = i;
      for (const Step& step : body) step.run(slots);
    }
  }

  void run_instruction(int64_t* slots) const {
    if (is_guarded && !guard.contains(slots)) return;
    try {
      if (condition && condition->eval(slots) == 0) return;
      const double result = value->eval(slots);
      target->at(slots) = whole ? whole_number(result, *whole) : result;
    } catch (const EvaluationError& error) {
      throw UserError(fmt::format("{} instruction \"{}\": {}", prefix, instruction->id, error.message));
    }
  }
};

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, const Binding& binding, Arrays& arrays)
      : source_(kernel),
        binding_(binding),
        kernel_(bind_sizes(kernel, binding)),
        prefix_(message_prefix(kernel.name)),
        arrays_(arrays) {}

  /// All is compiled before any of it runs: a kernel with a mistake changes nothing.
  void prepare() {
    MEGALITH_CHECK(!kernel_.opaque, "{} is opaque: it states what it touches, not what it computes", prefix_);
    for (const Parameter& parameter : kernel_.parameters)
      throw UserError(fmt::format("{} the parameter \"{}\" has no value", prefix_, parameter.name));
    domains_.emplace(kernel_);
    for (TensorArgument& tensor : kernel_.tensors) prepare(tensor);

    const isl::set start = parameter_context(kernel_);
    for (const NestNode& node : build_nest(kernel_)) steps_.push_back(compile(node, {}, start));
  }
  void run() {
    std::vector<int64_t> slots(domains_->inames().size());
    for (const Step& step : steps_) step.run(slots.data());
  }

 private:
  const Kernel& source_;
  const Binding& binding_;
  Kernel kernel_;  // sizes bound
  std::string prefix_;
  Arrays& arrays_;  // the caller's
  Arrays temporaries_;
  std::map<std::string, Array*> visible_;  // what instructions see
  std::optional<Domains> domains_;
  std::vector<Step> steps_;

  void prepare(TensorArgument& tensor) {
    const auto given = tensor.role == Role::temporary ? arrays_.end() : arrays_.find(tensor.name);
    if (given != arrays_.end()) {
      check_shape(tensor, given->second);
      visible_[tensor.name] = &given->second;
      return;
    }
    MEGALITH_CHECK(tensor.role == Role::output || tensor.role == Role::temporary, "{} the {} \"{}\" is not given",
                   prefix_, tensor.role == Role::input ? "input" : "inout", tensor.name);
    if (!tensor.shape_known) tensor.shape = inferred_shape(kernel_, tensor.name);
    std::vector<int64_t> shape;
    for (const Expr& size : tensor.shape) shape.push_back(size_of(tensor, size));
    if (tensor.role == Role::output) {
      visible_[tensor.name] = &(arrays_[tensor.name] = Array::zeros(std::move(shape)));
    } else {
      Array& array = temporaries_[tensor.name] = Array::zeros(std::move(shape));
      std::ranges::fill(array.values, NAN);  // read before it is written: let it show
      visible_[tensor.name] = &array;
    }
  }

  int64_t size_of(const TensorArgument& tensor, const Expr& size) const {
    const auto value = constant_value(size);
    MEGALITH_CHECK(value, "{} the shape of {} needs a value for {}", prefix_, tensor.name, print(size));
    return std::max<int64_t>(*value, 0);
  }

  void check_shape(const TensorArgument& tensor, const Array& array) const {
    int64_t num_elements = 1;
    for (const int64_t extent : array.shape) num_elements *= extent;
    MEGALITH_CHECK(static_cast<int64_t>(array.values.size()) == num_elements,
                   "{} {} has {} values, its shape [{}] wants {}", prefix_, tensor.name, array.values.size(),
                   fmt::join(array.shape, ", "), num_elements);
    if (!tensor.shape_known) return;
    std::vector<int64_t> wanted;
    for (const Expr& size : tensor.shape) wanted.push_back(size_of(tensor, size));
    bool fits = wanted.size() == array.shape.size();
    for (size_t d = 0; fits && d < wanted.size(); ++d)
      fits = is_dynamic(tensor.name, d) ? array.shape[d] >= wanted[d] : array.shape[d] == wanted[d];
    MEGALITH_CHECK(fits, "{} {} has the shape [{}], wanted [{}]", prefix_, tensor.name, fmt::join(array.shape, ", "),
                   fmt::join(wanted, ", "));
  }

  // Whether a dynamic parameter has a say in the dimension: then the array has the largest value's extent.
  bool is_dynamic(const std::string& tensor, size_t dimension) const {
    const Expr& size = source_.find_tensor(tensor)->shape[dimension];
    return std::ranges::any_of(source_.parameters,
                               [&](const Parameter& p) { return p.dynamic && mentions(size, p.name); });
  }

  Step compile(const NestNode& node, std::vector<std::string> outer, const isl::set& implemented) {
    Step step;
    if (node.iname.empty()) {
      const Instruction& instruction = kernel_.instructions[static_cast<size_t>(node.instruction)];
      const CompileContext context{kernel_, binding_, *domains_, visible_, &instruction, instruction.within};
      const isl::set wanted = domains_->over(instruction.within);
      step.instruction = &instruction;
      step.prefix = prefix_;
      step.is_guarded = !implemented.is_subset(wanted);
      if (step.is_guarded) step.guard = affine_set(wanted.gist(implemented), domains_->inames());
      if (instruction.condition) step.condition = compile_expression(*instruction.condition, context);
      step.value = compile_expression(instruction.value, context);
      step.target = compile_location(instruction.target, context, true);
      const std::optional<DType> dtype = kernel_.find_tensor(instruction.target.name)->dtype;
      if (dtype && !dtype_is_float(*dtype)) step.whole = dtype;
      return step;
    }
    outer.push_back(node.iname);
    const std::vector<std::string>& names = domains_->inames();
    const isl::set domain = loop_domain(*domains_, kernel_, node, {outer.begin(), outer.end() - 1});
    LoopBounds bounds;
    step.loop.slot = static_cast<int>(std::ranges::find(names, node.iname) - names.begin());
    step.loop.range = last_dimension_range(domain, names, &bounds.implemented);
    const isl::set inside = enter_loop(implemented, bounds);
    for (const NestNode& child : node.body) step.body.push_back(compile(child, outer, inside));
    return step;
  }
};

}  // namespace

Array Array::zeros(std::vector<int64_t> shape) {
  constexpr int64_t kMaxElements = int64_t{1} << 40;
  int64_t num_elements = 1;
  for (const int64_t extent : shape)
    MEGALITH_CHECK(
        extent >= 0 && !__builtin_mul_overflow(num_elements, extent, &num_elements) && num_elements <= kMaxElements,
        "[array] an array of shape [{}] is too large", fmt::join(shape, ", "));
  Array array;
  array.shape = std::move(shape);
  array.values.resize(static_cast<size_t>(num_elements));
  return array;
}

void interpret(const Kernel& kernel, const Binding& binding, Arrays& arrays) {
  const Kernel plain = without_rules(kernel);
  Interpreter interpreter(plain, binding, arrays);
  with_isl_limit(kernel.name, [&] { interpreter.prepare(); });
  interpreter.run();
}

double& element(Arrays& arrays, const std::string& tensor, const std::vector<int64_t>& index) {
  Array& array = arrays.at(tensor);
  MEGALITH_ASSERT(index.size() == array.shape.size(), "{} has {} dimensions", tensor, array.shape.size());
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    MEGALITH_CHECK(index[d] >= 0 && index[d] < array.shape[d], "{}[{}] outside its shape [{}]", tensor,
                   fmt::join(index, ", "), fmt::join(array.shape, ", "));
    offset = offset * array.shape[d] + index[d];
  }
  return array.values[static_cast<size_t>(offset)];
}

}  // namespace megalith::loop
