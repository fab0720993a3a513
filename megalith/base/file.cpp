#include "megalith/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/mapped_copy.h"

namespace megalith {

namespace {

// Closes the descriptor on every way out.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

int open_read(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw system_error(fmt::format("cannot open {}", path));
  return fd;
}

size_t regular_size(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) throw system_error(fmt::format("cannot stat {}", path));
  if (!S_ISREG(info.st_mode)) throw SystemError(fmt::format("{} is not a regular file", path));
  return static_cast<size_t>(info.st_size);
}

// The mapped files by where they begin, for mapped_copy(). Each keeps its descriptor.
struct Mapping {
  size_t size;
  int fd;
  std::string path;
};
struct Mappings {
  std::shared_mutex mutex;
  std::map<const std::byte*, Mapping> by_begin;
};
Mappings& mappings() {
  static auto* const all = new Mappings;  // outlives every MappedFile, static ones too
  return *all;
}

void read_at(int fd, void* to, size_t bytes, size_t offset, const std::string& path) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd, static_cast<std::byte*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error(fmt::format("cannot read {}", path));
    if (n == 0)
      throw SystemError(fmt::format("{} has become shorter while it was in use: it ends at byte {}, wanted {} more",
                                    path, offset + done, bytes - done));
    done += static_cast<size_t>(n);
  }
}

}  // namespace

std::string file_read(const std::string& path) {
  Descriptor file{open_read(path)};
  std::string content(regular_size(file.fd, path), '\0');
  size_t done = 0;
  while (done < content.size()) {
    ssize_t n = ::read(file.fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error(fmt::format("cannot read {}", path));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  content.resize(done);
  return content;
}

void file_write_atomic(const std::string& path, std::string_view content) {
  static std::atomic<int> serial = 0;
  const std::string aside = fmt::format("{}.tmp.{}.{}", path, ::getpid(), serial++);
  auto fail = [&](const char* doing) {
    SystemError error = system_error(fmt::format("cannot {} {}", doing, path));
    ::unlink(aside.c_str());
    throw error;
  };
  {
    Descriptor file{::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (file.fd < 0) fail("create");
    size_t done = 0;
    while (done < content.size()) {
      ssize_t n = ::write(file.fd, content.data() + done, content.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write");
      done += static_cast<size_t>(n);
    }
    if (::fsync(file.fd) != 0) fail("sync");
  }
  if (::rename(aside.c_str(), path.c_str()) != 0) fail("rename into place");
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void directory_create(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) throw SystemError(fmt::format("cannot create the directory {}: {}", path, code.message()));
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  Descriptor file{open_read(path)};
  size_ = regular_size(file.fd, path);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) throw system_error(fmt::format("cannot map {}", path));
  data_ = static_cast<const std::byte*>(data);
  const std::unique_lock guard(mappings().mutex);
  mappings().by_begin[data_] = {size_, std::exchange(file.fd, -1), path};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!data_) return;
  {
    const std::unique_lock guard(mappings().mutex);
    const auto found = mappings().by_begin.find(data_);
    ::close(found->second.fd);
    mappings().by_begin.erase(found);
  }
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void mapped_copy(void* to, const void* from, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  const std::shared_lock guard(mappings().mutex);  // nobody unmaps meanwhile
  const auto& all = mappings().by_begin;
  const auto next = all.upper_bound(begin);
  if (next != all.begin()) {
    const auto& [first, mapping] = *std::prev(next);
    const auto offset = static_cast<size_t>(begin - first);
    if (offset < mapping.size && bytes <= mapping.size - offset)
      return read_at(mapping.fd, to, bytes, offset, mapping.path);
  }
  std::memcpy(to, from, bytes);
}

}  // namespace megalith
