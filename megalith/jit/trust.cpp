#include "megalith/jit/trust.h"

#include <fmt/format.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <sstream>

namespace megalith::jit {

namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
// In a namespace that knows only some users, all others have this number, root among them.
constexpr uid_t kUnknownUser = 65534;

std::string mode_of(const struct stat& info) { return fmt::format("mode {:04o}", info.st_mode & 07777); }

std::string owner_reason(const std::string& path, const struct stat& info) {
  const uid_t self = ::geteuid();
  if (info.st_uid == self || info.st_uid == 0) return "";
  return fmt::format("{} belongs to user {}, and this is user {}", path, info.st_uid, self);
}

// In a sticky folder others may make files of their own, but replace none of ours.
bool is_open(const struct stat& info) { return (info.st_mode & kOthersWrite) != 0 && (info.st_mode & S_ISVTX) == 0; }

std::string mode_reason(const std::string& path, const struct stat& info) {
  return fmt::format("others may write to {} ({}): chmod go-w it", path, mode_of(info));
}

// Of a folder on the way: who may rename what is in it.
std::string way_reason(const std::string& path, const struct stat& info) {
  if (info.st_uid != kUnknownUser)
    if (std::string reason = owner_reason(path, info); !reason.empty()) return reason;
  // Many systems give each user a group of that user's own, of the same number, and let it write.
  const bool is_own_group = info.st_uid == ::geteuid() && info.st_gid == info.st_uid && (info.st_mode & S_IWOTH) == 0;
  return is_open(info) && !is_own_group ? mode_reason(path, info) : "";
}

std::deque<std::string> parts_of(const std::string& path) {
  std::deque<std::string> parts;
  std::istringstream stream(path);
  for (std::string part; std::getline(stream, part, '/');)
    if (!part.empty() && part != ".") parts.push_back(part);
  return parts;
}

}  // namespace

std::string distrust(const std::string& path, const struct stat& info) {
  if (std::string reason = owner_reason(path, info); !reason.empty()) return reason;
  return (info.st_mode & kOthersWrite) != 0 ? mode_reason(path, info) : "";
}

std::string distrust_of_folder(const std::string& path) {
  constexpr int kMaxLinks = 40;  // as the kernel has it
  std::deque<std::string> left = parts_of(path);
  std::string at = "/";
  struct stat info;
  for (int links = 0; ::lstat(at.c_str(), &info) == 0;) {
    if (S_ISLNK(info.st_mode)) {
      if (std::string reason = owner_reason(at, info); !reason.empty()) return reason;
      std::error_code code;
      const std::string target = std::filesystem::read_symlink(at, code).string();
      if (code || ++links > kMaxLinks) return "";  // leads nowhere
      at = target.starts_with('/') ? "/" : std::filesystem::path(at).parent_path().string();
      const std::deque<std::string> parts = parts_of(target);
      left.insert(left.begin(), parts.begin(), parts.end());
      if (::lstat(at.c_str(), &info) != 0) return "";
    }
    if (!S_ISDIR(info.st_mode)) return "";  // whoever uses it hears of that
    if (left.empty()) {                     // the folder itself
      std::string reason = owner_reason(at, info);
      return reason.empty() && is_open(info) ? mode_reason(at, info) : reason;
    }
    if (std::string reason = way_reason(at, info); !reason.empty()) return reason;
    const std::string part = left.front();
    left.pop_front();
    at = part == ".." ? std::filesystem::path(at).parent_path().string() : (at == "/" ? "" : at) + "/" + part;
  }
  return "";  // the rest is not there: we make it
}

}  // namespace megalith::jit
