// What a generated source takes from outside, made safe for it: names become part of the code only if they are names of
// C++, and everything else stands in comments that it cannot end. All of the emitter's text goes through here.
#pragma once

#include <string>
#include <string_view>

#include "megalith/graph/lower.h"

namespace megalith::codegen {

/// `text` as part of a line of a comment, whatever it holds: line ends that only some compilers know, a backslash that
/// would join the next line, trigraphs, marks that turn the direction of writing.
std::string comment_text(std::string_view text);
/// Each of its lines behind "// ".
std::string comment_lines(std::string_view text);

/// A word of C++, or a name that it keeps for itself.
bool is_word_of_cpp(const std::string& name);

/// UserError unless all names that the kernel puts into a source are names there.
void check_names(const graph::LoweredKernel& lowered);

}  // namespace megalith::codegen
