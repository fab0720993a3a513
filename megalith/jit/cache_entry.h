// An entry of the kernel cache as it lies on disk: a directory with a few files and info.json, which lists them with size
// and hash. Nothing in an entry is used before all of it has been looked at, and what is found wrong says so.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace megalith::jit {

/// info.json.
struct EntryInfo {
  struct File {
    int64_t bytes = 0;
    std::string hash;
  };
  std::string key, name;  // the directory's, and the kernel's
  int64_t created = 0;    // seconds since 1970
  std::map<std::string, File> files;
};

/// What files of an entry hold, by name; without info.json.
using EntryFiles = std::map<std::string, std::string>;

/// No entry is larger; who writes one keeps to it, and who reads one looks first.
constexpr int64_t kMaxEntryBytes = int64_t{1} << 30;

std::string to_json(const EntryInfo& info);
/// UserError for what is no such text: another key, no files, too many, or names that lead out of the directory.
EntryInfo entry_info_from_json(std::string_view text);

/// Names of what is in a directory, sorted; none if it is a link, or no directory. SystemError if no more files can be
/// opened.
std::vector<std::string> names_in(const std::string& directory);

/// Sizes and hashes of the files in `directory`; makes them readable and writable for us alone, and puts them on disk.
/// SystemError if there is anything but files, or too much.
EntryInfo entry_seal(const std::string& directory, const std::string& key, const std::string& name);

/// What is wrong with the entry `directory` of `key`; "" if it is whole, was made under this key, holds what is listed
/// and nothing else, and nobody but us and root can have written any of it. Of a kernel of 2 MB that takes half a
/// millisecond. SystemError if that cannot be told, since no more files can be opened. `files`, if given, gets what was
/// read.
std::string entry_damage(const std::string& directory, const std::string& key, EntryFiles* files = nullptr);

/// The kernel's name; "?" where none can be read.
std::string entry_name(const std::string& directory);

}  // namespace megalith::jit
