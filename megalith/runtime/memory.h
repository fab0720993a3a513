// Large anonymous memory: weights, arena, scratch. Aligned to 2 MiB and advised for huge pages, because a decoder that
// reads every weight once per token otherwise pays a page walk every 4 KiB. A page is where the thread runs that touches
// it first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "megalith/base/format.h"

namespace megalith::runtime {

/// The huge page of x86-64 and of aarch64 with 4 KiB base pages. On others the alignment is harmless and the advice is a
/// hint.
inline constexpr int64_t kHugePageBytes = 2 << 20;

/// A zeroed private mapping that lives as long as this object. Move-only; of 0 bytes, data() is nullptr.
class Mapping {
 public:
  Mapping() = default;
  /// SystemError naming `what`, the bytes wanted and the bytes available if they cannot be had.
  /// `huge_pages`: where it is large enough for one; false for what threads share page by page.
  Mapping(int64_t bytes, const std::string& what, bool huge_pages = true);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// For code that catches std::bad_alloc, which says nothing: SystemError that `doing` ("reading x.json") ran out of
/// memory, with the bytes that it is about (0: unknown), what the process has, and which limit it ran into.
[[noreturn]] void throw_out_of_memory(const std::string& doing, int64_t bytes = 0);

}  // namespace megalith::runtime
