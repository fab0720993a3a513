// Edited artifacts of a GPU's last two stages. NVRTC and nvJitLink need no GPU.
#include "cuda/skip.h"
#include "driver/fake_driver.h"
#include "megalith/base/file.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/ops/registry.h"

namespace megalith::jit {
namespace {

using test::EnvironmentVariable;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in\n" << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

class OverrideTest : public ::testing::Test {
 protected:
  CudaBuild build(std::string* table = nullptr) {
    Pipeline pipeline("answer", {.override_directory = folder / "mine"});
    CudaBuild made = build_cubin(pipeline, "answer", test::kKernelSource, "sm_90a", cache);
    if (table != nullptr) *table = pipeline.finish().table();
    return made;
  }
  void edit(const std::string& file, const std::string& content) {
    file_write_atomic(folder / "mine/" + file, content);
  }
  size_t cached() const { return cache.list().size(); }
  void SetUp() override {
    directory_create(folder / "mine");
    if (const std::string why = megalith::testing::missing_compiler(); !why.empty()) GTEST_SKIP() << "[SKIP] " << why;
  }

  test::TemporaryFolder folder;
  KernelCache cache{folder / "cache", int64_t{1} << 30};
};

TEST_F(OverrideTest, AnEditedPtxIsAssembled) {
  const CudaBuild computed = build();
  EXPECT_EQ(cached(), 1u);
  edit("kernel.ptx", replaced(computed.ptx, "4242", "4343"));
  std::string table;
  const CudaBuild edited = build(&table);
  EXPECT_THAT(edited.ptx, HasSubstr("4343"));
  EXPECT_TRUE(edited.cubin.starts_with("\177ELF"));
  // The kernel's constant is in its code: 4343 is 0x10f7.
  EXPECT_EQ(computed.cubin.find("\xf7\x10"), std::string::npos);
  EXPECT_NE(edited.cubin.find("\xf7\x10"), std::string::npos);
  EXPECT_GT(edited.resources.registers, 0);
  EXPECT_THAT(table, ::testing::ContainsRegex("ptx +kernel.ptx .* override\n"));
  EXPECT_EQ(cached(), 1u) << "what was edited is not kept";

  std::filesystem::remove(folder / "mine/kernel.ptx");
  EXPECT_EQ(build().cubin, computed.cubin);
}

TEST_F(OverrideTest, APtxThatDoesNotAssembleIsTheEditors) {
  edit("kernel.ptx", replaced(build().ptx, "ret;", "retreat;"));
  EXPECT_THAT(message_of<UserError>([&] { build(); }),
              AllOf(HasSubstr("the override " + (folder / "mine/kernel.ptx") + " of stage \"ptx\" is wrong"),
                    HasSubstr("does not assemble for sm_90a"), HasSubstr("retreat")));
}

TEST_F(OverrideTest, WithoutNvJitLinkAnEditedPtxIsOfNoUse) {
  const EnvironmentVariable library("MEGALITH_NVJITLINK", "/nowhere/libnvJitLink.so");
  edit("kernel.ptx", "whatever");
  EXPECT_THAT(message_of<SystemError>([&] { build(); }),
              AllOf(HasSubstr("cannot open \"/nowhere/libnvJitLink.so\", which MEGALITH_NVJITLINK names"),
                    HasSubstr("an edited PTX (MEGALITH_OVERRIDE) needs it")));
}

TEST_F(OverrideTest, AnEditedCubinIsTakenAsItIsAndNothingIsCompiled) {
  edit("kernel.cubin", "\177ELF and so on");
  std::string table;
  const CudaBuild edited = build(&table);
  EXPECT_EQ(edited.cubin, "\177ELF and so on");
  EXPECT_EQ(edited.ptx, "");
  EXPECT_EQ(cached(), 0u);
  EXPECT_THAT(table, ::testing::ContainsRegex("cubin +kernel.cubin .* override\n"));
}

TEST_F(OverrideTest, WhatIsNoCubinIsRefused) {
  edit("kernel.cubin", "PTX, by mistake");
  EXPECT_EQ(message_of<UserError>([&] { build(); }),
            "[jit] the override " + (folder / "mine/kernel.cubin") +
                " of stage \"cubin\" is no cubin: it has 15 bytes and does not begin as an ELF file does");
}

TEST_F(OverrideTest, ACubinForOtherOperandsIsRefused) {
  const auto compile_from = [&](int64_t columns, const std::string& edited) {
    graph::Graph graph(ops::builtin(), "sum");
    const auto x = graph.state("x", DType::f32, {8, columns}), y = graph.state("y", DType::f32, {8, columns});
    graph.add("add", "add", {y, x}, {.outputs = {{"y", y}}});
    return compile(graph, {.target = "cuda:sm_90a", .num_workers = 2, .pipeline = {.override_directory = edited}});
  };
  const CompiledKernel made = compile_from(64, "");
  edit("kernel.cubin", made.cuda.cubin);
  EXPECT_EQ(compile_from(64, folder / "mine").cuda.cubin, made.cuda.cubin);
  EXPECT_THAT(message_of<UserError>([&] { compile_from(128, folder / "mine"); }),
              HasSubstr("the kernel that MEGALITH_OVERRIDE brings was written for other operands than this graph's"));
}

}  // namespace
}  // namespace megalith::jit
