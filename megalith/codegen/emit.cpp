#include "megalith/codegen/emit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/codegen/arguments.h"
#include "megalith/codegen/body.h"
#include "megalith/codegen/dialect.h"
#include "megalith/kernels/embedded.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/text.h"

namespace megalith::codegen {

namespace {

// Headers into one text: each once, those it includes before it. Their own #include and #pragma once lines go.
class Embedder {
 public:
  void add(const std::string& name) {
    if (!done_.insert(name).second) return;
    std::string own;
    std::string_view rest = kernels::embedded_source(name);
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end);
      constexpr std::string_view kInclude = "#include \"megalith/";
      if (line.starts_with(kInclude))
        add(std::string(line.substr(kInclude.size(), line.rfind('"') - kInclude.size())));
      else if (!line.starts_with("#pragma once"))
        own += line;
    }
    text_ += fmt::format("// ==== megalith/{0} {1:=>{2}}\n{3}// ==== end of megalith/{0}\n\n", name, "",
                         std::max<int>(4, 104 - static_cast<int>(name.size())), own);
  }
  const std::string& text() const { return text_; }

 private:
  std::set<std::string> done_;
  std::string text_;
};

std::string commented(const std::string& text) {
  std::string result = "// ";
  for (size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) result += "// ";
  }
  if (result.back() != '\n') result += '\n';
  return result;
}

// What a task gets from the worker loop, in one hand.
constexpr const char* kTaskStruct = R"(struct Task {
  const i32* begin;
  const i32* end;
  void* const* operands;
  u8* scratch;
  u32 iteration;
  const u32* abort;
};
)";

std::string write_worker(const std::vector<graph::LoweredKernel>& kernels) {
  std::string cases;
  for (size_t i = 0; i < kernels.size(); ++i)
    cases += fmt::format("    case {}: return {}({}_arguments(task));\n", i, kernels[i].name, kernels[i].name);
  return fmt::format(R"(// Chooses the body of a task.
static void run_task(u32 body, [[maybe_unused]] const Task& task) {{
  switch (body) {{
{}  }}
}}

}}  // namespace megalith::kernels

extern "C" [[gnu::visibility("default")]] void megalith_worker(const megalith::runtime::Launch* launch,
                                                               unsigned worker) {{
  using namespace megalith;
  runtime::worker_run(*launch, worker, [launch](const runtime::TaskRecord& task, void* const* operands,
                                                runtime::u8* scratch, runtime::u32 iteration) {{
    kernels::run_task(task.body, {{task.begin, task.end, operands, scratch, iteration, &launch->control->abort}});
  }});
}}
)",
                     cases);
}

}  // namespace

std::vector<std::string> cpu_compile_flags() {
  return {"-std=c++20",        "-O3", "-fPIC", "-shared", "-fopenmp-simd", "-ffp-contract=off", "-fno-math-errno",
          "-fno-trapping-math"};
}

EmittedSource emit_cpu(const std::vector<graph::LoweredKernel>& kernels, const std::string& title) {
  const Dialect dialect = cpu_dialect();
  EmittedSource result;
  Embedder embedder;
  for (const std::string& header : dialect.headers) embedder.add(header);

  std::string bodies, contents;
  std::vector<std::string> names;
  for (const graph::LoweredKernel& lowered : kernels) {
    names.push_back(lowered.name);
    const loop::Kernel bound = loop::bind(lowered.kernel, lowered.binding);
    MEGALITH_CHECK(lowered.body || !lowered.kernel.opaque,
                   "[{}] has no body for the target \"{}\": its loop kernel says only what it touches, so it needs a "
                   "hand-tuned one (graph::operator_::body)",
                   lowered.kernel.name, dialect.target);
    contents += fmt::format("//   {:<24} {}\n", lowered.name,
                            lowered.body ? "kernels/" + dialect.target + "/" + lowered.body->file : "generated");
    bodies += fmt::format("// ---- {} {:->{}}\n", lowered.name, "",
                          std::max<int>(4, 110 - static_cast<int>(lowered.name.size())));
    bodies += commented(loop::print(lowered.kernel));
    bodies += write_arguments_struct(lowered, bound) + "\n" + write_arguments_function(lowered, bound) + "\n";
    if (lowered.body) {
      embedder.add("kernels/" + dialect.target + "/" + lowered.body->file);
      bodies += fmt::format("{} {}(const {}_args& args) {{ {}(args); }}\n\n", dialect.function, lowered.name,
                            lowered.name, lowered.body->name);
    } else {
      const GeneratedBody body = generate_body(lowered, bound, dialect);
      bodies += body.text + "\n";
      result.scratch_bytes = std::max(result.scratch_bytes, body.scratch_bytes);
    }
  }

  result.text = fmt::format("// A persistent kernel written by Megalith " MEGALITH_VERSION
                            ": {}\n//\n// Bodies, in the order of the switch at "
                            "the end:\n{}//\n// To compile by hand: c++ {} -march=native\n\n",
                            commented(title).substr(3, commented(title).size() - 4), contents,
                            fmt::join(cpu_compile_flags(), " "));
  result.text += embedder.text();
  // g++ cannot see that a value which is set under one condition is read under the same one.
  result.text +=
      "#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC diagnostic ignored "
      "\"-Wmaybe-uninitialized\"\n#endif\n\n";
  result.text += "namespace megalith::kernels {\n\n";
  result.text += kTaskStruct;
  result.text += "\n" + bodies + write_worker(kernels);
  result.text += fmt::format(
      "\nextern \"C\" [[gnu::visibility(\"default\")]] const char megalith_kernel_info[] =\n"
      "    R\"json({{\"version\": \"" MEGALITH_VERSION
      "\", \"target\": \"{}\", \"scratch_bytes\": {}, \"bodies\": [{}]}})json\";\n",
      dialect.target, result.scratch_bytes, names.empty() ? "" : fmt::format("\"{}\"", fmt::join(names, "\", \"")));
  return result;
}

}  // namespace megalith::codegen
