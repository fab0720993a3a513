// Files: read whole, mapped read-only, and written so that a reader never sees half of one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "megalith/base/cut_file.h"

namespace megalith {

/// The whole file as bytes; SystemError naming path and reason if it cannot be read, or if it has more than `most_bytes`.
/// Only regular files: a pipe in a model's folder is refused at once, and not waited for.
std::string file_read(const std::string& path, size_t most_bytes = SIZE_MAX);
/// Whatever can be read to its end: a file, a pipe, a terminal. SystemError beyond `most_bytes`, since a device such as
/// /dev/zero has no end.
std::string stream_read(const std::string& path, size_t most_bytes);

/// Writes aside, syncs, renames: after a crash `path` holds the old content or the new one, never a part. A link stays
/// one and what it leads to is written, unless somebody else has put it where many may write; a file of ours keeps its
/// mode, a new one gets `mode` less the umask. What is there and no file (a device, a pipe) takes the bytes as they come.
void file_write_atomic(const std::string& path, std::string_view content, mode_t mode = 0644);
/// SystemError if file_write_atomic() could not write there: for asking before hours of work, not after. Leaves no
/// trace.
void file_check_writable(const std::string& path);
/// Descriptor for writing at the end of `path`, which is made if it is not there. Links as above.
int file_open_append(const std::string& path);

bool file_exists(const std::string& path);
/// Something has this name, be it a link that leads nowhere: then the file is missing, and not left out on purpose.
bool file_is_named(const std::string& path);
/// Creates the directory and its parents, those that are not there with `mode` less the umask; SystemError if that
/// fails.
void directory_create(const std::string& path, mode_t mode = 0777);

/// A file mapped read-only for as long as this object lives. If another process cuts it short meanwhile, the bytes that
/// are gone read as zeros. Move-only.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// SystemError if the file has become shorter: what was read of it may be zeros.
  void check_whole() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  CutGuard guard_;
};

}  // namespace megalith
