#include "megalith/jit/cuda/shared_library.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "megalith/base/error.h"

namespace megalith::jit {

namespace {

std::vector<std::string> folders_like(const std::string& pattern) {
  std::vector<std::string> result;
  glob_t found{};
  if (glob(pattern.c_str(), GLOB_ONLYDIR, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) result.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  return result;
}

}  // namespace

SharedLibrary::SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders,
                             const std::string& advice) {
  std::string reason;
  auto attempt = [&](const std::string& path) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* error = dlerror();
      // Of a library that is there and does not load, the reason is worth more than that others are missing.
      if (error && std::string(error).find("No such file") == std::string::npos) reason = error;
      return false;
    }
    path_ = path;
    return true;
  };
  for (const std::string& name : names)
    if (attempt(name)) return;
  for (const std::string& folder : folders)
    for (const std::string& name : names)
      if (attempt(folder + "/" + name)) return;
  throw SystemError(fmt::format("[cuda] cannot open {}: looked where the dynamic linker looks{}{}{}; {}",
                                fmt::join(names, " or "), folders.empty() ? "" : " and in ", fmt::join(folders, ", "),
                                reason.empty() ? "" : fmt::format(" ({})", reason), advice));
}

SharedLibrary SharedLibrary::named(const std::string& path, const std::string& variable, const std::string& advice) {
  SharedLibrary library;
  library.path_ = path;
  library.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ != nullptr) return library;
  const char* error = dlerror();
  throw SystemError(fmt::format("[cuda] cannot open \"{}\", which {} names ({}); {}", path, variable,
                                error ? error : "no reason given", advice));
}

void* SharedLibrary::symbol(const char* name) const {
  void* address = dlsym(handle_, name);
  if (address == nullptr)
    throw SystemError(fmt::format("[cuda] {} has no function {}: it is too old; install a newer one", path_, name));
  return address;
}

std::string SharedLibrary::file() const {
  const link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return path_;
  std::error_code code;
  const std::filesystem::path file = std::filesystem::canonical(map->l_name, code);
  return code ? path_ : file.string();
}

std::string SharedLibrary::identity() const {
  const std::string file = this->file();
  struct stat info = {};
  ::stat(file.c_str(), &info);
  return fmt::format("{} {} {}.{:09}", file, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

namespace {
// Where the toolkit lies whose nvcc is on the PATH; "" without one.
std::string toolkit_on_path() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.starts_with('/')) continue;  // wherever we happen to be: a folder of others, perhaps
    std::error_code code;
    const auto nvcc = std::filesystem::canonical(folder + "/nvcc", code);
    if (!code) return nvcc.parent_path().parent_path();
  }
  return "";
}
}  // namespace

std::vector<std::string> cuda_library_folders() {
  std::vector<std::string> folders;
  auto add = [&](const std::string& pattern) {
    for (std::string& folder : folders_like(pattern))
      if (std::ranges::find(folders, folder) == folders.end()) folders.push_back(std::move(folder));
  };
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable); home && home[0] == '/')
      add(std::string(home) + "/lib64"), add(std::string(home) + "/lib");
  if (const std::string home = toolkit_on_path(); !home.empty()) add(home + "/lib64"), add(home + "/targets/*/lib");
  add("/usr/local/cuda/lib64");
  add("/usr/local/cuda-*/lib64");
  add("/opt/cuda/lib64");
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* home = std::getenv(variable); home && home[0] == '/')
      for (const char* kind : {"cu13", "cuda_nvrtc", "nvjitlink"})
        add(fmt::format("{}/lib/python3*/site-packages/nvidia/{}/lib", home, kind));
  for (const char* root : {"/usr/local/lib", "/usr/lib", "/root/.local/lib", "/opt/*/lib", "/opt/*/.venv/lib"})
    for (const char* packages : {"site-packages", "dist-packages"})
      for (const char* kind : {"cu13", "cuda_nvrtc", "nvjitlink"})
        add(fmt::format("{}/python3*/{}/nvidia/{}/lib", root, packages, kind));
  return folders;
}

}  // namespace megalith::jit
