// Names that are meant to become code: what a model's folder, a kernel or a tensor is called stands in comments of the
// generated source, or is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/temporary_folder.h"
#include "codegen/kernels.h"
#include "codegen/program.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/codegen/arguments.h"
#include "megalith/codegen/place.h"
#include "megalith/codegen/source_text.h"

namespace megalith::codegen::testing {
namespace {

using ::testing::HasSubstr;

const std::string kPayload = "int planted = 1;";

// Each way in which some compiler ends a line or a comment, or joins the next line.
const std::vector<std::string>& hostile_names() {
  static const std::vector<std::string> names = {"x\r" + kPayload,
                                                 "x\n" + kPayload,
                                                 "x\r\n" + kPayload,
                                                 "x\f" + kPayload,
                                                 "x\v" + kPayload,
                                                 "x\xe2\x80\xa8" + kPayload,
                                                 "x\xc2\x85" + kPayload,
                                                 "x\xe2\x80\xa9" + kPayload,
                                                 "x*/" + kPayload + "/*",
                                                 "x\\\n" + kPayload,
                                                 "x\\",
                                                 "x\\ ",
                                                 "x?"
                                                 "?/",
                                                 "x?"
                                                 "?"
                                                 "?/\n" +
                                                     kPayload,
                                                 "/* ",
                                                 "x\x1a" + kPayload,
                                                 std::string("x\0", 2) + kPayload,
                                                 "\r",
                                                 "\n\n",
                                                 "",
                                                 "x\xe2\x80\xae" + kPayload,
                                                 "\xff\xfe\r" + kPayload,
                                                 "x)json\"; " + kPayload,
                                                 "x\n// megalith_kernel_info {}\n",
                                                 "x\n#include \"/etc/passwd\"\n",
                                                 "x\r#define i32 i64\r",
                                                 std::string(100'000, '\r')};
  return names;
}

// All before the first embedded header is one comment a line, in any compiler's eyes, but for the limits on frames.
void expect_comments(const std::string& text) {
  const std::string head = text.substr(0, text.find("// ==== megalith/"));
  ASSERT_FALSE(head.empty());
  for (size_t at = 0; at < head.size();) {
    const size_t end = head.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = head.substr(at, end - at);
    const bool limits_frames = line == "#if defined(__clang__)" || line == "#else" || line == "#endif" ||
                               line == "#pragma clang diagnostic error \"-Wframe-larger-than\"" ||
                               line.starts_with("#pragma GCC diagnostic error \"-Wframe-larger-than=");
    EXPECT_TRUE(line.empty() || line.starts_with("//") || line.starts_with("#define MEGALITH_") || limits_frames)
        << line;
    for (const char c : line) ASSERT_TRUE(c >= 0x20 && c < 0x7F) << static_cast<int>(c) << " in " << line;
    EXPECT_FALSE(line.ends_with("\\")) << line;
    EXPECT_EQ(line.find("??"), std::string::npos) << line;
    EXPECT_EQ(line.find("*/"), std::string::npos) << line;
    EXPECT_EQ(line.find("/*"), std::string::npos) << line;
    at = end + 1;
  }
}

TEST(HostileNames, OfAGraphStayInTheComment) {
  const std::vector<graph::LoweredKernel> kernels = {lower(all_specs()[0])};
  for (const char* target : {"cpu", "cuda"}) {
    const size_t usual = std::ranges::count(emit(target, kernels, "storyteller").text, '\n');
    for (const std::string& name : hostile_names()) {
      const std::string text = emit(target, kernels, name).text;
      expect_comments(text);
      EXPECT_EQ(std::ranges::count(text, '\n'), usual) << "a name makes no lines";
    }
  }
}

// What is left when a compiler has taken the comments away.
TEST(HostileNames, ChangeNothingForTheCompiler) {
  const test::TemporaryFolder folder;
  const std::vector<graph::LoweredKernel> kernels = {lower(all_specs()[0])};
  int compilers = 0;
  for (const std::string compiler : {"g++", "clang++"}) {
    if (!compiler_exists(compiler)) continue;
    ++compilers;
    for (const std::string& name : hostile_names()) {
      file_write_atomic(folder / "kernel.cpp", emit("cpu", kernels, name).text);
      for (const char* trigraphs : {"", " -trigraphs"})
        ASSERT_EQ(std::system(fmt::format("cd {} && {} -std=c++20 -w -march=native{} -E -P kernel.cpp > out 2> log && "
                                          "grep -q megalith_worker out && ! grep -q planted out",
                                          folder.path, compiler, trigraphs)
                                  .c_str()),
                  0)
            << compiler << trigraphs << "\n"
            << file_read(folder / "log");
    }
  }
  EXPECT_GT(compilers, 0);
}

TEST(HostileNames, DoNotReachWhatIsReadBack) {
  const std::vector<graph::LoweredKernel> kernels = {lower(all_specs()[0])};
  const std::string usual = source_info(emit("cuda", kernels, "storyteller").text);
  for (const std::string& name : hostile_names()) EXPECT_EQ(source_info(emit("cuda", kernels, name).text), usual);
}

TEST(HostileNames, OfKernelsAndTheirPartsAreRefused) {
  for (const std::string& name : hostile_names()) {
    auto refused = [&](const std::function<void(graph::LoweredKernel&)>& edit) {
      graph::LoweredKernel lowered = lower(all_specs()[2]);
      edit(lowered);
      for (const char* target : {"cpu", "cuda"}) {
        try {
          emit(target, {lowered}, "x");
          ADD_FAILURE() << "taken: " << name;
        } catch (const UserError& error) {
          EXPECT_THAT(error.what(), HasSubstr("want letters, digits and _"));
          for (const char* c = error.what(); *c; ++c) ASSERT_TRUE(*c >= 0x20 && *c < 0x7F) << "in the message";
        }
      }
    };
    refused([&](graph::LoweredKernel& l) { l.name = name; });
    refused([&](graph::LoweredKernel& l) { l.kernel.tensors[0].name = name; });
    refused([&](graph::LoweredKernel& l) { l.kernel.parameters[0].name = name; });
    refused([&](graph::LoweredKernel& l) { l.kernel.attributes[0].name = name; });
    refused([&](graph::LoweredKernel& l) { l.tiled[0] = name; });
  }
}

TEST(HostileNames, ThatMeanSomethingInCppAreNotGivenToVariables) {
  for (const char* name :
       {"asm", "static_cast", "co_await", "__FILE__", "_Pragma", "MEGALITH_INLINE", "concept", "wchar_t"}) {
    EXPECT_TRUE(is_taken_name(name)) << name;
    EXPECT_NE(member_name(name), name);
  }
  for (const char* name : {"x", "K", "ss", "my__own", "_x"}) EXPECT_FALSE(is_taken_name(name)) << name;
}

// Else it is the compiler who says so, in words that nobody understands.
TEST(HostileNames, ThatMeanSomethingInCppAreRefusedWhereTheyCannotBeChanged) {
  for (const std::string name : {"int", "register", "__FILE__", "MEGALITH_INLINE"}) {
    auto message = [&](const std::function<void(graph::LoweredKernel&)>& edit) {
      graph::LoweredKernel lowered = lower(all_specs()[2]);
      edit(lowered);
      return test::message_of<UserError>([&] { emit("cpu", {lowered}, "x"); });
    };
    const std::string end = " \"" + name + "\" has a meaning in generated code: give it another name";
    EXPECT_THAT(message([&](graph::LoweredKernel& l) { l.name = name; }), HasSubstr("the kernel" + end));
    EXPECT_THAT(message([&](graph::LoweredKernel& l) { l.kernel.parameters[0].name = name; }),
                HasSubstr("the size" + end));
    EXPECT_THAT(message([&](graph::LoweredKernel& l) { l.kernel.attributes[0].name = name; }),
                HasSubstr("the attribute" + end));
  }
}

TEST(CommentText, IsOneLineThatEndsNothing) {
  EXPECT_EQ(comment_text("Qwen3-8B, 4 workers // ok?"), "Qwen3-8B, 4 workers // ok?");
  EXPECT_EQ(comment_text("a*/b/*c"), "a*\\x2fb/\\x2ac");
  EXPECT_EQ(comment_text("what?"
                         "?/"),
            "what?\\x3f/");
  EXPECT_EQ(comment_text("\\"), "\\x5c");
  EXPECT_EQ(comment_lines("a\nb\r\n"), "// a\n// b\\x0d\n");
  EXPECT_EQ(comment_lines(""), "//\n");
}

}  // namespace
}  // namespace megalith::codegen::testing
