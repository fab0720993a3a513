#include "megalith/model/template_files.h"

#include <algorithm>
#include <filesystem>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/json.h"
#include "megalith/model/special_tokens.h"

namespace megalith {

namespace fs = std::filesystem;

namespace {

// Published models have up to four.
constexpr size_t kMaxTemplates = 64;
constexpr std::string_view kExtension = ".jinja";

class Collector {
 public:
  explicit Collector(std::string folder) : folder_(std::move(folder)) {}

  std::vector<TemplateFile> collect() {
    if (const std::string path = folder_ + "/chat_template.jinja"; file_is_named(path)) read("default", path);
    read_additional(folder_ + "/additional_chat_templates");
    if (files_.empty()) read_config(folder_ + "/tokenizer_config.json");
    std::ranges::sort(files_, {}, &TemplateFile::name);
    return std::move(files_);
  }

 private:
  void add(std::string name, std::string place, std::string source) {
    MEGALITH_CHECK(files_.size() < kMaxTemplates, "{} has more than {} chat templates", folder_, kMaxTemplates);
    MEGALITH_CHECK(source.size() <= kMaxTemplateBytes, "{} has {} bytes, want at most {}", place, source.size(),
                   kMaxTemplateBytes);
    files_.push_back({std::move(name), std::move(place), std::move(source)});
  }

  void read(std::string name, const std::string& path) {
    std::error_code code;
    const uintmax_t bytes = fs::file_size(path, code);
    // What has no size, file_read() refuses by its name.
    MEGALITH_CHECK(code || bytes <= kMaxTemplateBytes, "{} has {} bytes, want at most {}", path, bytes,
                   kMaxTemplateBytes);
    add(std::move(name), path, file_read(path));
  }

  void read_additional(const std::string& directory) {
    std::error_code code;
    for (fs::directory_iterator entry(directory, code), end; !code && entry != end; entry.increment(code)) {
      std::string name = entry->path().filename().string();
      if (!name.ends_with(kExtension)) continue;
      name.resize(name.size() - kExtension.size());
      read(name, entry->path().string());
    }
    const bool absent = code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory;
    MEGALITH_CHECK(!code || absent, "cannot read {}: {}", directory, code.message());
  }

  void read_config(const std::string& path) {
    if (!file_is_named(path)) return;
    const JsonFile file = JsonFile::read(path, kMaxTokenFileBytes);
    const auto value = file.root().find("chat_template");
    if (!value) return;
    const std::string place = path + ": \"chat_template\"";
    auto add_named = [&](const std::string& name, const JsonValue& source) {
      add(name, fmt::format("{} \"{}\"", place, name), source.string());
    };
    if (value->is_array())
      value->each_element([&](const JsonValue& one) { add_named(one.at("name").string(), one.at("template")); });
    else if (value->is_object())
      value->each_member(add_named);
    else
      add("default", place, value->string());
  }

  std::string folder_;
  std::vector<TemplateFile> files_;
};

}  // namespace

std::vector<TemplateFile> template_files(const std::string& folder) { return Collector(folder).collect(); }

}  // namespace megalith
