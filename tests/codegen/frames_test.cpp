// Bodies for a CPU work in scratch and not on the stack of their worker: however large a model is, the frames of the
// functions that its kernel is made of are small, of hand-written bodies and of generated ones, on every instruction set.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "codegen/compiled.h"
#include "codegen/kernels.h"
#include "codegen/program.h"
#include "megalith/base/error.h"
#include "megalith/ops/registry.h"
#include "support/configurations.h"

namespace megalith::codegen::testing {
namespace {

// Sums that registers hold, what is spilled of them, and the arrays of a generated body (codegen/place.cpp).
constexpr int64_t kHandWritten = 12 << 10, kGenerated = 80 << 10;

/// Operators with hand-written bodies, of models that nobody has; in one program, so that a compiler reads once what all
/// bodies share.
std::vector<Spec> large_specs() {
  const auto registry = ops::builtin();
  std::vector<Spec> specs;
  const auto add = [&](const char* op, std::map<std::string, int64_t> sizes, const std::string& suffix = "",
                       std::map<std::string, DType> dtypes = {}) {
    specs.push_back(spec_of(registry->get(op), op + suffix, std::move(sizes), dtypes));
  };
  constexpr int64_t kColumns = 88'000;
  const std::map<std::string, int64_t> product = {{"T", 512}, {"N", 32}, {"K", kColumns}};
  std::map<std::string, int64_t> digits = product;
  digits["L"] = 32, digits["G"] = kColumns / 32;
  for (const DType weights : {DType::bf16, DType::f32}) {
    const std::string suffix = fmt::format("_{}", dtype_name(weights));
    add("linear", product, suffix, {{"weight", weights}});
    add("rmsnorm_linear", product, suffix, {{"weight", weights}});
    add("rmsnorm_gate_up", product, suffix, {{"gate", weights}, {"up", weights}});
    add("attention_partial",
        {{"T", 64},
         {"G", 4},
         {"M", 8},
         {"D", 1024},
         {"P", 4096},
         {"B", 16},
         {"R", 8},
         {"Q", 512},
         {"C", 32},
         {"L", 256}},
        suffix, {{"k_cache", weights}, {"v_cache", weights}});
  }
  add("dequantize_linear", digits);
  add("rmsnorm_dequantize_linear", digits);
  add("rmsnorm_dequantize_gate_up", digits);
  add("attention_merge", {{"T", 64}, {"A", 32}, {"D", 4096}, {"C", 1 << 15}, {"L", 32}});
  return specs;
}

/// Bytes of the largest frame, by what -fstack-usage says.
struct Frame {
  int64_t bytes = 0;
  std::string function;
};
Frame largest_frame(const std::vector<Spec>& specs, const std::string& flags) {
  std::vector<graph::LoweredKernel> kernels;
  for (const Spec& spec : specs) kernels.push_back(lower(spec));
  std::istringstream usage(
      compiled(emit_cpu(kernels, "a test").text, "c++",
               fmt::format("{} {} -fstack-usage -c kernel.cpp -o kernel.o", fmt::join(cpu_compile_flags(), " "), flags),
               "kernel.su"));
  Frame largest;
  for (std::string line; std::getline(usage, line);) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    const int64_t bytes = std::stoll(line.substr(first + 1, second - first - 1));
    EXPECT_NE(line.substr(second + 1), "dynamic") << line;
    if (bytes > largest.bytes) largest = {bytes, line.substr(0, first)};
  }
  EXPECT_GT(largest.bytes, 0);
  return largest;
}

TEST(Frames, OfHandWrittenBodiesAreSmall) {
  // The most registers, with what stands by for tiles, and the fewest, which spill the most.
  for (const char* flags : megalith::test::some_of<const char*>(
           {"-march=native -DMEGALITH_AMX_PRODUCTS", "-march=x86-64"},
           {"-march=native", "-march=native -DMEGALITH_BF16_PRODUCTS", "-march=x86-64-v3"})) {
#if !defined(__x86_64__)
    if (std::string(flags).find("x86") != std::string::npos) continue;
#endif
    const Frame frame = largest_frame(large_specs(), flags);
    EXPECT_LE(frame.bytes, kHandWritten) << frame.function << " with " << flags;
  }
}

TEST(Frames, OfGeneratedBodiesAreBounded) {
  std::vector<Spec> specs = all_specs();
  specs.push_back({"long_rows",
                   R"(
         input x: f32[I, J]
         output y: f32[I, J]
         { [i, j, k] : 0 <= i < I and 0 <= j < J and 0 <= k < J }
         a[i, j] = x[i, j] * x[i, j]
         b[i, j] = a[i, J - 1 - j] + 1
         c[i, j] = b[i, J - 1 - j] + a[i, j]
         y[i, j] = c[i, J - 1 - j] + b[i, j])",
                   {{"I", 700}, {"J", 90'000}},
                   {"i"},
                   {}});
  const Frame frame = largest_frame(specs, "-march=native");
  EXPECT_LE(frame.bytes, kGenerated) << frame.function;
}

// The flags that kernels are compiled with see to it for what a script brings, too.
TEST(Frames, LargeOnesAndThoseThatGrowDoNotCompile) {
  for (const char* compiler : {"c++", "clang++"}) {
    if (!compiler_exists(compiler)) continue;
    for (const char* body :
         {"char room[200000]; touch(room);", "char room[n]; touch(room);", "touch(__builtin_alloca(n));"}) {
      const std::vector<Spec> specs = {all_specs()[2]};
      try {
        const Program program(specs, compiler, "-march=native",
                              fmt::format("extern void touch(void*); void roomy(int n) {{ (void)n; {} }}", body));
        ADD_FAILURE() << compiler << " takes " << body;
      } catch (const UserError& error) {
        EXPECT_THAT(error.what(), ::testing::ContainsRegex("frame|variable.length|alloca")) << compiler;
      }
    }
  }
}

}  // namespace
}  // namespace megalith::codegen::testing
