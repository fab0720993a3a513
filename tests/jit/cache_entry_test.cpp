// info.json of a cache entry: what it may say.
#include "megalith/jit/cache_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"

namespace megalith::jit {
namespace {

using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using testing::HasSubstr;

const std::string kKey = hash_hex("a");

TEST(EntryInfo, ComesBackAsItWas) {
  const EntryInfo info{
      .key = kKey, .name = "toy \"model\"\n", .created = 42, .files = {{"kernel.so", {6, hash_hex("x")}}}};
  EXPECT_EQ(to_json(entry_info_from_json(to_json(info))), to_json(info));
}

TEST(EntryInfo, NamesThatLeadElsewhereAreRefused) {
  for (const char* name :
       {"../kernel.so", "/etc/passwd", "a/b", ".", "..", ".hidden", "", "info.json", "a b", "a\nb", "é"}) {
    const nlohmann::json info = {
        {"key", kKey}, {"name", "x"}, {"created", 0}, {"files", {{name, {{"bytes", 1}, {"hash", "x"}}}}}};
    EXPECT_THAT(message_of<UserError>([&] { entry_info_from_json(info.dump()); }),
                HasSubstr("a file that no entry has"))
        << name;
  }
}

TEST(EntryInfo, AnythingElseIsAnError) {
  for (const char* text :
       {"", "1", "[]", "null", "{}", R"({"files": {}})", R"({"files": []})", R"({"files": {"a": {}}})",
        R"({"files": {"a": {"bytes": -1, "hash": ""}}})", R"({"files": {"a": {"bytes": 1e300, "hash": ""}}})",
        R"({"files": {"a": {"bytes": 99999999999, "hash": ""}}})", R"({"files": {"a": {"bytes": 1, "hash": 5}}})",
        R"({"files": {"a": {"bytes": 1, "hash": ""}}, "key": 1})"})
    EXPECT_THROW(entry_info_from_json(text), UserError) << text;
  nlohmann::json info = {{"key", kKey}, {"name", "x"}, {"created", 0}};
  for (int i = 0; i < 1000; ++i) info["files"]["f" + std::to_string(i)] = {{"bytes", 1}, {"hash", "x"}};
  EXPECT_THAT(message_of<UserError>([&] { entry_info_from_json(info.dump()); }), HasSubstr("lists 1000 files"));
  EXPECT_THROW(entry_info_from_json(std::string(100'000, '[')), UserError);
}

TEST(EntryInfo, OnlyFilesAreSealed) {
  TemporaryFolder folder;
  file_write_atomic(folder / "kernel.so", "binary");
  const EntryInfo info = entry_seal(folder.path, kKey, "toy");
  EXPECT_EQ(info.files.at("kernel.so").bytes, 6);
  EXPECT_EQ(entry_damage(folder.path, kKey), "");
  EXPECT_THAT(entry_damage(folder.path, hash_hex("b")), HasSubstr("is of another entry"));
  TemporaryFolder other;
  std::filesystem::create_symlink("/etc/passwd", other / "kernel.so");
  EXPECT_THROW(entry_seal(other.path, kKey, "toy"), SystemError);
}

}  // namespace
}  // namespace megalith::jit
