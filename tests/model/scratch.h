// A folder of its own for each test, and the message of the UserError that a call ends in.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith {

/// The message of the UserError that `call` throws, "" if it throws none; other errors pass.
inline std::string user_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) { return error.what(); }
  return "";
}

class ScratchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "megalith-model-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }
  void write(const std::string& name, std::string_view content) { file_write_atomic(folder_ + "/" + name, content); }

 private:
  std::string folder_;
};

}  // namespace megalith
