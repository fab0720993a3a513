// What tests that touch the system need: a folder that goes with the test, and environment variables that come back.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace megalith::test {

struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    path = (std::filesystem::temp_directory_path() / "megalith-test-XXXXXX").string();
    if (!mkdtemp(path.data())) throw std::runtime_error("cannot create " + path);
  }
  ~TemporaryFolder() {
    std::error_code code;
    std::filesystem::remove_all(path, code);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

/// Sets the variable, or unsets it for nullptr; puts the old value back at the end.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  EnvironmentVariable(const char* name, const std::string& value) : EnvironmentVariable(name, value.c_str()) {}
  ~EnvironmentVariable() { set(old_ ? old_->c_str() : nullptr); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  void set(const char* value) {
    if (value)
      ::setenv(name_, value, 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

/// what() of the exception of kind E that `action` throws; a failure if it throws none or another.
template <class E, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const E& error) { return error.what(); } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}

}  // namespace megalith::test
