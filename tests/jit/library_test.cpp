#include "megalith/jit/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/jit/compiler.h"

namespace megalith::jit {
namespace {

using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using testing::HasSubstr;
using testing::StartsWith;

class LibraryTest : public testing::Test {
 protected:
  std::string compile(const std::string& source) {
    file_write_atomic(folder / "a.cpp", source);
    const Compiler compiler = compiler_find(KernelCache(folder / "cache", 1 << 20));
    const CompileResult result = compile_units(compiler, default_flags(), folder.path, {"a.cpp"}, "a.so");
    EXPECT_TRUE(result.process.ok()) << result.process.output;
    return folder / "a.so";
  }
  TemporaryFolder folder;
};

TEST_F(LibraryTest, FindsFunctionsAndUnloadsAtTheEnd) {
  const std::string path = compile(R"(
      extern int* unloaded;
      int* unloaded = nullptr;
      extern "C" void tell(int* where) { unloaded = where; }
      extern "C" int add_one(int x) { return x + 1; }
      __attribute__((destructor)) static void end() { if (unloaded) *unloaded = 1; })");
  int unloaded = 0;
  {
    Library first = Library::load(path);
    Library library = std::move(first);
    EXPECT_FALSE(first);  // NOLINT: what a moved-from library is, is the point
    EXPECT_TRUE(library);
    EXPECT_EQ(library.function<int(int)>("add_one")(41), 42);
    EXPECT_TRUE(library.has_symbol("tell"));
    EXPECT_FALSE(library.has_symbol("nothing"));
    library.function<void(int*)>("tell")(&unloaded);
    EXPECT_EQ(unloaded, 0);
  }
  EXPECT_EQ(unloaded, 1);
}

TEST_F(LibraryTest, AMissingSymbolIsNamed) {
  const std::string path = compile("extern \"C\" int f() { return 1; }");
  const Library library = Library::load(path);
  EXPECT_EQ(message_of<SystemError>([&] { library.symbol("megalith_worker"); }),
            "[jit] the kernel " + path + " exports no symbol \"megalith_worker\" (is it declared extern \"C\"?)");
}

TEST_F(LibraryTest, AnUndefinedSymbolIsFoundWhenLoading) {
  const std::string path = compile("extern \"C\" int nowhere(); extern \"C\" int f() { return nowhere(); }");
  EXPECT_THAT(message_of<SystemError>([&] { Library::load(path); }), HasSubstr("undefined symbol: nowhere"));
}

TEST_F(LibraryTest, AFileThatIsNoLibraryIsAnError) {
  file_write_atomic(folder / "a.so", "hello");
  EXPECT_THAT(message_of<SystemError>([&] { Library::load(folder / "a.so"); }),
              StartsWith("[jit] cannot load the kernel " + folder.path + "/a.so: "));
}

TEST_F(LibraryTest, TheInterfaceVersionIsChecked) {
  auto with_info = [&](const std::string& json) {
    return compile("extern \"C\" { extern const char megalith_kernel_info[]; const char megalith_kernel_info[] = R\"(" +
                   json + ")\"; }");
  };
  const std::string right = "{\"version\": \"" MEGALITH_VERSION "\", \"bodies\": []}";
  EXPECT_EQ(Library::load(with_info(right)).kernel_info(), right);
  const std::string path = with_info("{\"version\": \"9.9\"}");
  EXPECT_EQ(message_of<SystemError>([&] { Library::load(path).kernel_info(); }),
            "[jit] the kernel " + path + " was made by Megalith 9.9, this is " MEGALITH_VERSION "; compile it again");
  with_info("{}");
  EXPECT_THAT(message_of<SystemError>([&] { Library::load(path).kernel_info(); }),
              HasSubstr("was made by Megalith none"));
}

}  // namespace
}  // namespace megalith::jit
