// What becomes of a message on its way to whoever reads it.
#include "megalith/base/message.h"

#include <gtest/gtest.h>

#include "megalith/base/error.h"

namespace megalith {
namespace {

// The one place that all messages go through.
TEST(MessageText, IsOneLineOfReasonableLength) {
  EXPECT_EQ(UserError("a name \"x\nmegalith: error: y\033[31m\"").what(),
            std::string("a name \"x\\nmegalith: error: y\\x1b[31m\""));
  EXPECT_EQ(SystemError(Lines{"a log:\n  line \033"}).what(), std::string("a log:\n  line \\x1b"));
  const std::string what = UserError("the start " + std::string(1'000'000, '\033') + " what to try").what();
  EXPECT_LT(what.size(), 5000u);
  EXPECT_EQ(what.substr(0, 10), "the start ");
  EXPECT_EQ(what.substr(what.size() - 11), "what to try");
}

}  // namespace
}  // namespace megalith
