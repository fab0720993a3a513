#include "megalith/codegen/loop_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/embedder.h"
#include "megalith/codegen/loop_emitter.h"
#include "megalith/codegen/source_text.h"
#include "megalith/loop/access.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/schedule.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::codegen {

using loop::Expr;
using loop::Kernel;
using loop::Space;
using loop::TensorArgument;

namespace {

// Each is proved to be inside of its tensor, or depends on data and is checked as it runs.
void check_subscripts(const Kernel& kernel) {
  for (const loop::Instruction& instruction : kernel.instructions)
    loop::visit_expressions(instruction, [&](const Expr& expr, const loop::Place&) {
      if (expr.kind != Expr::Kind::subscript) return;
      for (const Expr& arg : expr.args)
        MEGALITH_CHECK(loop::is_affine(kernel, arg) || loop::reads_tensor(arg),
                       "{} the subscript {} of {} is not affine, and no data are in it: fix the sizes in it, so that "
                       "it can be proved "
                       "to be inside",
                       loop::message_prefix(kernel.name), loop::print(arg), expr.name);
    });
}

void make_whole(Expr& expr) {
  expr.dtype = DType::i64;
  for (Expr& arg : expr.args) make_whole(arg);
}

void sort_reductions(Expr& expr, const std::vector<std::string>& order) {
  std::ranges::sort(expr.inames, {}, [&](const std::string& iname) { return std::ranges::find(order, iname); });
  for (Expr& arg : expr.args) sort_reductions(arg, order);
}

}  // namespace

// Types are inferred in instructions only. The order of the inames is written down, so that nobody has to find it again, and
// holds for reductions, too.
Kernel prepare_loops(Kernel kernel) {
  kernel.order = kernel.inames();
  for (TensorArgument& tensor : kernel.tensors)
    for (Expr& size : tensor.shape) {
      if (const auto number = loop::constant_value(size)) size = loop::make_integer(*number);
      make_whole(size);
    }
  for (loop::Instruction& instruction : kernel.instructions) {
    sort_reductions(instruction.value, kernel.order);
    if (instruction.condition) sort_reductions(*instruction.condition, kernel.order);
  }
  return kernel;
}

LoopEmitter::LoopEmitter(ExpressionContext& context, const loop::Parallel& parallel, LoopTarget target,
                         const std::string& name, const std::set<std::string>& aligned, std::vector<CheckText> checks)
    : NestWriter(context),
      kernel_(context.kernel),
      domains_(context.domains),
      parallel_(parallel),
      aligned_(aligned),
      is_gpu_(target != LoopTarget::cpu),
      is_emulated_(target == LoopTarget::emulated),
      storage_(kernel_, parallel_, is_gpu_, is_emulated_) {
  result_.name = name;
  result_.num_barriers = parallel_.num_barriers;
  result_.checks = std::move(checks);
  prefix_ = loop::message_prefix(kernel_.name);
  find_places();
  // An emulation computes the same without, and is not to be fast: a compiler takes minutes for six such loops in each other.
  std::ranges::copy_if(kernel_.order, std::back_inserter(unrolled_),
                       [this](const std::string& iname) { return is_unrolled(iname); });
  if (!is_emulated_) context_.unrolled.insert(unrolled_.begin(), unrolled_.end());
  const std::vector<std::string> names = all_names();
  while (std::ranges::find(names, context_.accumulator) != names.end()) context_.accumulator += "_";
}

LoopSource LoopEmitter::run() {
  check_names();
  open("");
  emit(parallel_.nest, {}, loop::parameter_context(kernel_));
  if (are_streamed_) line("finish_streams();");
  std::vector<std::string> lines;
  append_indented(lines, block().lines);
  result_.text = header() + fmt::format("{}\n", fmt::join(lines, "\n")) + (is_emulated_ ? "  }\n}\n" : "}\n");
  Embedder embedder(context_.dialect.replaced);
  for (const std::string& header : context_.dialect.headers) embedder.add(header);
  result_.prelude = embedder.text();
  if (is_kernel()) {
    // CUDA has an exp(float) of its own in the global namespace.
    result_.prelude += "namespace megalith::kernels {\n\n";
    result_.ending = "\n}  // namespace megalith::kernels\n";
  } else {
    result_.prelude += "using namespace megalith::kernels;\n\n";
  }
  for (size_t axis = 0; axis < 3; ++axis) result_.threads[axis] = parallel_.num_threads[axis + 3];
  find_blocks();
  return std::move(result_);
}

std::vector<std::string> LoopEmitter::all_names() const {
  std::vector<std::string> names = kernel_.inames();
  for (const TensorArgument& tensor : kernel_.tensors) names.push_back(tensor.name);
  for (const loop::Parameter& parameter : kernel_.parameters) names.push_back(parameter.name);
  for (const loop::Attribute& attribute : kernel_.attributes) names.push_back(attribute.name);
  for (const TensorArgument& tensor : kernel_.tensors)
    if (!tensor.storage.empty()) names.push_back(tensor.storage);
  names.push_back(result_.name);
  return names;
}

void LoopEmitter::check_names() const {
  for (const std::string& name : all_names())
    MEGALITH_CHECK(is_identifier(name) && !is_word_of_cpp(name) && !is_kept(name),
                   "{} \"{}\" has a meaning in generated code: rename it", prefix_, name);
  MEGALITH_CHECK(!kernel_.opaque, "{} is opaque: it says what it touches, and not what it computes", prefix_);
}

bool LoopEmitter::is_kept(const std::string& name) {
  static const std::set<std::string> kept = {
      "tensors",   "sizes",    "attributes", "megalith",  "floord",  "thread",     "block",      "blocks",
      "thread_at", "fma",      "clamp",      "kInfinity", "kLowest", "kHighest",   "to_f32",     "to_i64",
      "threadIdx", "blockIdx", "warp",       "blockDim",  "gridDim", "u8",         "u16",        "u32",
      "u64",       "f64",      "main",       "Pack",      "larger",  "smaller",    "fold",       "fold_unrolled",
      "argmax",    "Always",   "LoopFault",  "FaultNote", "faults",  "fault_note", "note_fault", "inside",
      "is_inside", "nonzero",  "is_nonzero"};
  return kept.contains(name) || name.starts_with("pack_of_");
}

void LoopEmitter::find_places() {
  for (const TensorArgument& tensor : kernel_.tensors) {
    Place& place = context_.places.of[tensor.name];
    place.text = tensor.name;
    place.dtype = *tensor.dtype;
    place.sizes = tensor.shape;
    place.vanished = storage_.axes_of_threads(tensor.name);
    if (const auto axis = parallel_.lane_axes.find(tensor.name); axis != parallel_.lane_axes.end())
      place.lanes_axis = axis->second;
    const bool is_of_thread = tensor.role == loop::Role::temporary && storage_.is_own(tensor.name) &&
                              parallel_.spaces.at(tensor.name) == Space::thread;
    if (is_emulated_ && is_of_thread) place.text += "[thread]";
    if (is_emulated_ && place.lanes_axis) place.text += fmt::format("[thread / {0} * {0} + {{}}]", loop::kWarpThreads);
  }
}

std::string LoopEmitter::header() {
  std::vector<std::string> parameters;
  std::string lines;
  const auto argument = [&](const TensorArgument& tensor, bool is_written) {
    const std::string type = fmt::format("{}{}*", is_written ? "" : "const ", element_type(*tensor.dtype));
    const bool is_aligned = aligned_.contains(tensor.name);
    if (is_kernel()) parameters.push_back(fmt::format("{} __restrict__ {}", type, tensor.name));
    if (is_kernel() && is_aligned)
      lines += fmt::format("  {0} = static_cast<{1}>(__builtin_assume_aligned({0}, 16));\n", tensor.name, type);
    if (!is_kernel())
      lines +=
          fmt::format("  {} __restrict__ const {} = static_cast<{}>({}tensors[{}]{});\n", type, tensor.name, type,
                      is_aligned ? "__builtin_assume_aligned(" : "", result_.tensors.size(), is_aligned ? ", 16)" : "");
    result_.tensors.push_back(tensor.name);
  };
  for (const TensorArgument& tensor : kernel_.tensors)
    if (tensor.role != loop::Role::temporary) argument(tensor, tensor.role != loop::Role::input);
  for (const TensorArgument& tensor : kernel_.tensors)
    if (tensor.role == loop::Role::temporary && !storage_.is_own(tensor.name)) {
      storage_.check_may_be_callers(tensor);
      argument(tensor, true);
      result_.scratch.push_back(tensor.name);
    }
  for (const loop::Parameter& parameter : kernel_.parameters) {
    if (is_kernel())
      parameters.push_back("i64 " + parameter.name);
    else
      lines += fmt::format("  const i64 {} = sizes[{}];\n", parameter.name, result_.sizes.size());
    result_.sizes.push_back(parameter.name);
  }
  for (const loop::Attribute& attribute : kernel_.attributes) {
    if (is_kernel())
      parameters.push_back("f32 " + attribute.name);
    else
      lines += fmt::format("  const f32 {} = attributes[{}];\n", attribute.name, result_.attributes.size());
    result_.attributes.push_back(attribute.name);
  }
  if (!result_.checks.empty()) {
    if (is_kernel())
      parameters.insert(parameters.begin() + static_cast<std::ptrdiff_t>(result_.tensors.size()),
                        "LoopFault* fault_note");
    lines += fmt::format(
        "  const FaultNote faults{{{}}};\n",
        is_kernel() ? "fault_note" : fmt::format("static_cast<LoopFault*>(tensors[{}])", result_.tensors.size()));
  }
  if (is_emulated_) lines += emulation();
  lines += storage_.declarations(packed_tensors_);
  if (!is_kernel())
    return fmt::format(
        "extern \"C\" void {}([[maybe_unused]] void* const* tensors, [[maybe_unused]] const i64* sizes,\n"
        "    [[maybe_unused]] const f32* attributes) {{\n{}",
        result_.name, lines);
  int64_t threads = 1;
  for (const int64_t number : parallel_.num_threads) threads *= number;
  return fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}({}) {{\n{}", threads, result_.name,
                     fmt::join(parameters, ", "), lines);
}

std::string LoopEmitter::emulation() const {
  const auto threads = [&](int axis) { return parallel_.num_threads[static_cast<size_t>(axis + 3)]; };
  return fmt::format(
      "  constexpr i64 kThreads = {3};\n  struct Index {{\n    i64 x, y, z;\n  }};\n  [[maybe_unused]] Index "
      "threadIdx{{}};\n"
      "  [[maybe_unused]] const auto thread_at = [](i64 t) {{ return Index{{t % {0}, t / {0} % {1}, t / ({0} * "
      "{1})}}; }};\n"
      "  const i64* const blocks = sizes + {2};\n  for (i64 block = blocks[0] * blocks[1] * blocks[2] - 1; block >= "
      "0; --block) {{\n"
      "  [[maybe_unused]] const Index blockIdx{{block % blocks[0], block / blocks[0] % blocks[1], "
      "block / (blocks[0] * blocks[1])}};\n",
      threads(0), threads(1), result_.sizes.size(), threads(0) * threads(1) * threads(2));
}

void LoopEmitter::find_blocks() {
  for (int axis = 0; axis < loop::kNumAxes; ++axis)
    for (const std::string& iname : parallel_.inames_along[static_cast<size_t>(axis)]) {
      if (!loop::is_block_axis(axis)) continue;
      const isl::set values = domains_.over({iname});
      if (values.is_empty()) continue;
      const isl::pw_aff most = isl::manage(isl_set_dim_max(values.copy(), 0));
      result_.last_block[static_cast<size_t>(axis)].push_back(loop::piecewise_affine(most, result_.sizes));
    }
}

void LoopSource::check_fault(const LoopFault& fault, const std::string& prefix) const {
  if (fault.found == 0) return;
  const CheckText& check = checks.at(fault.check);
  const std::string wrong = fault.extent < 0 ? fmt::format("by zero: {} is 0", check.value)
                                             : fmt::format("outside: index {} is {}, allowed 0 <= index < {}",
                                                           check.value, fault.value, fault.extent);
  throw UserError(
      fmt::format("{} it {} {}; nothing outside of a tensor was read or written, and what it wrote is of no use",
                  prefix, check.what, wrong));
}

std::array<int64_t, 3> LoopSource::blocks(const std::vector<int64_t>& values) const {
  std::array<int64_t, 3> result = {1, 1, 1};
  for (size_t axis = 0; axis < 3; ++axis)
    for (const loop::PiecewiseAffine& last : last_block[axis]) {
      int64_t most = 0;
      if (last.eval(values.data(), most)) result[axis] = std::max(result[axis], most + 1);
    }
  return result;
}

LoopSource emit_loops(const Kernel& with_rules, LoopTarget target, const std::string& name,
                      const std::set<std::string>& aligned) {
  const Kernel kernel = loop::realise_dealt_out(loop::without_rules(with_rules));
  MEGALITH_CHECK(!loop::has_stages(kernel),
                 "{} it has a barrier over everything, and is a function for each part: emit its stages",
                 loop::message_prefix(kernel.name));
  loop::check_scheduled(kernel);
  const Dialect dialect = loops_dialect(target == LoopTarget::cuda);
  Kernel checked = prepare_loops(kernel);
  check_subscripts(checked);
  std::vector<CheckText> checks = add_checks_where_needed(checked);
  ExpressionContext context(checked, dialect);
  const loop::Parallel parallel = loop::make_parallel(kernel);
  LoopSource source = LoopEmitter(context, parallel, target, name, aligned, std::move(checks)).run();
  source.text = comment_lines(loop::print(kernel)) + source.text;
  return source;
}

std::vector<LoopSource> emit_stages(const Kernel& with_rules, LoopTarget target, const std::string& name,
                                    const std::set<std::string>& aligned) {
  const Kernel kernel = loop::realise_dealt_out(loop::without_rules(with_rules));
  if (!loop::has_stages(kernel)) return {emit_loops(kernel, target, name, aligned)};
  std::vector<LoopSource> sources;
  for (const Kernel& stage : loop::split_stages(kernel))
    sources.push_back(emit_loops(stage, target, fmt::format("{}_{}", name, sources.size()), aligned));
  return sources;
}

std::string whole(const std::vector<LoopSource>& sources) {
  std::string text = sources.front().prelude;
  for (const LoopSource& source : sources) text += (&source == &sources.front() ? "" : "\n") + source.text;
  return text + sources.front().ending;
}

}  // namespace megalith::codegen
