// What fuzzers once found, in tests/fuzz/inputs/TARGET, given to the targets again: nothing may crash, hang or throw
// anything but a UserError. `make fuzz` looks for more.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "fuzz/targets/leak_of_isl.h"
#include "megalith/base/file.h"

#define TARGET(name) extern "C" int fuzz_##name(const uint8_t* data, size_t size);
MEGALITH_FUZZ_TARGETS
#undef TARGET

namespace megalith {
namespace {

struct Target {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
};
constexpr Target kTargets[] = {
#define TARGET(name) {#name, fuzz_##name},
    MEGALITH_FUZZ_TARGETS
#undef TARGET
};

class Fuzz : public ::testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, ::testing::ValuesIn(kTargets),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(Fuzz, WhatWasFoundIsMended) {
  const std::string folder = std::string(MEGALITH_SOURCE_DIR "/tests/fuzz/inputs/") + GetParam().name;
  ASSERT_TRUE(std::filesystem::is_directory(folder)) << "a target has at least one input that is not what it seems";
  int inputs = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(file.path().filename().string());
    const std::string input = file_read(file.path());
    EXPECT_EQ(GetParam().run(reinterpret_cast<const uint8_t*>(input.data()), input.size()), 0);
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
}

}  // namespace
}  // namespace megalith
