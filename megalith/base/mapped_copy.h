// Copies out of mapped files. To copy from a mapping is to map its pages first, one fault for a few of them, all
// threads behind one lock; to read the same bytes from the file costs neither.
#pragma once

#include <cstddef>

namespace megalith {

/// Copies `bytes` to `to` from anywhere: what lies in a MappedFile is read from its file. SystemError if that has
/// become shorter or cannot be read.
void mapped_copy(void* to, const void* from, size_t bytes);

}  // namespace megalith
