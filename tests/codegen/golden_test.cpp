// The text of generated bodies, for people to read in review. MEGALITH_UPDATE_GOLDEN=1 rewrites the files.
#include <gtest/gtest.h>

#include <cstdlib>

#include "codegen/kernels.h"
#include "codegen/program.h"
#include "megalith/base/file.h"

namespace megalith::codegen::testing {
namespace {

// The kernels alone: from the first one to the end, the embedded headers left out.
std::string text_of(const std::string& name) {
  for (const Spec& spec : all_specs())
    if (spec.name == name) {
      const std::string text = emit_cpu({lower(spec)}, "golden").text;
      return text.substr(text.find("// ---- " + name));
    }
  return "no kernel " + name;
}

class Golden : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Golden,
                         ::testing::Values("rmsnorm", "rmsnorm_linear", "attention", "softmax_triangle"),
                         [](const auto& kernel) { return std::string(kernel.param); });

TEST_P(Golden, TextIsAsReviewed) {
  const std::string path = std::string(MEGALITH_SOURCE_DIR "/tests/golden/codegen/") + GetParam() + ".cpp.txt";
  const std::string text = text_of(GetParam());
  if (std::getenv("MEGALITH_UPDATE_GOLDEN")) file_write_atomic(path, text);
  ASSERT_TRUE(file_exists(path)) << "run with MEGALITH_UPDATE_GOLDEN=1 to write it";
  EXPECT_EQ(text, file_read(path)) << "if the change is meant, run with MEGALITH_UPDATE_GOLDEN=1 and review the diff";
}

}  // namespace
}  // namespace megalith::codegen::testing
