// Every environment variable that Megalith reads, in one table: name, default, a sentence. `megalith doctor` and the
// docs print this table. Beside it only what every program reads is read: PATH, HOME, TMPDIR, TERM,
// XDG_CACHE_HOME, XDG_STATE_HOME.
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
