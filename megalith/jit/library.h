// A compiled kernel, loaded. The shared object stays loaded for as long as this object lives, so whatever holds a
// function pointer from it must hold the Library too.
#pragma once

#include <string>
#include <type_traits>

namespace megalith::jit {

/// Whether the file system on which `path` lies is mounted such that no code runs from it.
bool is_noexec(const std::string& path);
/// Whether no code can be run from the file, whatever it holds: for that reason, or by a policy.
bool maps_no_code(const std::string& path);

class Library {
 public:
  /// dlopen(RTLD_NOW | RTLD_LOCAL): an undefined symbol is an error here and not in the middle of a run.
  static Library load(const std::string& path);

  Library() = default;
  Library(Library&& other) noexcept;
  Library& operator=(Library&& other) noexcept;
  ~Library();

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& path() const { return path_; }

  /// Address of an exported symbol; SystemError naming symbol and file if there is none.
  void* symbol(const char* name) const;
  bool has_symbol(const char* name) const;

  /// library.function<int(int)>("add_one")
  template <class Signature>
  Signature* function(const char* name) const {
    static_assert(std::is_function_v<Signature>);
    return reinterpret_cast<Signature*>(symbol(name));
  }

  /// The JSON that the kernel exports as `megalith_kernel_info`, after checking that its "version" is this Megalith's:
  /// host and kernel share the data structures of runtime/protocol.h. The version is part of the cache key too, so a
  /// mismatch means a file from elsewhere.
  std::string kernel_info() const;

 private:
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace megalith::jit
