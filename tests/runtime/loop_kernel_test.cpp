// Loop kernels of one's own: what they are specialized for, what a wrong call is told, and that the stages can be changed.
#include "megalith/runtime/loop_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <vector>

#include "base/temporary_folder.h"
#include "megalith/base/capacity_error.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith::runtime {
namespace {

using test::EnvironmentVariable;
using test::message_of;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A row-major tensor at an address that is a multiple of 16, or 4 bytes behind one.
class Tensor {
 public:
  explicit Tensor(std::vector<int64_t> shape, bool is_aligned = true) : shape_(std::move(shape)) {
    const int64_t count = std::accumulate(shape_.begin(), shape_.end(), int64_t{1}, std::multiplies<>());
    memory_.resize(static_cast<size_t>(count) + 8);
    begin_ = (16 - reinterpret_cast<uintptr_t>(memory_.data()) % 16) % 16 / 4 + (is_aligned ? 0 : 1);  // NOLINT
    for (int64_t i = 0; i < count; ++i) data()[i] = static_cast<float>(i % 7 - 3);
  }
  float* data() { return memory_.data() + begin_; }
  LoopTensor view() {
    LoopTensor tensor{.data = data(), .is_there = true, .num_dims = static_cast<int>(shape_.size())};
    std::ranges::copy(shape_, tensor.shape.begin());
    return tensor;
  }

 private:
  std::vector<int64_t> shape_;
  std::vector<float> memory_;
  size_t begin_ = 0;
};

class LoopKernelTest : public ::testing::Test {
 protected:
  TemporaryFolder folder;
  EnvironmentVariable cache{"MEGALITH_CACHE_DIR", (folder / "cache").c_str()};
};

constexpr const char* kScaled = "parameter m\ninput a: f32[n]\n{ [i] : 0 <= i < n and m >= 0 }\nb[i] = m * a[i]";

// T1 of Triton's tests: one kernel, called with 1, 2, 4, 8, 16, 32.
size_t compilations(LoopSpecializing specializing) {
  const LoopKernel kernel(kScaled, std::move(specializing));
  Tensor a({20}), b({20});
  for (const int64_t m : {1, 2, 4, 8, 16, 32}) {
    LoopCall call = kernel.call();
    call.tensors[0] = a.view();
    call.tensors[1] = b.view();
    call.sizes[static_cast<size_t>(std::ranges::find(kernel.signature().sizes(), "m") -
                                   kernel.signature().sizes().begin())] = m;
    kernel.run(call);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(b.data()[i], static_cast<float>(m) * a.data()[i]) << m << ", " << i;
  }
  return kernel.num_compiled();
}

TEST_F(LoopKernelTest, T1_IsCompiledForOneForMultiplesAndForTheRest) {
  EXPECT_EQ(compilations({}), 3u);
  EXPECT_EQ(compilations({.never = {"m"}}), 1u);
  EXPECT_EQ(compilations({.divisibility = false}), 2u);
  EXPECT_EQ(compilations({.ones = false}), 2u);
}

TEST_F(LoopKernelTest, WhatIsKnownStandsInTheCode) {
  const LoopKernel kernel = LoopKernel("{ [i] : 0 <= i < n }\nb[i] = 2 * a[i]").then("split i 16 -> o p");
  const auto source = [&](int64_t n, bool is_aligned) {
    Tensor a({n}, is_aligned), b({n}, is_aligned);
    LoopCall call = kernel.call();
    call.tensors[0] = a.view();
    call.tensors[1] = b.view();
    kernel.run(call);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(b.data()[i], 2 * a.data()[i]);
    return kernel.newest()->sources[0].text;
  };
  EXPECT_THAT(source(32, true), AllOf(HasSubstr("p < 16;"), HasSubstr("__builtin_assume_aligned(tensors[")));
  EXPECT_THAT(source(33, false), AllOf(HasSubstr("p < min(16, n - 16 * o);"), Not(HasSubstr("assume_aligned"))));
  EXPECT_THAT(source(1, true), Not(HasSubstr("const i64 n")));
  EXPECT_EQ(kernel.num_compiled(), 3u);
}

TEST_F(LoopKernelTest, WhatDataDecideIsCheckedAndSaid) {
  const LoopKernel kernel(
      "input ids: i32[n]\ninput table: f32[v]\nassume v >= 1\n{ [i] : 0 <= i < n }\ny[i] = table[ids[i]]\n");
  Tensor table({5}), y({4});
  std::vector<int32_t> ids = {4, 0, 2, 3};
  LoopCall call = kernel.call();
  call.tensors[0] = {.data = ids.data(), .dtype = DType::i32, .is_there = true, .num_dims = 1, .shape = {4}};
  call.tensors[1] = table.view();
  call.tensors[2] = y.view();
  kernel.run(call);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(y.data()[i], table.data()[ids[i]]);
  for (const int32_t wrong : {5, -1, 1 << 30}) {
    ids[2] = wrong;
    EXPECT_THAT(message_of<UserError>([&] { kernel.run(call); }),
                HasSubstr("reads table[ids[i]] outside: index ids[i] is " + std::to_string(wrong) +
                          ", allowed 0 <= index < 5; nothing outside of a tensor was read or written"));
  }
  ids[2] = 1;
  kernel.run(call);
  EXPECT_EQ(y.data()[2], table.data()[1]);
}

TEST_F(LoopKernelTest, TypesComeWithTheArgumentsAndTheScheduleIsMadeAnew) {
  const LoopKernel kernel = LoopKernel("{ [i, k] : 0 <= i < n and 0 <= k < l }\nc[i] = sum(k, a[i, k])")
                                .then("split k 4 -> ko ki")
                                .then("accumulate ko -> acc")
                                .then("rename a x");
  std::vector<int32_t> x(3 * 10), c(3);
  std::iota(x.begin(), x.end(), 1);
  LoopCall call = kernel.call();
  call.tensors[0] = {.data = x.data(), .dtype = DType::i32, .is_there = true, .num_dims = 2, .shape = {3, 10}};
  EXPECT_EQ(kernel.output_dtype(call, 1), DType::i32);
  call.tensors[1] = {.data = c.data(), .dtype = DType::i32, .is_there = true, .num_dims = 1, .shape = {3}};
  kernel.run(call);
  EXPECT_THAT(c, ElementsAre(55, 155, 255));
  c.assign(3, 0);
  kernel.interpret(call);
  EXPECT_THAT(c, ElementsAre(55, 155, 255));
}

TEST_F(LoopKernelTest, AWrongCallIsToldWhatIsWrong) {
  const LoopKernel kernel(
      "kernel matmul\ninput a: f32[n, l]\ninput b: f32[l, m + 2]\nassume n >= 2\n"
      "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }\nc[i, j] = sum(k, a[i, k] * b[k, j + 2])");
  const auto refusal = [&](std::vector<int64_t> a, std::vector<int64_t> b, std::vector<int64_t> c) {
    Tensor first(a), second(b), third(c);
    LoopCall call = kernel.call();
    call.tensors[0] = first.view();
    call.tensors[1] = second.view();
    call.tensors[2] = third.view();
    return message_of<UserError>([&] { kernel.run(call); });
  };
  EXPECT_EQ(
      refusal({4, 5}, {6, 5}, {4, 3}),
      "[matmul] b has the shape [6, 5], want [l, m + 2] = [5, 5], as n = 4 (a has the shape [4, 5]), m = 3 (c has the "
      "shape [4, 3]), l = 5 (a has the shape [4, 5])");
  EXPECT_EQ(refusal({4, 5, 1}, {5, 5}, {4, 3}), "[matmul] a has 3 dimensions, [4, 5, 1], want 2: [n, l]");
  EXPECT_EQ(refusal({1, 5}, {5, 5}, {1, 3}),
            "[matmul] with n = 1, m = 3, l = 5 the kernel does not hold: it assumes n >= 2");
  EXPECT_EQ(
      refusal({4, 5}, {5, 1}, {4, 3}),
      "[matmul] b has the shape [5, 1], want [l, m + 2] = [5, 5], as n = 4 (a has the shape [4, 5]), m = 3 (c has the "
      "shape [4, 3]), l = 5 (a has the shape [4, 5])");

  Tensor a({4, 5}), b({5, 5}), c({4, 3});
  LoopCall call = kernel.call();
  call.tensors[0] = a.view();
  call.tensors[1] = b.view();
  call.tensors[2] = c.view();
  const auto changed = [&](auto change) {
    LoopCall other = call;
    change(other);
    return message_of<UserError>([&] { kernel.run(other); });
  };
  EXPECT_EQ(changed([](LoopCall& other) { other.tensors[0].dtype = DType::f16; }),
            "[matmul] a has the dtype f16, want f32: convert it, or leave the dtype out of the kernel's text");
  EXPECT_THAT(changed([](LoopCall& other) { other.tensors[1].row_major = false; }),
              HasSubstr("[matmul] b of shape [5, 5] is not row-major: pass .contiguous() (torch)"));
  EXPECT_EQ(changed([](LoopCall& other) { other.tensors[2].writable = false; }),
            "[matmul] c is written, and may only be read");
  EXPECT_THAT(changed([&](LoopCall& other) { other.tensors[2].data = a.data() + 19; }),
              HasSubstr("[matmul] c is written, and shares memory with a"));
  EXPECT_EQ(changed([](LoopCall& other) { other.tensors[1].on_gpu = true; }),
            "[matmul] b lies on GPU 0, and a in the host's memory: they must lie together");
  kernel.run(call);
}

TEST_F(LoopKernelTest, ASizeThatNoShapeTellsMustBeGiven) {
  const LoopKernel kernel(kScaled);
  Tensor a({20}), b({20});
  LoopCall call = kernel.call();
  call.tensors[0] = a.view();
  call.tensors[1] = b.view();
  EXPECT_EQ(message_of<UserError>([&] { kernel.run(call); }), "[kernel] no shape tells the size m: pass m=...");
}

// T7: what was edited is what runs, of the loops and of the source.
TEST_F(LoopKernelTest, T7_EditedLoopsAndAnEditedSourceAreWhatRuns) {
  Tensor a({8}), b({8});
  const auto result = [&] {
    const LoopKernel kernel("{ [i] : 0 <= i < n }\nb[i] = 2 * a[i]");
    LoopCall call = kernel.call();
    call.tensors[0] = a.view();
    call.tensors[1] = b.view();
    kernel.run(call);
    return b.data()[0] / a.data()[0];
  };
  const EnvironmentVariable dump("MEGALITH_DUMP", (folder / "dump").c_str());
  EXPECT_EQ(result(), 2);
  const std::filesystem::path made = *std::filesystem::directory_iterator(folder / "dump");
  for (const char* file : {"loops.txt", "kernel.cpp", "kernel.so", "command.txt"})
    EXPECT_TRUE(std::filesystem::exists(made / file)) << file;
  const auto edited = [&](const char* file, const std::string& from, const std::string& to) {
    std::string text = file_read(made / file);
    const size_t at = text.rfind(from);
    EXPECT_NE(at, std::string::npos) << text;
    text.replace(at, from.size(), to);
    std::filesystem::remove_all(folder / "mine");
    directory_create(folder / "mine");
    file_write_atomic(folder / "mine/" + file, text);
    const EnvironmentVariable mine("MEGALITH_OVERRIDE", (folder / "mine").c_str());
    try {
      EXPECT_EQ(result(), 3);
    } catch (const UserError& error) { return std::string(error.what()); }
    return std::string();
  };
  const EnvironmentVariable no_dump("MEGALITH_DUMP", "");
  EXPECT_EQ(edited("loops.txt", "2 * a[i]", "3 * a[i]"), "");
  EXPECT_EQ(edited("kernel.cpp", "2.0f * ", "3.0f * "), "");
  EXPECT_THAT(edited("loops.txt", "input a: f32[n]", "input a: f32[n + 1]"),
              HasSubstr("is wrong: it has no \"input a: f32, n\", which its callers count on"));
}

TEST_F(LoopKernelTest, WhatABlockCannotHoldIsSaidWithNeedAndLimit) {
  EXPECT_THAT(message_of<CapacityError>(
                  [] { LoopKernel("{ [i, j] : 0 <= i, j < 64 }\nb[i, j] = a[i, j]").then("tag i l.0 j l.1"); }),
              HasSubstr("a block would have 4096 threads: at most 1024"));
  const LoopKernel kernel = LoopKernel("{ [i, j] : 0 <= i < 128 and 0 <= j < 128 }\nb[j, i] = a[i, j]")
                                .then("prefetch a[i, j] -> s p:l.0 q")
                                .then("tag j l.0");
  Tensor a({128, 128}), b({128, 128});
  LoopCall call = kernel.call();
  call.tensors[0] = a.view();
  call.tensors[1] = b.view();
  EXPECT_THAT(message_of<CapacityError>([&] { kernel.make_for(call, "cuda:sm_90a"); }),
              HasSubstr("a block would take 65536 bytes of shared memory, at most 49152"));
}

}  // namespace
}  // namespace megalith::runtime
