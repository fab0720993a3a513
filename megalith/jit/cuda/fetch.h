// What CUDA's compilers hand out: one call says how many bytes there are, another fills them in.
#pragma once

#include <string>

namespace megalith::jit {

/// "" if there is nothing, or if a call fails.
template <class Handle, class Code, class Character>
std::string fetch(Handle handle, Code (*size)(Handle, size_t*), Code (*content)(Handle, Character*)) {
  size_t bytes = 0;
  if (size(handle, &bytes) != 0 || bytes == 0) return "";
  std::string text(bytes, '\0');
  return content(handle, text.data()) == 0 ? text : "";
}

}  // namespace megalith::jit
