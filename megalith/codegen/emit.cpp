#include "megalith/codegen/emit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "megalith/base/dtype.h"
#include "megalith/base/error.h"
#include "megalith/base/hash.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/options.h"
#include "megalith/codegen/arguments.h"
#include "megalith/codegen/body.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/dialect.h"
#include "megalith/codegen/embedder.h"
#include "megalith/codegen/source_text.h"
#include "megalith/codegen/views.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/kernels/stream_order.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/text.h"
#include "megalith/machine/machine.h"
#include "megalith/ops/stream_choices.h"

namespace megalith::codegen {

namespace {

// What a GPU's headers are told of this kernel; the flags of the compiler say the rest (cuda_compile_flags()).
constexpr const char* kWorkerConfigHeader = "kernels/cuda/common/worker_config.cuh";
std::string write_worker_config(const EmittedSource& source, const graph::WorkerSchedule& worker) {
  const std::map<std::string, std::string> nothing_replaced;
  Embedder embedder(nothing_replaced);
  embedder.add(kWorkerConfigHeader);
  return fmt::format(
      "{}namespace megalith::kernels {{\n\ninline constexpr WorkerConfig kWorkerConfig = {{\n    .shared_bytes = "
      "MEGALITH_SHARED_BYTES,\n    .area_bytes = {},\n    .stream_rows = {},\n    .table_rows = {},\n    .scale_bytes "
      "= {},\n    .copies = {},\n    .prefetch = {},\n    .registers = {},\n    .has_partners = {},\n}};\n\n}}  // "
      "namespace "
      "megalith::kernels\n\n",
      embedder.text(), source.area_bytes, source.stream_rows, source.table_rows, source.scale_bytes, worker.copies,
      worker.prefetch, worker.registers, source.has_partners);
}

// What a task gets from the worker loop, in one hand.
constexpr const char* kCpuTask = R"(struct Task {
  const i32* begin;
  const i32* end;
  void* const* operands;
  u8* scratch;
  u32 iteration;
  const u32* abort;
  runtime::Fault* fault;
};
)";
constexpr const char* kCudaTask = "using Task = runtime::Frame;\n";

bool writes_words(const graph::LoweredKernel& kernel) {
  for (size_t i = 0; i < kernel.layouts.size(); ++i)
    if (kernel.layouts[i] == graph::Layout::flag_in_data && kernel.op->operands[i].role != loop::Role::input)
      return true;
  return false;
}

// Statements from `begin` to `end`, one of which is chosen by halves: on a GPU a table of jumps is a look into constant
// memory and a jump that nobody foresees.
std::string choose_by_halves(const std::vector<std::string>& statements, size_t begin, size_t end,
                             const std::string& indent) {
  if (end - begin == 1) return indent + statements[begin] + "\n";
  const size_t middle = (begin + end) / 2;
  return fmt::format("{0}if (body < {1}) {{\n{2}{0}}} else {{\n{3}{0}}}\n", indent, middle,
                     choose_by_halves(statements, begin, middle, indent + "  "),
                     choose_by_halves(statements, middle, end, indent + "  "));
}

std::string write_run_task(const std::vector<graph::LoweredKernel>& kernels, Level worker) {
  std::vector<std::string> statements;
  for (const graph::LoweredKernel& kernel : kernels)
    statements.push_back(kernel.body ? fmt::format("return {}(task);", kernel.name)
                                     : fmt::format("return {0}({0}_arguments(task));", kernel.name));
  std::string choice;
  if (worker == Level::block && !statements.empty()) {
    choice = choose_by_halves(statements, 0, statements.size(), "  ");
  } else {
    for (size_t i = 0; i < statements.size(); ++i) choice += fmt::format("    case {}: {}\n", i, statements[i]);
    choice = "  switch (body) {\n" + choice + "  }\n";
  }
  // Bodies that join the worker do so through it.
  return fmt::format(R"(// Chooses the body of a task.
{} void run_task({}u32 body, [[maybe_unused]] const Task& task) {{
{}}}
)",
                     worker == Level::block ? "__forceinline__ static" : "static",
                     worker == Level::block ? "[[maybe_unused]] " : "", choice);
}

// What a task can have fetched before its turn, on a GPU.
std::string write_look_ahead(const std::vector<graph::LoweredKernel>& kernels) {
  const auto cases = [&](const std::string graph::TunedBody::*prefetch) {
    std::string text;
    for (size_t i = 0; i < kernels.size(); ++i)
      if (kernels[i].body && !(kernels[i].body->*prefetch).empty())
        text += fmt::format("    case {}: return {}({}_arguments(task));\n", i, kernels[i].body->*prefetch,
                            kernels[i].name);
    return text;
  };
  return fmt::format(R"(
// What a task can fetch before its turn, by the lanes of one warp; and what it had better fetch a task later.
static void look_ahead(u32 body, [[maybe_unused]] const Task& task) {{
  switch (body) {{
{}    default: return;
  }}
}}
static void look_ahead_late(u32 body, [[maybe_unused]] const Task& task) {{
  switch (body) {{
{}    default: return;
  }}
}}
)",
                     cases(&graph::TunedBody::prefetch), cases(&graph::TunedBody::prefetch_late));
}

// What makes ready the first iteration of a kernel behind another one, on a GPU; "" if nothing can.
std::string write_take_over(const std::vector<graph::LoweredKernel>& kernels) {
  for (const graph::LoweredKernel& kernel : kernels)
    if (kernel.body && !kernel.body->take_over.empty())
      return fmt::format(R"(
// Makes ready the first iteration, if the load of the kernel before this one is in the range.
extern "C" __global__ void __launch_bounds__(megalith::kernels::kBlockThreads, 1)
    megalith_take_over(const __grid_constant__ megalith::runtime::Launch launch, megalith::runtime::u32 task,
                       megalith::batch::LoadRange range) {{
  using namespace megalith;
  runtime::task_run_alone(launch, task, [range](const runtime::Frame& frame) {{
    kernels::{}(kernels::{}_arguments(frame), range);
  }});
}}
)",
                         kernel.body->take_over, kernel.name);
  return "";
}

constexpr const char* kCpuWorker = R"(
extern "C" [[gnu::visibility("default")]] void megalith_worker(const megalith::runtime::Launch* launch,
                                                               unsigned worker) {
  using namespace megalith;
  runtime::Fault* const fault = &launch->status[worker].fault;
  runtime::worker_run(*launch, worker, [launch, fault](const runtime::TaskRecord& task, void* const* operands,
                                                       runtime::u8* scratch, runtime::u32 iteration) {
    kernels::run_task(task.body, {task.begin, task.end, operands, scratch, iteration, &launch->control->abort, fault});
  });
}
)";

constexpr const char* kCudaWorker = R"(
extern "C" __global__ void __launch_bounds__(megalith::kernels::kBlockThreads, 1)
    megalith_worker(const __grid_constant__ megalith::runtime::Launch launch) {
  using namespace megalith;
  runtime::worker_run(
      launch, blockIdx.x,
      [](runtime::u32 body, const runtime::Frame& frame) MEGALITH_INLINE { kernels::run_task(body, frame); },
      [](const runtime::Frame& frame) { kernels::look_ahead(frame.body, frame); },
      [](const runtime::Frame& frame) { kernels::look_ahead_late(frame.body, frame); });
}

// Lays weights out as the stream has them, one block a chunk.
extern "C" __global__ void megalith_pack(megalith::runtime::u8* streams, const megalith::stream::PackRecord* records,
                                         bool on_sides) {
  megalith::kernels::pack_chunk(streams, records[blockIdx.x], on_sides);
}

// How far a place in memory is from a multiprocessor.
extern "C" __global__ void megalith_probe_pieces(megalith::runtime::u8* page, megalith::runtime::u32* cycles) {
  megalith::kernels::probe_pieces(page, cycles);
}
extern "C" __global__ void megalith_probe_pages(megalith::runtime::u8* memory, megalith::runtime::u32 num_pages,
                                                megalith::runtime::u32 mask, megalith::runtime::i32* differences) {
  megalith::kernels::probe_pages(memory, num_pages, mask, differences);
}
)";

constexpr std::string_view kInfoComment = "\n// megalith_kernel_info ";

// On a GPU: scratch that shared memory has room for lies there, in the area that tuned bodies use at other times.
void take_scratch_into_area(EmittedSource& source) {
  constexpr int64_t kMax = 32 << 10, kAlignment = 1024;
  if (source.scratch_bytes <= std::max(kMax, source.area_bytes)) {
    source.area_bytes = std::max(source.area_bytes, source.scratch_bytes);
    source.scratch_bytes = 0;
  }
  source.area_bytes = (source.area_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::string kernel_info(const Dialect& dialect, const EmittedSource& source, const std::vector<std::string>& names,
                        const std::vector<graph::LoweredKernel>& kernels) {
  std::vector<std::string> checks;  // of each body [what, value] for each
  for (const std::vector<CheckText>& of_body : source.checks) {
    std::vector<std::string> texts;
    for (const CheckText& text : of_body)
      texts.push_back(fmt::format("[{}, {}]", json_quote(text.what), json_quote(text.value)));
    checks.push_back(fmt::format("[{}]", fmt::join(texts, ", ")));
  }
  return fmt::format(
      "{{\"version\": \"" MEGALITH_VERSION
      "\", \"target\": \"{}\", \"scratch_bytes\": {}, \"area_bytes\": {}, \"stream_rows\": {}, {}\"bodies\": [{}], "
      "\"operands\": \"{}\", \"checks\": [{}]}}",
      dialect.target, source.scratch_bytes, source.area_bytes, source.stream_rows,
      source.scale_bytes > 0 ? fmt::format("\"scale_bytes\": {}, ", source.scale_bytes) : "",
      names.empty() ? "" : fmt::format("\"{}\"", fmt::join(names, "\", \"")), operands_hash(kernels),
      fmt::join(checks, ", "));
}

// A frame that is too large is an error; compilers name the warning, which has its size from a flag, each in its way.
std::string small_frames() {
  return fmt::format(
      "#if defined(__clang__)\n#pragma clang diagnostic error \"-Wframe-larger-than\"\n#else\n#pragma GCC diagnostic "
      "error \"-Wframe-larger-than={}\"\n#endif\n\n",
      kMaxFrameBytes);
}

}  // namespace

std::vector<std::string> cpu_compile_flags() {
  // An array that would jump over the end of the stack stops there; tables of addresses cannot be written to.
  return {"-std=c++20",
          "-O3",
          "-fPIC",
          "-shared",
          "-fopenmp-simd",
          "-ffp-contract=off",
          "-fno-math-errno",
          "-fno-trapping-math",
          "-fstack-clash-protection",
          "-Wl,-z,relro,-z,now,-z,noexecstack",
          fmt::format("-Wframe-larger-than={}", kMaxFrameBytes),
          "-Werror=vla",
          "-Werror=alloca"};
}

namespace {

// What the compiler then makes of alignment: kernels/cuda/arch/ptx.cuh.
constexpr const char* kUnaligned = "--define-macro=MEGALITH_UNALIGNED_SHARED_MEMORY";

}  // namespace

bool optimizes_fully() {
  const std::string optimize = option_value("MEGALITH_OPTIMIZE");
  MEGALITH_CHECK(optimize == "full" || optimize == "little", "MEGALITH_OPTIMIZE is \"{}\", want full or little",
                 optimize);
  return optimize == "full";
}

std::vector<std::string> cuda_compile_flags(const std::string& architecture, Effort effort) {
  std::vector<std::string> flags = {
      "--std=c++20", "--device-as-default-execution-space", "--fmad=false", "--extra-device-vectorization",
      fmt::format("--define-macro=MEGALITH_SHARED_BYTES={}", machine::gpu(architecture).shared_bytes)};
  // Bodies that ptxas makes functions of: a kernel of 64 tokens takes 5.0 s instead of 7.6 on 16 cores, and a step of it
  // 5 to 10 % longer. --Ofast-compile takes less time still, and makes several times slower kernels.
  if (!optimizes_fully())
    flags.insert(flags.end(), {"--Ofast-compile=max", kUnaligned});
  else if (effort == Effort::quick)
    flags.insert(flags.end(), {"--ptxas-options=--fast-compile", "--split-compile=4", kUnaligned});
  if (option_integer("MEGALITH_RACECHECK") != 0) flags.push_back("--define-macro=MEGALITH_EVERY_THREAD_ARRIVES");
  return flags;
}

namespace {

bool packs_bf16(const graph::LoweredKernel& lowered) {
  return lowered.body->packed && std::ranges::any_of(lowered.body->packed->operands, [&](const std::string& operand) {
           return graph::body_query(lowered).dtypes.at(operand) == DType::bf16;
         });
}

EmittedSource emit(const Dialect& dialect, const std::vector<graph::LoweredKernel>& kernels, const std::string& title,
                   const std::string& compile_command, const graph::WorkerSchedule& worker) {
  EmittedSource result;
  Embedder embedder(dialect.replaced);
  if (dialect.worker == Level::block) embedder.leave_out(kWorkerConfigHeader);
  for (const std::string& header : dialect.headers) embedder.add(header);

  std::string bodies, contents;
  std::vector<std::string> names;
  std::map<const graph::TunedBody*, std::string> texts;  // the namespaces of those that came with operators
  bool watches = false, multiplies_bf16 = false;
  for (const graph::LoweredKernel& lowered : kernels) {
    check_names(lowered);
    names.push_back(lowered.name);
    const loop::Kernel bound = loop::bind(lowered.kernel, lowered.binding);
    MEGALITH_CHECK(lowered.body || !lowered.kernel.opaque,
                   "[{}] has no body for the target \"{}\": its loop kernel says only what it touches, so it needs a "
                   "hand-tuned one (graph::operator_::body)",
                   lowered.kernel.name, dialect.target);
    contents += fmt::format("//   {:<24} {}\n", lowered.name,
                            !lowered.body                ? "generated"
                            : lowered.body->text.empty() ? "kernels/" + dialect.target + "/" + lowered.body->file
                                                         : comment_text(lowered.body->file));
    bodies += fmt::format("// ---- {} {:->{}}\n", lowered.name, "",
                          std::max<int>(4, 110 - static_cast<int>(lowered.name.size())));
    bodies += comment_lines(loop::print(lowered.kernel));
    const bool comes_as_text = lowered.body && !lowered.body->text.empty();
    const auto limited = [&](const std::function<void()>& work) { loop::with_isl_limit(lowered.kernel.name, work); };
    GeneratedBody generated;
    ArgumentExtras extras;
    if (lowered.body && lowered.body->area_bytes && dialect.worker == Level::thread)
      extras.scratch_bytes = lowered.body->area_bytes(graph::body_query(lowered));
    limited([&] {
      if (!lowered.body) generated = generate_body(lowered, bound, dialect);
      result.checks.push_back(!lowered.body   ? generated.checks
                              : comes_as_text ? checks_of_views(lowered)
                                              : checks_of_operands(lowered));
      extras.has_checks = !result.checks.back().empty();
      bodies += write_arguments_struct(lowered, bound, extras, dialect) + "\n" +
                write_arguments_function(lowered, bound, extras, dialect) + "\n";
    });
    if (lowered.body) {
      embedder.add(comes_as_text ? "kernels/view.h" : "kernels/" + dialect.target + "/" + lowered.body->file);
      if (comes_as_text && texts.emplace(lowered.body, lowered.name + "_body").second)
        bodies += write_body_text(*lowered.body, texts.at(lowered.body));
      if (comes_as_text) limited([&] { bodies += write_views(lowered) + "\n"; });
      if (lowered.op && lowered.op->epilogue)
        embedder.add(dialect.target == "cuda" ? "kernels/cuda/epilogue/finished.cuh" : "kernels/cpu/finished.h");
      watches |= lowered.body->watched;
      multiplies_bf16 |= packs_bf16(lowered);
      result.scratch_bytes = std::max(result.scratch_bytes, extras.scratch_bytes);
      if (lowered.body->area_bytes && dialect.worker == Level::block)
        result.area_bytes = std::max(result.area_bytes, lowered.body->area_bytes(graph::body_query(lowered)));
      if (lowered.body->streamed) {
        result.stream_rows =
            std::max(result.stream_rows, lowered.binding.sizes.at(lowered.body->streamed->activations));
        result.has_partners |= ops::has_partners(*lowered.body->streamed, graph::body_query(lowered));
      }
      // Who looks positions of tokens up calls them so; an operator of somebody else's may mean another thing by that.
      const auto tokens = lowered.binding.sizes.find("T");
      if (lowered.kernel.find_tensor("position") && tokens != lowered.binding.sizes.end())
        result.table_rows = std::max(result.table_rows, tokens->second);
      if (streams_int8(lowered)) result.scale_bytes = int8::kScaleBytes;
      // On a GPU tuned bodies whose words somebody waits for become part of the worker: a call would cost them
      // registers. So do those that multiply, since behind a call the tensor cores take one multiplication at a time.
      const bool multiplies = lowered.body->streamed || (lowered.body->multiplies_wide &&
                                                         lowered.body->multiplies_wide(graph::body_query(lowered)));
      const bool joins = dialect.worker == Level::block && (writes_words(lowered) || multiplies);
      const std::string arguments = lowered.name + "_arguments(task)";
      bodies += fmt::format("{} {}(const Task& task) {{ {}({}); }}\n\n",
                            joins ? "__forceinline__ static void" : dialect.function, lowered.name,
                            comes_as_text ? texts.at(lowered.body) + "::" + lowered.body->name : lowered.body->name,
                            comes_as_text ? fmt::format("{}_views({})", lowered.name, arguments) : arguments);
    } else {
      bodies += generated.text + "\n";
      result.scratch_bytes = std::max(result.scratch_bytes, generated.scratch_bytes);
    }
  }

  result.text = fmt::format("// A persistent kernel written by Megalith " MEGALITH_VERSION
                            ": {}\n//\n// Bodies, in the order of the switch at "
                            "the end:\n{}//\n// To compile by hand: {}\n\n",
                            comment_text(title), contents, compile_command);
  if (dialect.worker == Level::block) {
    take_scratch_into_area(result);
    result.text += write_worker_config(result, worker);
  }
  if (dialect.worker == Level::thread) result.text += small_frames();
  if (watches) result.text += "#define MEGALITH_WATCH_VIEWS\n\n";
  // Attention rounds where products do (kernels/cpu/attention.h), and these do by their weights.
  if (multiplies_bf16) result.text += "#define MEGALITH_BF16_WEIGHTS\n\n";
  result.text += embedder.text();
  // g++ cannot see that a value which is set under one condition is read under the same one.
  result.text +=
      "#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC diagnostic ignored "
      "\"-Wmaybe-uninitialized\"\n#endif\n\n";
  result.text += "namespace megalith::kernels {\n\n";
  result.text += dialect.worker == Level::block ? kCudaTask : kCpuTask;
  result.text += "\n" + bodies + write_run_task(kernels, dialect.worker);
  if (dialect.worker == Level::block) result.text += write_look_ahead(kernels);
  result.text += "\n}  // namespace megalith::kernels\n";
  const std::string info = kernel_info(dialect, result, names, kernels);
  if (dialect.worker == Level::thread)
    result.text += fmt::format(
        "{}\nextern \"C\" [[gnu::visibility(\"default\")]] const char megalith_kernel_info[] =\n"
        "    R\"json({})json\";\n",
        kCpuWorker, info);
  else
    result.text += fmt::format("{}{}\nextern \"C\" __device__ unsigned char {} = 1;\n{}{}\n", kCudaWorker,
                               write_take_over(kernels), operands_symbol(operands_hash(kernels)), kInfoComment, info);
  return result;
}

}  // namespace

EmittedSource emit_cpu(const std::vector<graph::LoweredKernel>& kernels, const std::string& title) {
  return emit(cpu_dialect(), kernels, title, fmt::format("c++ {} -march=native", fmt::join(cpu_compile_flags(), " ")),
              {});
}

EmittedSource emit_cuda(const std::vector<graph::LoweredKernel>& kernels, const std::string& title,
                        const graph::WorkerSchedule& worker) {
  return emit(cuda_dialect(), kernels, title,
              fmt::format("NVRTC with {} --gpu-architecture=sm_90a", fmt::join(cuda_compile_flags("sm_90a"), " ")),
              worker);
}

EmittedSource emit(const std::string& target, const std::vector<graph::LoweredKernel>& kernels,
                   const std::string& title, const graph::WorkerSchedule& worker) {
  return target == "cuda" ? emit_cuda(kernels, title, worker) : emit_cpu(kernels, title);
}

std::string operands_hash(const std::vector<graph::LoweredKernel>& kernels) {
  std::string text;
  for (const graph::LoweredKernel& kernel : kernels) {
    const graph::BodyQuery query = graph::body_query(kernel);
    text += kernel.name + (query.int8 ? " int8\n" : "\n");
    for (const auto& [operand, dtype] : query.dtypes) text += fmt::format("{} {}\n", operand, dtype_name(dtype));
    for (const auto& [size, value] : query.sizes) text += fmt::format("{} {}\n", size, value);
  }
  return hash_hex(text);
}

std::string operands_symbol(const std::string& operands_hash) { return "megalith_operands_" + operands_hash; }

std::string source_info(const std::string& source) {
  const size_t at = source.rfind(kInfoComment);
  MEGALITH_CHECK(at != std::string::npos, "the source is no CUDA kernel of Megalith: it does not end with \"{}\"",
                 kInfoComment.substr(1));
  const size_t begin = at + kInfoComment.size();
  return source.substr(begin, source.find('\n', begin) - begin);
}

}  // namespace megalith::codegen
