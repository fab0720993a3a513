#include "megalith/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/mapped_copy.h"
#include "megalith/base/random_hex.h"

namespace megalith {

namespace {

// Closes the descriptor on every way out.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Where a link leads, "" if `path` is none.
std::string link_target(const std::string& path) {
  std::error_code code;
  return std::filesystem::read_symlink(path, code).string();
}

int open_read(const std::string& path, int flags = 0) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd >= 0) return fd;
  if (errno != ENOENT || !file_is_named(path)) throw system_error(fmt::format("cannot open {}", path));
  throw SystemError(fmt::format("cannot open {}: it is a link to {}, which is not there", path, link_target(path)));
}

// Without waiting: the first open of a pipe would last until somebody writes to it.
int open_regular(const std::string& path) { return open_read(path, O_NONBLOCK); }

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

// Bytes until the end or until `bytes` are there.
size_t read_some(int fd, char* to, size_t bytes, const std::string& path) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(fd, to + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error(fmt::format("cannot read {}", path));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
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

// Where many may write, anybody may have put a link that leads to a file of ours.
void check_link(const std::string& link, const std::string& path) {
  struct stat info, folder;
  const std::string parent = std::filesystem::path(link).parent_path().string();
  if (::lstat(link.c_str(), &info) != 0 || ::stat(parent.empty() ? "." : parent.c_str(), &folder) != 0) return;
  if (info.st_uid == ::geteuid() || info.st_uid == 0 || (folder.st_mode & 022) == 0) return;
  throw SystemError(
      fmt::format("cannot write {}: {} is a link that user {} has put there; remove it, or write elsewhere", path, link,
                  info.st_uid));
}

// What writing to a path comes down to.
struct Destination {
  std::string path;            // behind all links
  bool is_direct = false;      // the bytes go straight to it; else they are written beside it, and that is renamed
  std::optional<mode_t> mode;  // of our own file that is replaced
};

Destination destination(const std::string& path) {
  struct stat info;
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) throw system_error(fmt::format("cannot write {}", path));
  if (exists && S_ISDIR(info.st_mode)) throw SystemError(fmt::format("cannot write {}: it is a directory", path));
  Destination to{path};
  constexpr int kMaxLinks = 40;  // as the kernel has it
  for (int i = 0; i < kMaxLinks; ++i) {
    const std::string target = link_target(to.path);
    if (target.empty()) break;
    check_link(to.path, path);
    to.path = std::filesystem::path(to.path).replace_filename(target);  // an absolute one replaces all of it
  }
  // A device or a pipe; by the name that was given, since links in /proc lead to what has no name.
  if (exists && !S_ISREG(info.st_mode)) return {path, true, {}};
  if (exists && info.st_uid == ::geteuid()) to.mode = info.st_mode & 0777;
  return to;
}

// A new file beside `path`, which nobody else can have made: its name is not to be foreseen, and must be free.
struct AsideFile {
  std::string path;
  int fd = -1;

  AsideFile(const std::string& beside, mode_t mode) {
    path = std::filesystem::path(beside).replace_filename(".megalith-" + random_hex());
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  }
};

}  // namespace

std::string file_read(const std::string& path, size_t most_bytes) {
  Descriptor file{open_regular(path)};
  const size_t size = regular_size(file.fd, path);
  if (size > most_bytes) throw SystemError(fmt::format("{} has {} bytes, want at most {}", path, size, most_bytes));
  std::string content(size, '\0');
  content.resize(read_some(file.fd, content.data(), content.size(), path));
  return content;
}

std::string stream_read(const std::string& path, size_t most_bytes) {
  Descriptor file{open_read(path)};
  constexpr size_t kPiece = 1 << 16;
  std::string content;
  for (;;) {
    const size_t done = content.size();
    content.resize(done + kPiece);
    content.resize(done + read_some(file.fd, content.data() + done, kPiece, path));
    if (content.size() == done) return content;
    if (content.size() > most_bytes) throw SystemError(fmt::format("{} has more than {} bytes", path, most_bytes));
  }
}

void file_write_atomic(const std::string& path, std::string_view content, mode_t mode) {
  const Destination to = destination(path);
  std::string aside;
  auto fail = [&](const char* doing) {
    SystemError error = system_error(fmt::format("cannot {} {}", doing, path));
    if (!aside.empty()) ::unlink(aside.c_str());
    throw error;
  };
  auto write_all = [&](int fd) {
    for (size_t done = 0; done < content.size();) {
      const ssize_t n = ::write(fd, content.data() + done, content.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write");
      done += static_cast<size_t>(n);
    }
  };
  if (to.is_direct) {
    const Descriptor file{::open(to.path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC)};
    if (file.fd < 0) fail("open");
    return write_all(file.fd);
  }
  {
    const AsideFile made(to.path, to.mode.value_or(mode));
    const Descriptor file{made.fd};
    if (file.fd < 0) fail("create");
    aside = made.path;
    write_all(file.fd);
    if (to.mode && ::fchmod(file.fd, *to.mode) != 0) fail("set the mode of");
    if (::fsync(file.fd) != 0) fail("sync");
  }
  if (::rename(aside.c_str(), to.path.c_str()) != 0) fail("rename into place");
}

void file_check_writable(const std::string& path) {
  const Destination to = destination(path);
  if (to.is_direct) {  // opening it is not without effect: a pipe's reader would see an end
    if (::access(to.path.c_str(), W_OK) != 0) throw system_error(fmt::format("cannot open {}", path));
    return;
  }
  const AsideFile made(to.path, 0600);
  const Descriptor file{made.fd};
  if (file.fd < 0) throw system_error(fmt::format("cannot create {}", path));
  ::unlink(made.path.c_str());
}

int file_open_append(const std::string& path) {
  const Destination to = destination(path);
  // What takes the bytes as they come may be reached by a link of /proc; all others were followed.
  const int fd = ::open(to.path.c_str(),
                        O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC | (to.is_direct ? 0 : O_NOFOLLOW), 0644);
  if (fd < 0) throw system_error(fmt::format("cannot open {}", path));
  return fd;
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool file_is_named(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

void directory_create(const std::string& path, mode_t mode) {
  // Each part of the path in turn. What is there already, be it a link to a directory, is no error; only the last part
  // must be a directory in the end.
  for (size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) == 0 || errno == EEXIST) continue;
    struct stat info;
    const int error = errno;
    if (::stat(part.c_str(), &info) == 0) continue;  // there, and its parent may only be read
    errno = error;
    throw system_error(fmt::format("cannot create the directory {}", path));
  }
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return;
  errno = ENOTDIR;
  throw system_error(fmt::format("cannot create the directory {}", path));
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  Descriptor file{open_regular(path)};
  size_ = regular_size(file.fd, path);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) throw system_error(fmt::format("cannot map {}, {} bytes", path, size_));
  data_ = static_cast<const std::byte*>(data);
  guard_ = CutGuard(data_, size_);
  const std::unique_lock guard(mappings().mutex);
  mappings().by_begin[data_] = {size_, std::exchange(file.fd, -1), path};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guard_(std::move(other.guard_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(guard_, other.guard_);
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
  guard_ = CutGuard();
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::check_whole() const {
  if (!data_) return;
  size_t size = 0;
  {
    const std::shared_lock guard(mappings().mutex);
    size = regular_size(mappings().by_begin.at(data_).fd, path_);
  }
  if (size < size_ || guard_.has_read_zeros())
    throw SystemError(
        fmt::format("{} has become shorter while it was in use: it had {} bytes, and has {}; load the "
                    "model again once the file is whole",
                    path_, size_, size));
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
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace megalith
