// Which build of Megalith this is. Part of the key of every plan: a program that changed must not find its predecessor's
// output.
#pragma once

#include <string>

namespace megalith::jit {

/// The GNU build-id note of the binary that this code is linked into, in hexadecimal; without a note, a hash of the
/// file.
const std::string& build_id();

}  // namespace megalith::jit
