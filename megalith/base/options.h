// Every environment variable that is Megalith's own, and NO_COLOR, in one table: name, default, a sentence. `megalith
// doctor` prints it; docs/jit.md has it, too, and a test sees that no name is missing there. Beside it only variables
// of the system are read: PATH, HOME, TMPDIR, TERM, XDG_CACHE_HOME, XDG_STATE_HOME; to find libraries of CUDA,
// CUDA_HOME, CUDA_PATH, VIRTUAL_ENV and CONDA_PREFIX; and by `bench serve`, as by OpenAI's clients, OPENAI_API_KEY.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace megalith {

struct Option {
  const char* name;           // MEGALITH_...
  const char* default_value;  // "" = unset
  const char* meaning;        // one sentence
};

std::span<const Option> option_table();

/// Value of the variable `name` (which must be in the table), or its default.
std::string option_value(const char* name);
bool option_is_set(const char* name);
int64_t option_integer(const char* name);

}  // namespace megalith
