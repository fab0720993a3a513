#include "megalith/jit/cache_entry.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/base/json_reason.h"
#include "megalith/jit/trust.h"

namespace megalith::jit {

namespace {

constexpr const char* kInfo = "info.json";
constexpr size_t kMaxInfoBytes = 1 << 20, kMaxFiles = 64;

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// The fault of no entry: this process may open no more files.
struct Exhausted : SystemError {
  using SystemError::SystemError;
};

[[noreturn]] void throw_unopened(const std::string& what) {
  const bool is_exhausted = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  const SystemError error = system_error(what);
  if (is_exhausted) throw Exhausted(error.what());
  throw error;
}

// Of a file that an entry may have: nothing that leads elsewhere, and nothing hidden.
bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() < 256 && name[0] != '.' && name != kInfo && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

// A regular file of the directory behind `fd`, opened without following links or waiting for a pipe.
Descriptor open_in(int fd, const std::string& name, struct stat& info) {
  Descriptor file{::openat(fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  if (file.fd < 0) throw_unopened(name);
  if (::fstat(file.fd, &info) != 0) throw system_error(name);
  if (!S_ISREG(info.st_mode)) throw SystemError(name + " is not a regular file");
  return file;
}

// What it says, if it is ours and no larger than `most_bytes`.
std::string read_in(int fd, const std::string& name, int64_t most_bytes) {
  struct stat info;
  const Descriptor file = open_in(fd, name, info);
  if (const std::string reason = distrust(name, info); !reason.empty()) throw SystemError(reason);
  if (info.st_size > most_bytes)
    throw SystemError(fmt::format("{} has {} bytes, want at most {}", name, info.st_size, most_bytes));
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(file.fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error(name);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  content.resize(done);
  return content;
}

Descriptor open_directory(const std::string& directory) {
  return {::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
}

void sync(int fd, const std::string& what) {
  if (::fsync(fd) != 0) throw system_error("cannot sync " + what);
}

}  // namespace

std::string to_json(const EntryInfo& info) {
  nlohmann::ordered_json json = {{"name", info.name}, {"key", info.key}, {"created", info.created}};
  for (const auto& [name, file] : info.files) json["files"][name] = {{"bytes", file.bytes}, {"hash", file.hash}};
  // A model's folder may be called anything; JSON takes UTF-8 only.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

EntryInfo entry_info_from_json(std::string_view text) {
  EntryInfo info;
  try {
    const auto json = nlohmann::json::parse(text);
    const auto& files = json.at("files");
    MEGALITH_CHECK(files.is_object() && !files.empty() && files.size() <= kMaxFiles, "it lists {} files, want 1 to {}",
                   files.is_object() ? files.size() : 0, kMaxFiles);
    for (const auto& [name, file] : files.items()) {
      MEGALITH_CHECK(is_file_name(name), "it lists a file that no entry has: {}", nlohmann::json(name).dump());
      MEGALITH_CHECK(file.at("bytes").is_number_integer(), "the size of {} is no whole number", name);
      const auto bytes = file.at("bytes").get<int64_t>();
      MEGALITH_CHECK(bytes >= 0 && bytes <= kMaxEntryBytes, "{} is said to have {} bytes", name, bytes);
      info.files[name] = {bytes, file.at("hash").get<std::string>()};
    }
    info.key = json.at("key").get<std::string>();
    info.name = json.at("name").get<std::string>();
    info.created = json.at("created").get<int64_t>();
  } catch (const nlohmann::json::exception& error) { throw UserError(json_reason(error.what())); }
  return info;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) throw_unopened(fmt::format("cannot list {}", directory));
  if (fd < 0) return names;
  DIR* const entries = ::fdopendir(fd);
  if (!entries) {
    ::close(fd);
    return names;
  }
  while (const dirent* entry = ::readdir(entries))
    if (const std::string name = entry->d_name; name != "." && name != "..") names.push_back(name);
  ::closedir(entries);
  std::ranges::sort(names);
  return names;
}

EntryInfo entry_seal(const std::string& directory, const std::string& key, const std::string& name) {
  EntryInfo info{.key = key, .name = name, .created = static_cast<int64_t>(std::time(nullptr))};
  const Descriptor folder = open_directory(directory);
  if (folder.fd < 0) throw system_error(fmt::format("cannot open {}", directory));
  const std::vector<std::string> names = names_in(directory);
  if (names.size() > kMaxFiles) throw SystemError(fmt::format("{} has {} files", directory, names.size()));
  int64_t left = kMaxEntryBytes;
  for (const std::string& file : names) {
    if (!is_file_name(file)) throw SystemError(fmt::format("{} has a file that no entry has: {}", directory, file));
    struct stat status;
    const Descriptor opened = open_in(folder.fd, file, status);
    if (::fchmod(opened.fd, 0600) != 0) throw system_error("cannot set the mode of " + file);
    const std::string content = read_in(folder.fd, file, left);
    left -= static_cast<int64_t>(content.size());
    info.files[file] = {static_cast<int64_t>(content.size()), hash_hex(content)};
    sync(opened.fd, file);
  }
  file_write_atomic(directory + "/" + kInfo, to_json(info), 0600);
  sync(folder.fd, directory);
  return info;
}

std::string entry_damage(const std::string& directory, const std::string& key, EntryFiles* files) {
  try {
    const Descriptor folder = open_directory(directory);
    struct stat status;
    if (folder.fd < 0 || ::fstat(folder.fd, &status) != 0) throw_unopened(directory);
    if (std::string reason = distrust(directory, status); !reason.empty()) return reason;
    const EntryInfo info = [&] {
      try {
        return entry_info_from_json(read_in(folder.fd, kInfo, kMaxInfoBytes));
      } catch (const UserError& error) {
        throw UserError(fmt::format("{} is not what was written: {}", kInfo, error.what()));
      }
    }();
    if (info.key != key) return fmt::format("{} is of another entry: {}", kInfo, nlohmann::json(info.key).dump());
    for (const std::string& name : names_in(directory))
      if (name != kInfo && !info.files.contains(name))
        return fmt::format("{} has no file {}", kInfo,
                           nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    int64_t left = kMaxEntryBytes;
    for (const auto& [name, want] : info.files) {
      std::string content = read_in(folder.fd, name, left);
      left -= static_cast<int64_t>(content.size());
      if (static_cast<int64_t>(content.size()) != want.bytes)
        return fmt::format("{} has {} bytes, not {}", name, content.size(), want.bytes);
      if (hash_hex(content) != want.hash) return fmt::format("{} has changed", name);
      if (files) (*files)[name] = std::move(content);
    }
    return "";
  } catch (const Exhausted&) { throw; } catch (const std::exception& error) {
    return error.what();
  }
}

std::string entry_name(const std::string& directory) {
  try {
    const Descriptor folder = open_directory(directory);
    return entry_info_from_json(read_in(folder.fd, kInfo, kMaxInfoBytes)).name;
  } catch (const std::exception&) { return "?"; }
}

}  // namespace megalith::jit
