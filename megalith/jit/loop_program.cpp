#include "megalith/jit/loop_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/hash.h"
#include "megalith/base/plain_text.h"
#include "megalith/codegen/emit.h"
#include "megalith/codegen/source_text.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::jit {

namespace {

using loop::Kernel;

void replace_flag(std::vector<std::string>& flags, const std::string& from, const std::string& to) {
  std::ranges::replace(flags, from, to);
}

// An edited kernel computes what it says, but takes what the one that it replaces takes.
void check_takes_the_same(const Kernel& edited, const Kernel& computed) {
  const auto arguments = [](const Kernel& kernel) {
    std::vector<std::string> lines;
    for (const loop::Parameter& parameter : kernel.parameters) lines.push_back("parameter " + parameter.name);
    for (const loop::Attribute& attribute : kernel.attributes) lines.push_back("attribute " + attribute.name);
    for (const loop::TensorArgument& tensor : kernel.tensors) {
      if (tensor.role == loop::Role::temporary) continue;
      const char* role = tensor.role == loop::Role::input    ? "input"
                         : tensor.role == loop::Role::output ? "output"
                                                             : "inout";
      std::string line = fmt::format("{} {}: {}", role, tensor.name, dtype_name(*tensor.dtype));
      for (const loop::Expr& size : tensor.shape) line += ", " + loop::print(size);
      lines.push_back(line);
    }
    std::ranges::sort(lines);
    return lines;
  };
  const std::vector<std::string> have = arguments(edited), want = arguments(computed);
  for (const std::string& line : want)
    MEGALITH_CHECK(std::ranges::find(have, line) != have.end(), "it has no \"{}\", which its callers count on", line);
  for (const std::string& line : have)
    MEGALITH_CHECK(std::ranges::find(want, line) != want.end(), "it has \"{}\", of which its callers do not know",
                   line);
}

std::string function_name(const std::string& kernel) {
  return is_identifier(kernel) && !codegen::is_word_of_cpp(kernel) ? kernel : "loop_kernel";
}

}  // namespace

std::string LoopSpecialization::text() const {
  std::vector<std::string> parts;
  for (const auto& [name, value] : constants) parts.push_back(fmt::format("{} = {}", name, value));
  for (const std::string& name : multiples) parts.push_back(fmt::format("{} mod {} = 0", name, kLoopMultiple));
  for (const std::string& name : aligned) parts.push_back(name + " aligned");
  return fmt::format("{}", fmt::join(parts, ", "));
}

Kernel specialize(const Kernel& scheduled, const LoopSpecialization& known) {
  Kernel kernel = scheduled;
  loop::with_isl_limit(kernel.name, [&] {
    for (const std::string& name : known.multiples)
      kernel = loop::assume(kernel, fmt::format("{} mod {} = 0", name, kLoopMultiple));
    for (const auto& [name, value] : known.constants) kernel = loop::fix_parameter(kernel, name, value);
    kernel = loop::realise_dealt_out(loop::without_rules(kernel));
  });
  return kernel;
}

LoopProgram compile_loop_program(const Kernel& scheduled, const LoopSpecialization& known, const std::string& target,
                                 PipelineOptions options) {
  const bool is_cuda = is_cuda_target(target);
  MEGALITH_CHECK(is_cuda || target == "cpu", "the target is \"{}\", want cpu, cuda or, for example, cuda:sm_90a",
                 target);
  LoopProgram program;
  program.target = target_with_architecture(target);
  const std::string function = function_name(scheduled.name);
  // Each specialization has a folder of its own among the artifacts.
  const std::string text = loop::print(scheduled) + "\n" + known.text();
  Pipeline pipeline(fmt::format("{}-{}", function, hash_hex(text).substr(0, 8)), std::move(options));

  Kernel computed;
  program.kernel = pipeline.stage(
      {"loops", "loops.txt"}, [&] { return computed = specialize(scheduled, known); },
      [](const Kernel& kernel) { return loop::print(kernel); },
      [](const std::string& edited) {
        Kernel kernel = loop::parse_kernel(edited);
        loop::infer_types(kernel);
        loop::infer_shapes(kernel);
        return kernel;
      },
      [&](const Kernel& kernel) {
        if (!computed.instructions.empty()) return;
        check_takes_the_same(kernel, specialize(scheduled, known));
      });
  const auto same = [](const std::string& source) { return source; };
  program.text = pipeline.stage(
      {"emit", is_cuda ? "kernel.cu" : "kernel.cpp"},
      [&] {
        loop::with_isl_limit(function, [&] {
          program.sources = codegen::emit_stages(
              program.kernel, is_cuda ? codegen::LoopTarget::cuda : codegen::LoopTarget::cpu, function, known.aligned);
        });
        return codegen::whole(program.sources);
      },
      same, same, nullptr);
  if (program.sources.empty())  // an edited source: what it is called with follows from the kernel all the same
    program.sources = codegen::emit_stages(
        program.kernel, is_cuda ? codegen::LoopTarget::cuda : codegen::LoopTarget::cpu, function, known.aligned);
  if (is_cuda) {
    const std::string architecture = cuda_architecture(program.target);
    program.cuda = build_cubin(pipeline, pipeline.kernel(), program.text, architecture, KernelCache::from_environment(),
                               loop_cuda_flags(architecture));
  } else {
    program.build =
        build_shared_object(pipeline, {.name = pipeline.kernel(), .source = program.text, .flags = loop_cpu_flags()});
  }
  program.report = pipeline.finish();
  return program;
}

std::vector<std::string> loop_cpu_flags() {
  std::vector<std::string> flags = default_flags();
  replace_flag(flags, "-ffp-contract=off", "-ffp-contract=fast");
  // GCC 12 reads a vector of memory again for each product that it is in, unless it orders instructions before it gives out
  // registers: 12 loads for 8 products of a tile of 4 x 16, where 6 would do (75 GFLOP/s of a Zen 3's core instead of 52).
  flags.emplace_back("-fschedule-insns");
  return flags;
}

std::vector<std::string> loop_cuda_flags(const std::string& architecture) {
  std::vector<std::string> flags = codegen::cuda_compile_flags(architecture);
  replace_flag(flags, "--fmad=false", "--fmad=true");
  return flags;
}

}  // namespace megalith::jit
