// The text of generated bodies, for people to read in review. MEGALITH_UPDATE_GOLDEN=1 rewrites the files.
#include <gtest/gtest.h>

#include <cstdlib>

#include "codegen/kernels.h"
#include "codegen/program.h"
#include "megalith/base/file.h"

namespace megalith::codegen::testing {
namespace {

// The kernels alone: from the first one to the end, the embedded headers left out.
std::string text_of(const std::string& target, const std::string& name) {
  for (const Spec& spec : all_specs())
    if (spec.name == name) {
      const std::string text = emit(target, {lower(spec)}, "golden").text;
      return text.substr(text.find("// ---- " + name));
    }
  return "no kernel " + name;
}

void expect_reviewed(const std::string& target, const std::string& name, const std::string& ending) {
  const std::string path = MEGALITH_SOURCE_DIR "/tests/golden/codegen/" + name + ending;
  const std::string text = text_of(target, name);
  if (std::getenv("MEGALITH_UPDATE_GOLDEN")) file_write_atomic(path, text);
  ASSERT_TRUE(file_exists(path)) << "run with MEGALITH_UPDATE_GOLDEN=1 to write it";
  EXPECT_EQ(text, file_read(path)) << "if the change is meant, run with MEGALITH_UPDATE_GOLDEN=1 and review the diff";
}

class Golden : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Golden,
                         ::testing::Values("rmsnorm", "rmsnorm_linear", "attention", "softmax_triangle"),
                         [](const auto& kernel) { return std::string(kernel.param); });

TEST_P(Golden, TextIsAsReviewed) { expect_reviewed("cpu", GetParam(), ".cpp.txt"); }
TEST_P(Golden, TextForAGpuIsAsReviewed) { expect_reviewed("cuda", GetParam(), ".cu.txt"); }

}  // namespace
}  // namespace megalith::codegen::testing
