#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/kernels/embedded.h"

namespace megalith::kernels {
namespace {

TEST(Embedded, IsTheFileItself) {
  for (const char* name : {"runtime/protocol.h", "runtime/cpu/worker.h", "kernels/cpu/prelude.h"})
    EXPECT_EQ(embedded_source(name), file_read(std::string(MEGALITH_SOURCE_DIR "/megalith/") + name)) << name;
}

TEST(Embedded, IncludesNothingFromOutside) {
  for (const std::string& name : embedded_names()) {
    const std::string text(embedded_source(name));
    EXPECT_EQ(text.find("#include <"), std::string::npos) << name;
    for (size_t at = text.find("#include \""); at != std::string::npos; at = text.find("#include \"", at + 1)) {
      const size_t begin = at + 10, end = text.find('"', begin);
      const std::string included = text.substr(begin, end - begin);
      ASSERT_TRUE(included.starts_with("megalith/")) << name << " includes " << included;
      EXPECT_NO_THROW(embedded_source(included.substr(9))) << name << " includes " << included;
    }
  }
}

TEST(Embedded, NamesWhatThereIs) {
  try {
    embedded_source("kernels/cpu/none.h");
    FAIL() << "wanted a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("kernels/cpu/prelude.h"), std::string::npos);
  }
}

}  // namespace
}  // namespace megalith::kernels
