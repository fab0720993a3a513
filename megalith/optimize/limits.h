// What a target would rather be given.
#pragma once

#include <cstdint>
#include <string>

namespace megalith::optimize {

/// Rows of an iteration that cost no more than `rows` do: activations of many rows lie in whole blocks on a GPU.
inline constexpr int64_t kRowBlock = 16;
int64_t whole_rows(const std::string& target, int64_t rows);

/// Whether tensor cores multiply that many rows: then what they read, the cache too, is as narrow as they want it.
bool multiplies_narrow(const std::string& target, int64_t rows);
inline constexpr int64_t kMaxNarrowRows = 2048;

/// A quantised matrix has one scale for a multiple of so many columns.
inline constexpr int64_t kQuantMultiple = 4;
/// On a GPU of these.
inline constexpr int64_t kQuantRun = 32;

/// Positions that attention adds up together. They are part of what is computed, so the sums have one order on any number
/// of workers.
inline constexpr int64_t kSplitPositions = 256;

}  // namespace megalith::optimize
