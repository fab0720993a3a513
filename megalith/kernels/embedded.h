// The freestanding headers that generated kernels are made of, as text inside the library: a compiled kernel needs a
// compiler, but no source tree of ours.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith::kernels {

/// The text of a header by its path below megalith/: "runtime/protocol.h", "kernels/cpu/gemv.h". UserError naming the
/// headers there are if it is not one of them.
std::string_view embedded_source(std::string_view name);

/// All names, sorted.
std::vector<std::string> embedded_names();

}  // namespace megalith::kernels
