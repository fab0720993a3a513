// What compilers make of a source, kept from one run of the tests to the next: the same compiler makes the same of it.
#pragma once

#include <string>

namespace megalith::codegen::testing {

/// The content of the file `made`, which `compiler arguments` leaves in a folder that has kernel.cpp. In MEGALITH_CACHE_DIR,
/// if that is set, it is looked for first and kept. UserError with what the compiler says if it fails.
std::string compiled(const std::string& source, const std::string& compiler, const std::string& arguments,
                     const std::string& made);

}  // namespace megalith::codegen::testing
