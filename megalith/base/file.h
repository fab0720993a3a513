// Files: read whole, mapped read-only, and written so that a reader never sees half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megalith {

/// The whole file as bytes; SystemError naming path and reason if it cannot be read.
std::string file_read(const std::string& path);

/// Writes aside, syncs, renames: after a crash `path` holds the old content or the new one, never a part.
void file_write_atomic(const std::string& path, std::string_view content);

bool file_exists(const std::string& path);
/// Creates the directory and its parents; SystemError if that fails.
void directory_create(const std::string& path);

/// A file mapped read-only for as long as this object lives. Move-only.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace megalith
