#include "megalith/jit/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/limits.h"

namespace megalith::jit {

namespace {

// The string after "version": in a small JSON text that our own emitter wrote; "none" if there is none.
std::string version_in(std::string_view json) {
  constexpr std::string_view kKey = "\"version\"";
  size_t at = json.find(kKey);
  if (at == std::string_view::npos) return "none";
  at = json.find('"', at + kKey.size());
  const size_t end = at == std::string_view::npos ? at : json.find('"', at + 1);
  return end == std::string_view::npos ? "none" : std::string(json.substr(at + 1, end - at - 1));
}

}  // namespace

bool is_noexec(const std::string& path) {
  struct statvfs file_system;
  return ::statvfs(path.c_str(), &file_system) == 0 && (file_system.f_flag & ST_NOEXEC) != 0;
}

// The loader's message says little, and another thing on each system. What it could not do is tried again.
bool maps_no_code(const std::string& path) {
  if (is_noexec(path)) return true;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  constexpr size_t kBytes = 4096;
  void* const code = ::mmap(nullptr, kBytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  const bool refused = code == MAP_FAILED && (errno == EPERM || errno == EACCES);
  if (code != MAP_FAILED) ::munmap(code, kBytes);
  ::close(fd);
  return refused;
}

Library Library::load(const std::string& path) {
  // Without a slash dlopen would search the system's directories.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  Library library;
  library.path_ = path;
  library.handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle_) {
    std::string reason = ::dlerror();
    if (maps_no_code(path)) reason += "; no code can be run from there: is it mounted noexec?";
    if (reason.find("annot allocate memory") != std::string::npos) reason += fmt::format(" ({})", limit_text(ENOMEM));
    throw SystemError(fmt::format("[jit] cannot load the kernel {}: {}", path, reason));
  }
  return library;
}

Library::Library(Library&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), path_(std::move(other.path_)) {}

Library& Library::operator=(Library&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(path_, other.path_);
  return *this;
}

Library::~Library() {
  if (handle_) ::dlclose(handle_);
}

bool Library::has_symbol(const char* name) const { return handle_ && ::dlsym(handle_, name); }

void* Library::symbol(const char* name) const {
  MEGALITH_ASSERT(handle_, "[jit] no kernel is loaded, so it has no symbol \"{}\"", name);
  void* address = ::dlsym(handle_, name);
  if (!address)
    throw SystemError(
        fmt::format("[jit] the kernel {} exports no symbol \"{}\" (is it declared extern \"C\"?)", path_, name));
  return address;
}

std::string Library::kernel_info() const {
  std::string info = static_cast<const char*>(symbol("megalith_kernel_info"));
  const std::string version = version_in(info);
  if (version != MEGALITH_VERSION)
    throw SystemError(fmt::format("[jit] the kernel {} was made by Megalith {}, this is {}; compile it again", path_,
                                  version, MEGALITH_VERSION));
  return info;
}

}  // namespace megalith::jit
