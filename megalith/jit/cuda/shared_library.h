// Libraries that are opened when they are needed, so that the same build runs where they are not installed: libcuda,
// which comes with the driver, and NVRTC, which comes with a toolkit or with pip.
#pragma once

#include <string>
#include <vector>

namespace megalith::jit {

class SharedLibrary {
 public:
  /// Opens the first of `names` that is found by the dynamic linker or in `folders`. SystemError with all the places
  /// where it looked, and with `advice`.
  SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders,
                const std::string& advice);
  /// Opens `path`, which the environment variable `variable` holds, and nothing else.
  static SharedLibrary named(const std::string& path, const std::string& variable, const std::string& advice);

  /// SystemError naming symbol and library if it is not there.
  void* symbol(const char* name) const;
  /// Fills in a function pointer.
  template <class Function>
  void bind(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(symbol(name));
  }
  const std::string& path() const { return path_; }
  /// The file that was loaded, behind all links, which is where a full version is written: "/usr/lib/libx.so.1.2.3".
  std::string file() const;
  /// What changes if another file, or another version, takes this one's place: file(), its size and its time.
  std::string identity() const;

 private:
  SharedLibrary() = default;

  void* handle_ = nullptr;  // never closed: drivers do not like it
  std::string path_;
};

/// Where toolkits and pip put CUDA's libraries: CUDA_HOME, CUDA_PATH, beside the nvcc of the PATH, /usr/local/cuda*,
/// /opt/cuda, and site-packages/nvidia/*/lib of the Python environments around.
std::vector<std::string> cuda_library_folders();

}  // namespace megalith::jit
