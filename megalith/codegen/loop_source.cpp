#include "megalith/codegen/loop_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"
#include "megalith/codegen/loop_expression.h"
#include "megalith/codegen/loop_pack.h"
#include "megalith/codegen/loop_storage.h"
#include "megalith/codegen/source_text.h"
#include "megalith/kernels/embedded.h"
#include "megalith/loop/access.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/implied.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/parallel.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::codegen {

namespace {

using loop::Expr;
using loop::InameTag;
using loop::Kernel;
using loop::NestNode;
using loop::Space;
using loop::TensorArgument;

constexpr const char* kAxes[] = {"blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"};

// "max(a, max(b, c))".
std::string folded(const std::vector<std::string>& bounds, const char* combine) {
  std::string text = bounds.back();
  for (size_t i = bounds.size() - 1; i-- > 0;) text = fmt::format("{}({}, {})", combine, bounds[i], text);
  return text;
}

void make_whole(Expr& expr) {
  expr.dtype = DType::i64;
  for (Expr& arg : expr.args) make_whole(arg);
}

// Types are inferred in instructions only. The order of the inames is written down, so that nobody has to find it again.
Kernel with_whole_shapes(Kernel kernel) {
  kernel.order = kernel.inames();
  for (TensorArgument& tensor : kernel.tensors)
    for (Expr& size : tensor.shape) {
      if (const auto number = loop::constant_value(size)) size = loop::make_integer(*number);
      make_whole(size);
    }
  return kernel;
}

class LoopEmitter {
 public:
  LoopEmitter(const Kernel& kernel, LoopTarget target, const std::string& name, const std::set<std::string>& aligned)
      : kernel_(with_whole_shapes(kernel)),
        aligned_(aligned),
        is_gpu_(target != LoopTarget::cpu),
        is_emulated_(target == LoopTarget::emulated),
        domains_(kernel_),
        parallel_(loop::make_parallel(kernel)),
        storage_(kernel_, parallel_, is_gpu_, is_emulated_),
        expressions_(
            kernel_,
            [this](const std::string& tensor, const std::vector<std::string>& index) { return element(tensor, index); },
            [this](const Expr& reduce) { return reduction(reduce); }) {
    result_.name = name;
    result_.num_barriers = parallel_.num_barriers;
    prefix_ = loop::message_prefix(kernel.name);
    comment_ = comment_lines(loop::print(kernel));
  }

  LoopSource run() {
    check_names();
    emit(parallel_.nest, {}, loop::parameter_context(kernel_));
    result_.text = header();
    result_.text += body_ + (is_emulated_ ? "  }\n}\n" : "}\n");
    if (is_kernel()) result_.prelude = kernels::embedded_source("kernels/cuda/arch/builtins.cuh");
    result_.prelude += kernels::embedded_source("kernels/cpu/prelude.h");
    result_.prelude += kernels::embedded_source("kernels/cpu/loops.h");
    if (is_kernel()) {
      // CUDA has an exp(float) of its own in the global namespace.
      result_.prelude += "namespace megalith::kernels {\n\n";
      result_.ending = "\n}  // namespace megalith::kernels\n";
    } else {
      result_.prelude += "using namespace megalith::kernels;\n\n";
    }
    // What headers need of each other is all there.
    for (const char* line : {"#pragma once\n", "#include \"megalith/"})
      for (size_t at; (at = result_.prelude.find(line)) != std::string::npos;)
        result_.prelude.erase(at, result_.prelude.find('\n', at) + 1 - at);
    for (size_t axis = 0; axis < 3; ++axis) result_.threads[axis] = parallel_.num_threads[axis + 3];
    find_blocks();
    return std::move(result_);
  }

 private:
  const Kernel kernel_;
  const std::set<std::string>& aligned_;
  const bool is_gpu_, is_emulated_;
  loop::Domains domains_;
  loop::Parallel parallel_;
  LoopStorage storage_;
  LoopExpressions expressions_;
  LoopSource result_;
  std::string prefix_, comment_, body_, declarations_;
  int depth_ = 1, num_reductions_ = 0;
  const loop::Instruction* instruction_ = nullptr;
  std::set<std::string> packed_tensors_;  // some of whose elements move at once
  std::map<std::string, std::string>
      packed_;               // of the statement that is being written: what was read at once, by its text
  std::string target_pack_;  // what it writes instead of its target; "" for that
  int num_packs_ = 0;
  isl::set implemented_;  // around the statement that is being written
  std::vector<std::string> outer_;

  void line(const std::string& text) { body_ += std::string(static_cast<size_t>(2 * depth_), ' ') + text + "\n"; }
  void open(const std::string& text) {
    line(text + " {");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }

  // ---- names and tensors --------------------------------------------------------------------------------------------

  void check_names() const {
    std::vector<std::string> names = kernel_.inames();
    for (const TensorArgument& tensor : kernel_.tensors) names.push_back(tensor.name);
    for (const loop::Parameter& parameter : kernel_.parameters) names.push_back(parameter.name);
    for (const loop::Attribute& attribute : kernel_.attributes) names.push_back(attribute.name);
    for (const TensorArgument& tensor : kernel_.tensors)
      if (!tensor.storage.empty()) names.push_back(tensor.storage);
    names.push_back(result_.name);
    for (const std::string& name : names)
      MEGALITH_CHECK(is_identifier(name) && !is_word_of_cpp(name) && !is_kept(name),
                     "{} \"{}\" has a meaning in generated code: rename it", prefix_, name);
    MEGALITH_CHECK(!kernel_.opaque, "{} is opaque: it says what it touches, and not what it computes", prefix_);
  }
  static bool is_kept(const std::string& name) {
    static const std::set<std::string> kept = {
        "tensors",   "sizes",    "attributes", "megalith",  "floord",  "thread",   "block",  "blocks",
        "thread_at", "fma",      "clamp",      "kInfinity", "kLowest", "kHighest", "to_f32", "to_i64",
        "threadIdx", "blockIdx", "warp",       "blockDim",  "gridDim", "u8",       "u16",    "u32",
        "u64",       "f64",      "main",       "Pack",      "larger",  "smaller"};
    return kept.contains(name) || name.starts_with("sum_of_") || name.starts_with("pack_of_");
  }

  const TensorArgument& tensor(const std::string& name) const { return *kernel_.find_tensor(name); }
  std::string element(const std::string& name, const std::vector<std::string>& index) const {
    std::string flat;
    for (size_t d = 0; d < index.size(); ++d) {
      if (storage_.is_contracted(name, d)) continue;
      if (flat.empty()) {
        flat = index[d];
        continue;
      }
      const bool is_first = index[d] == "0";
      const std::string size = expressions_.as_whole(tensor(name).shape[d]);
      const bool is_whole = flat.find(' ') == std::string::npos;
      flat =
          fmt::format("{} * {}{}", is_whole ? flat : "(" + flat + ")",
                      size.find(' ') == std::string::npos ? size : "(" + size + ")", is_first ? "" : " + " + index[d]);
    }
    const bool is_of_thread = is_emulated_ && storage_.is_own(name);
    std::string of_thread = is_of_thread && parallel_.spaces.at(name) == Space::thread ? "[thread]" : "";
    const auto lane_axis = parallel_.lane_axes.find(name);
    const std::string lane = lane_axis == parallel_.lane_axes.end() ? "" : index[lane_axis->second];
    if (is_of_thread && !lane.empty()) of_thread = fmt::format("[thread / {0} * {0} + {1}]", loop::kWarpThreads, lane);
    std::string text = fmt::format("{}{}[{}]", name, of_thread, flat.empty() ? "0" : flat);
    if (is_kernel() && !lane.empty()) {
      const auto exchanged = packed_.find(text + "@" + lane);
      return exchanged == packed_.end() ? text : exchanged->second;
    }
    const auto packed = packed_.find(text);
    return packed == packed_.end() ? text : packed->second;
  }

  std::string header() {
    std::vector<std::string> parameters;
    std::string lines;
    const auto argument = [&](const TensorArgument& tensor, bool is_written) {
      const std::string type =
          fmt::format("{}{}*", is_written ? "" : "const ", LoopExpressions::element_type(*tensor.dtype));
      const bool is_aligned = aligned_.contains(tensor.name);
      if (is_kernel()) parameters.push_back(fmt::format("{} __restrict__ {}", type, tensor.name));
      if (is_kernel() && is_aligned)
        lines += fmt::format("  {0} = static_cast<{1}>(__builtin_assume_aligned({0}, 16));\n", tensor.name, type);
      if (!is_kernel())
        lines += fmt::format("  {} __restrict__ const {} = static_cast<{}>({}tensors[{}]{});\n", type, tensor.name,
                             type, is_aligned ? "__builtin_assume_aligned(" : "", result_.tensors.size(),
                             is_aligned ? ", 16)" : "");
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
    if (is_emulated_) lines += emulation();
    lines += storage_.declarations(packed_tensors_);
    if (!is_kernel())
      return fmt::format(
          "{}extern \"C\" void {}([[maybe_unused]] void* const* tensors, [[maybe_unused]] const i64* sizes,\n"
          "    [[maybe_unused]] const f32* attributes) {{\n{}",
          comment_, result_.name, lines);
    int64_t threads = 1;
    for (const int64_t number : parallel_.num_threads) threads *= number;
    return fmt::format("{}extern \"C\" __global__ void __launch_bounds__({}) {}({}) {{\n{}", comment_, threads,
                       result_.name, fmt::join(parameters, ", "), lines);
  }

  bool is_kernel() const { return is_gpu_ && !is_emulated_; }

  // The grid, around everything.
  std::string emulation() const {
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

  // ---- the nest -----------------------------------------------------------------------------------------------------

  // Who waits for each other inside of the node: the threads of a block, those of a warp, or none.
  enum Scope { kBlock, kWarp, kThread };
  static Scope scope_of(const NestNode& node) {
    if (node.iname.empty()) return node.instruction >= 0 ? kThread : node.is_warp_barrier ? kWarp : kBlock;
    Scope scope = kThread;
    for (const NestNode& child : node.body) scope = std::min(scope, scope_of(child));
    return scope;
  }

  // In an emulation what stands between barriers is run by one thread after the other, and what stands between barriers of
  // the block by one warp after the other.
  void emit(std::span<const NestNode> nodes, const std::vector<std::string>& outer, const isl::set& implemented) {
    for (size_t i = 0; i < nodes.size();) {
      if (!is_emulated_ || scope_ == kThread || scope_of(nodes[i]) == scope_) {
        emit(nodes[i++], outer, implemented);
        continue;
      }
      size_t end = i;
      Scope inside = kThread;
      for (; end < nodes.size() && scope_of(nodes[end]) > scope_; ++end)
        inside = std::min(inside, scope_of(nodes[end]));
      const Scope before = std::exchange(scope_, inside);
      if (inside == kWarp) {
        open(fmt::format("for (i64 warp = (kThreads - 1) / {}; warp >= 0; --warp)", loop::kWarpThreads));
      } else if (before == kWarp) {
        open(fmt::format("for (i64 thread = min(kThreads, {0} * (warp + 1)) - 1; thread >= {0} * warp; --thread)",
                         loop::kWarpThreads));
      } else {
        open("for (i64 thread = kThreads - 1; thread >= 0; --thread)");
      }
      if (inside == kThread) line("threadIdx = thread_at(thread);");
      emit(nodes.subspan(i, end - i), outer, implemented);
      close();
      scope_ = before;
      i = end;
    }
  }
  Scope scope_ = kBlock;  // around what is being written, in an emulation

  void emit(const NestNode& node, std::vector<std::string> outer, const isl::set& implemented) {
    if (node.iname.empty() && node.instruction < 0) {
      if (is_emulated_)
        line(node.is_warp_barrier ? "// barrier of a warp" : "// barrier");
      else if (is_gpu_)
        line(node.is_warp_barrier ? "__syncwarp();" : "__syncthreads();");
      return;
    }
    if (node.iname.empty()) {
      emit_instruction(static_cast<size_t>(node.instruction), implemented);
      return;
    }
    const int before = depth_;
    if (axis_of(node)) {
      emit_axes(node, outer, implemented);
    } else {
      const isl::set wanted = narrowed(loop::loop_domain(domains_, kernel_, node, outer), implemented);
      const loop::LoopBounds bounds =
          keeps_elements(node) ? whole_bounds(node.iname, wanted, outer) : loop::loop_bounds(wanted, node.iname, outer);
      outer.push_back(node.iname);
      const isl::set inside = loop::enter_loop(implemented, bounds);
      if (!emit_packs(node, bounds, outer, inside)) {
        open_loop(node.iname, bounds);
        emit(node.body, outer, inside);
      }
    }
    while (depth_ > before) close();
  }

  // An unrolled loop over what a thread keeps has all iterations, with conditions inside: in registers every index is a number.
  bool keeps_elements(const NestNode& node) const {
    if (node.iname.empty()) return false;
    const std::function<bool(const NestNode&)> is_in = [&](const NestNode& inner) {
      if (!inner.iname.empty() || inner.instruction < 0) return std::ranges::any_of(inner.body, is_in);
      return keeps_elements(kernel_.instructions[static_cast<size_t>(inner.instruction)], node.iname);
    };
    return is_unrolled(node.iname) && is_in(node);
  }
  bool keeps_elements(const loop::Instruction& instruction, const std::string& iname) const {
    bool found = false;
    loop::visit_expressions(instruction, [&](const Expr& expr, const loop::Place&) {
      const auto space = parallel_.spaces.find(expr.name);
      if (expr.kind == Expr::Kind::subscript && space != parallel_.spaces.end() && space->second == Space::thread)
        found |= loop::mentions(expr, iname);
    });
    return found;
  }
  bool is_unrolled(const std::string& iname) const {
    const InameTag tag = loop::tag_of(kernel_, iname);
    return is_gpu_ && (tag == InameTag::unroll || tag == InameTag::interleave || tag == InameTag::vector);
  }
  // From the least to the largest value that there may be; what `wanted` says if those are no numbers.
  loop::LoopBounds whole_bounds(const std::string& iname, const isl::set& wanted,
                                const std::vector<std::string>& outer) const {
    const isl::set values = domains_.over({iname});
    const isl::val least = isl::manage(isl_set_dim_min_val(values.copy(), 0)),
                   most = isl::manage(isl_set_dim_max_val(values.copy(), 0));
    if (!least.is_int() || !most.is_int()) return loop::loop_bounds(wanted, iname, outer);
    const auto last = static_cast<unsigned>(isl_set_dim(wanted.get(), isl_dim_set)) - 1;
    isl_set* all = isl_set_universe(wanted.space().release());
    all = isl_set_lower_bound_val(all, isl_dim_set, last, least.copy());
    all = isl_set_upper_bound_val(all, isl_dim_set, last, most.copy());
    return {.lower = {fmt::format("{}", isl_val_get_num_si(least.get()))},
            .upper = {fmt::format("{}", isl_val_get_num_si(most.get()) + 1)},
            .implemented = isl::manage(all)};
  }

  // A loop tagged vec whose elements move at once, if some do. On a GPU: loads before it, a store behind; on a CPU the vectors
  // of the compiler take its place, which it keeps in registers as it does not what a loop makes.
  bool emit_packs(const NestNode& node, const loop::LoopBounds& bounds, const std::vector<std::string>& outer,
                  const isl::set& inside) {
    if (loop::tag_of(kernel_, node.iname) != InameTag::vector) return false;
    if (node.body.size() != 1 || node.body[0].instruction < 0) return false;
    const auto index = static_cast<size_t>(node.body[0].instruction);
    const loop::Instruction& instruction = kernel_.instructions[index];
    const isl::set wanted = loop::project_dimensions(domains_.over(instruction.within), instruction.within);
    const isl::val most = isl::manage(isl_set_dim_max_val(domains_.over({node.iname}).release(), 0));
    if (instruction.condition || !most.is_int() || bounds.lower != std::vector<std::string>{"0"} ||
        !loop::guards(wanted, inside).empty() || !tests_of_axes(index).empty())
      return false;
    const int64_t count = isl_val_get_num_si(most.get()) + 1;
    std::vector<std::string> ends = bounds.upper;
    if (count < 2 || std::erase(ends, fmt::format("{}", count)) != 1) return false;
    constexpr int64_t kMaxGpuBytes = 16, kMaxCpuBytes = 32;  // ld.global.v4, and AVX's vectors
    const std::function<int64_t(const std::string&)> begins = [this](const std::string& name) {
      return bytes_aligned(name);
    };
    const std::vector<PackAccess> accesses =
        find_packs(kernel_, instruction, node.iname, count, is_gpu_ ? kMaxGpuBytes : kMaxCpuBytes, wanted,
                   is_gpu_ ? begins : nullptr,
                   [this](const std::string& name, size_t axis) { return storage_.is_contracted(name, axis); });
    if (!is_gpu_ && ((count & (count - 1)) != 0 || !is_of_vectors(kernel_, instruction, node.iname, accesses)))
      return false;
    if (accesses.empty()) return false;

    const bool is_whole = ends.empty();
    if (!is_whole)
      open(fmt::format("if ({} >= {})", folded(ends, "min"), count));
    else if (is_gpu_)
      line("{"), ++depth_;
    if (is_gpu_)
      emit_whole_packs(node, accesses, bounds, outer, inside, count);
    else
      emit_whole_vector(instruction, accesses, count);
    if (is_whole) return true;
    close();
    body_.pop_back();
    body_ += " else {\n";
    ++depth_;
    open_loop(node.iname, bounds);
    emit(node.body, outer, inside);
    return true;
  }

  void emit_whole_packs(const NestNode& node, const std::vector<PackAccess>& accesses, const loop::LoopBounds& bounds,
                        const std::vector<std::string>& outer, const isl::set& inside, int64_t count) {
    std::map<std::string, std::string> packs;
    std::string store;
    for (const PackAccess& access : accesses) {
      const std::string text = expressions_.element(access.subscript);
      if (!access.is_write && packs.contains(text)) continue;
      const std::string& tensor_name = access.subscript.name;
      packed_tensors_.insert(tensor_name);
      const std::string name = fmt::format("pack_of_{}_{}", tensor_name, num_packs_++),
                        type = LoopExpressions::element_type(*tensor(tensor_name).dtype),
                        first = expressions_.element(access.first);
      if (access.is_write) {
        line(fmt::format("Pack<{}, {}> {};", type, count, name));
        target_pack_ = fmt::format("{}.at[{}]", name, node.iname);
        store = fmt::format("store_pack(&{}, {});", first, name);
      } else {
        line(fmt::format("const Pack<{0}, {1}> {2} = load_pack<{1}>(&{3});", type, count, name, first));
        packs[text] = fmt::format("{}.at[{}]", name, node.iname);
      }
    }
    packed_ = std::move(packs);
    open_loop(node.iname, {.lower = {"0"}, .upper = {fmt::format("{}", count)}, .implemented = bounds.implemented});
    emit(node.body, outer, inside);
    close();
    packed_.clear();
    target_pack_.clear();
    if (!store.empty()) line(store);
  }

  void emit_whole_vector(const loop::Instruction& instruction, const std::vector<PackAccess>& accesses, int64_t count) {
    std::map<std::string, std::string> vectors;
    std::string to;
    for (const PackAccess& access : accesses) {
      const std::string first = expressions_.element(access.first);
      if (access.is_write)
        to = first;
      else
        vectors[expressions_.element(access.subscript)] = fmt::format("load_vector<{}>(&{})", count, first);
    }
    packed_ = std::move(vectors);
    std::string value = expressions_.as_float(instruction.value);
    if (value.find("load_vector<") == std::string::npos) value = fmt::format("broadcast<{}>({})", count, value);
    packed_.clear();
    line(fmt::format("store_vector<{}>(&{}, {});", count, to, value));
  }

  // At a multiple of how many bytes the tensor begins, if its elements may move at once.
  int64_t bytes_aligned(const std::string& name) const {
    if (tensor(name).role != loop::Role::temporary) return aligned_.contains(name) ? 16 : 0;
    return storage_.is_own(name) && parallel_.spaces.at(name) == Space::block ? 16 : 0;
  }

  std::optional<int> axis_of(const NestNode& node) const {
    return is_gpu_ && !node.iname.empty() ? loop::axis_of(kernel_, node.iname) : std::nullopt;
  }

  // `set`, of one dimension more than `implemented`, as far as the loops around get there: bounds that follow from theirs go.
  static isl::set narrowed(const isl::set& set, const isl::set& implemented) {
    isl::set wider = isl::manage(isl_set_add_dims(implemented.copy(), isl_dim_set, 1));
    return loop::without_implied(
        set.intersect(isl::manage(isl_set_reset_space(wider.release(), set.space().release()))));
  }

  void open_loop(const std::string& iname, const loop::LoopBounds& bounds) {
    const InameTag tag = loop::tag_of(kernel_, iname);
    if (tag == InameTag::unroll || tag == InameTag::interleave || (tag == InameTag::vector && is_gpu_))
      line(is_gpu_ && !is_emulated_ ? "#pragma unroll" : "#pragma GCC unroll 64");
    else if (tag == InameTag::vector && !is_gpu_)
      line("MEGALITH_INDEPENDENT");
    open(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0})", iname, folded(bounds.lower, "max"),
                     folded(bounds.upper, "min")));
  }

  // Inames that are the index along an axis, as long as one has nothing but the next one inside; an if where some index
  // has no iteration.
  void emit_axes(const NestNode& first, std::vector<std::string> outer, isl::set implemented) {
    line("{");
    ++depth_;
    std::vector<std::string> tests;
    const NestNode* node = &first;
    for (;; node = &node->body[0]) {
      const int axis = *axis_of(*node);
      const isl::set wanted = loop::loop_domain(domains_, kernel_, *node, outer);
      outer.push_back(node->iname);
      const isl::set domain = loop::project_dimensions(wanted, outer);
      const isl::set around = narrowed(indices(node->iname, axis, domain), implemented);
      line(fmt::format("const i64 {} = {};", node->iname, kAxes[axis]));
      const std::vector<std::string> more = loop::guards(domain, around);
      tests.insert(tests.end(), more.begin(), more.end());
      implemented = more.empty() ? around : around.intersect(domain);
      if (node->body.size() != 1 || !axis_of(node->body[0])) break;
    }
    const bool is_alone = node->body.size() == 1 && node->body[0].instruction >= 0;
    if (is_alone) exchange_lanes(static_cast<size_t>(node->body[0].instruction));
    if (!tests.empty()) open(fmt::format("if ({})", fmt::join(tests, " && ")));
    emit(node->body, outer, implemented);
  }

  // What the instruction reads of other lanes, before any condition: all of a warp take part.
  void exchange_lanes(size_t index) {
    if (!is_kernel() || exchanged_ == static_cast<int>(index)) return;
    exchanged_ = static_cast<int>(index);
    loop::visit_expressions(kernel_.instructions[index], [&](const Expr& expr, const loop::Place& place) {
      const auto axis = parallel_.lane_axes.find(expr.name);
      if (expr.kind != Expr::Kind::subscript || place.is_target || axis == parallel_.lane_axes.end() ||
          parallel_.is_own_lane(kernel_, index, expr.args[axis->second]))
        return;
      const DType dtype = *tensor(expr.name).dtype;
      MEGALITH_CHECK(dtype == DType::f32 || dtype == DType::i32 || dtype == DType::i64,
                     "{} {} is in lanes and of type {}: lanes exchange f32, i32 and i64; make it shared", prefix_,
                     expr.name, dtype_name(dtype));
      const std::string own = expressions_.element(expr), lane = expressions_.as_whole(expr.args[axis->second]),
                        name = fmt::format("pack_of_{}_{}", expr.name, num_packs_++);
      line(fmt::format("const {} {} = __shfl_sync(0xffffffffu, {}, static_cast<int>({}) & {});",
                       LoopExpressions::element_type(dtype), name, own, lane, loop::kWarpThreads - 1));
      packed_[own + "@" + lane] = name;
    });
  }
  int exchanged_ = -1;  // the instruction whose elements of other lanes are there

  // 0 up to the largest index along the axis, as far as that is one iname's. A grid has a block 0 even where the iname has
  // no value, and a block for each value that is left out below the largest.
  isl::set indices(const std::string& iname, int axis, const isl::set& like) const {
    const auto last = static_cast<unsigned>(isl_set_dim(like.get(), isl_dim_set)) - 1;
    isl_set* set = isl_set_lower_bound_si(isl_set_universe(like.space().release()), isl_dim_set, last, 0);
    if (!loop::is_block_axis(axis))
      return isl::manage(isl_set_upper_bound_si(
          set, isl_dim_set, last, static_cast<int>(parallel_.num_threads[static_cast<size_t>(axis)]) - 1));
    if (parallel_.inames_along[static_cast<size_t>(axis)].size() > 1) return isl::manage(set);
    isl_set* values = domains_.over({iname}).release();
    isl_set* first = isl_set_fix_si(isl_set_universe(isl_set_get_space(values)), isl_dim_set, 0, 0);
    first = isl_set_intersect_params(first, domains_.context().params().release());
    values = isl_set_apply(values, isl_map_lex_ge(isl_set_get_space(values)));
    values = isl_set_coalesce(isl_set_union(isl_set_lower_bound_si(values, isl_dim_set, 0, 0), first));
    if (isl_set_n_basic_set(values) != 1) {  // may have none: conditions say it better
      isl_set_free(values);
      return isl::manage(set);
    }
    values = isl_set_insert_dims(values, isl_dim_set, 0, last);
    values = isl_set_reset_space(values, like.space().release());
    return isl::manage(isl_set_intersect(set, values));
  }

  void emit_instruction(size_t index, const isl::set& implemented) {
    const loop::Instruction& instruction = kernel_.instructions[index];
    instruction_ = &instruction;
    exchange_lanes(index);
    const isl::set wanted = loop::project_dimensions(domains_.over(instruction.within), instruction.within);
    std::vector<std::string> tests = loop::guards(wanted, implemented);
    const isl::set done = tests.empty() ? implemented : implemented.intersect(wanted.gist(implemented));
    MEGALITH_ASSERT(done.is_equal(wanted), "{} instruction \"{}\": loops and conditions do not run its domain", prefix_,
                    instruction.id);
    implemented_ = wanted;
    outer_ = instruction.within;
    const std::vector<std::string> of_axes = tests_of_axes(index);
    tests.insert(tests.end(), of_axes.begin(), of_axes.end());
    if (!tests.empty()) open(fmt::format("if ({})", fmt::join(tests, " && ")));
    const int before = depth_;
    if (instruction.condition) {
      const std::string text = expressions_.condition(*instruction.condition);
      open(fmt::format("if ({})", text));
    }
    const DType dtype = *tensor(instruction.target.name).dtype;
    const std::string value = expressions_.stored(instruction.value, dtype);
    line(
        fmt::format("{} = {};", target_pack_.empty() ? expressions_.element(instruction.target) : target_pack_, value));
    while (depth_ > before) close();
    if (!tests.empty()) close();
    if (exchanged_ == static_cast<int>(index)) packed_.clear();
    exchanged_ = -1;
  }

  // Axes that the instruction is not within, and runs at the beginning of.
  std::vector<std::string> tests_of_axes(size_t index) const {
    std::vector<std::string> tests;
    for (int axis = 0; is_gpu_ && axis < loop::kNumAxes; ++axis) {
      const auto at = static_cast<size_t>(axis);
      const bool is_one = !loop::is_block_axis(axis) && parallel_.num_threads[at] == 1;
      if (parallel_.has_axis[at] && !is_one && parallel_.iname(index, axis).empty() &&
          !parallel_.is_in_all(kernel_, index, axis))
        tests.push_back(fmt::format("{} == 0", kAxes[axis]));
    }
    return tests;
  }

  // ---- reductions ---------------------------------------------------------------------------------------------------

  // A lambda, called where its value is wanted: behind an `if` it may not be evaluated at all.
  std::string reduction(const Expr& reduce) {
    const std::string name = fmt::format("sum_of_{}_{}", fmt::join(reduce.inames, "_"), num_reductions_++);
    const isl::set around = implemented_;
    const std::vector<std::string> outer = outer_;
    const bool is_argmax = reduce.reduce == loop::ReduceOp::argmax;
    const bool floats = LoopExpressions::is_float(is_argmax ? reduce.args[0] : reduce);
    const char* type = floats ? "f32" : "i64";
    const bool is_sum = reduce.reduce == loop::ReduceOp::sum;
    const char* start = is_sum                                 ? (floats ? "0.0f" : "0")
                        : reduce.reduce == loop::ReduceOp::min ? (floats ? "kInfinity" : "kHighest")
                                                               : (floats ? "-kInfinity" : "kLowest");
    open(fmt::format("const auto {} = [&]", name));
    line(fmt::format("{} result = {};", type, start));
    if (is_argmax) {
      line("i64 where = 0;");
      line("bool found = false;");
    }
    std::vector<std::string> all = outer;
    for (const std::string& iname : domains_.sorted(reduce.inames)) all.push_back(iname);
    const isl::set domain = loop::project_dimensions(domains_.over(all), all);
    int opened = 0;
    for (const std::string& iname : domains_.sorted(reduce.inames)) {
      std::vector<std::string> onto = outer_;
      onto.push_back(iname);
      const isl::set wanted = narrowed(loop::project_dimensions(domain, onto), implemented_);
      const loop::LoopBounds bounds = is_unrolled(iname) && keeps_elements(*instruction_, iname)
                                          ? whole_bounds(iname, wanted, outer_)
                                          : loop::loop_bounds(wanted, iname, outer_);
      open_loop(iname, bounds);
      ++opened;
      implemented_ = loop::enter_loop(implemented_, bounds);
      outer_.push_back(iname);
    }
    if (const auto tests = loop::guards(domain, implemented_); !tests.empty()) {
      open(fmt::format("if ({})", fmt::join(tests, " && ")));
      ++opened;
    }
    implemented_ = domain;
    if (reduce.args.size() == 2) {
      open(fmt::format("if ({})", expressions_.condition(reduce.args[1])));
      ++opened;
    }
    const std::string term = floats ? expressions_.as_float(reduce.args[0]) : expressions_.as_whole(reduce.args[0]);
    if (is_sum) {
      line(fmt::format("result += {};", term));
    } else if (is_argmax) {
      const char* is_first_number = floats ? " || (result != result && term == term)" : "";
      open(fmt::format("if (const {} term = {}; !found || term > result{})", type, term, is_first_number));
      line("result = term;");
      line(fmt::format("where = {};", reduce.inames[0]));
      line("found = true;");
      close();
    } else {
      const bool is_max = reduce.reduce == loop::ReduceOp::max;
      line(fmt::format("result = {}(result, {});", floats ? (is_max ? "larger" : "smaller") : (is_max ? "max" : "min"),
                       term));
    }
    while (opened-- > 0) close();
    line(is_argmax ? "return where;" : "return result;");
    --depth_;
    line("};");
    implemented_ = around;
    outer_ = outer;
    return name + "()";
  }

  // ---- the grid -----------------------------------------------------------------------------------------------------

  void find_blocks() {
    for (int axis = 0; axis < loop::kNumAxes; ++axis)
      for (const std::string& iname : parallel_.inames_along[static_cast<size_t>(axis)]) {
        if (!loop::is_block_axis(axis)) continue;
        const isl::set values = domains_.over({iname});
        if (values.is_empty()) continue;
        const isl::pw_aff most = isl::manage(isl_set_dim_max(values.copy(), 0));
        result_.last_block[static_cast<size_t>(axis)].push_back(loop::piecewise_affine(most, result_.sizes));
      }
  }
};

}  // namespace

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
  const Kernel kernel = loop::without_rules(with_rules);
  MEGALITH_CHECK(!loop::has_stages(kernel),
                 "{} it has a barrier over everything, and is a function for each part: emit its stages",
                 loop::message_prefix(kernel.name));
  loop::check_scheduled(kernel);
  return LoopEmitter(kernel, target, name, aligned).run();
}

std::vector<LoopSource> emit_stages(const Kernel& kernel, LoopTarget target, const std::string& name) {
  if (!loop::has_stages(kernel)) return {emit_loops(kernel, target, name)};
  std::vector<LoopSource> sources;
  for (const Kernel& stage : loop::split_stages(loop::without_rules(kernel)))
    sources.push_back(emit_loops(stage, target, fmt::format("{}_{}", name, sources.size())));
  return sources;
}

}  // namespace megalith::codegen
