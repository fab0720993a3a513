// How many configurations a test goes through. A kernel takes seconds to compile, so where several show the same by
// default a few stand for the rest, and a comment beside them says why; `make test-all` goes through all.
#pragma once

#include <cstdlib>
#include <vector>

namespace megalith::test {

inline bool all_configurations() { return std::getenv("MEGALITH_ALL_CONFIGURATIONS") != nullptr; }

/// Those that are always looked at, and with all configurations the rest.
template <class T>
std::vector<T> some_of(std::vector<T> always, const std::vector<T>& rest) {
  if (all_configurations()) always.insert(always.end(), rest.begin(), rest.end());
  return always;
}

}  // namespace megalith::test
