// Mapped files that another process cuts short. Where a file has no bytes any more its mapping has none either, and
// whoever touches it is ended by SIGBUS. A guarded mapping reads zeros there instead, and says so.
//
// The first guard installs a handler for SIGBUS. It puts empty pages where a guarded mapping faults, without locks and
// without memory of its own, and hands every other fault to the handler that was there before.
#pragma once

#include <cstddef>

namespace megalith {

struct CutGuardEntry;

/// Guards `bytes` of a mapping from `begin` for as long as it lives; it has to go before the mapping. Move-only.
class CutGuard {
 public:
  CutGuard() = default;
  CutGuard(const void* begin, size_t bytes);
  CutGuard(CutGuard&& other) noexcept;
  CutGuard& operator=(CutGuard&& other) noexcept;
  ~CutGuard();

  /// Whether somebody touched bytes that the file no longer has: what was read there are zeros.
  bool has_read_zeros() const;

 private:
  CutGuardEntry* entry_ = nullptr;
};

}  // namespace megalith
