#include "megalith/model/special_tokens.h"

#include <algorithm>
#include <map>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/bpe.h"
#include "megalith/model/json.h"

namespace megalith {

namespace {

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kMap = "special_tokens_map.json";
constexpr const char* kAdded = "added_tokens.json";
constexpr const char* kParts[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};
constexpr const char* kExtra = "extra_special_tokens";            // a list, or a dictionary of named ones
constexpr const char* kAdditional = "additional_special_tokens";  // what the former was called

std::string place_of(const JsonValue& value, std::string_view key) {
  return fmt::format("{}: \"{}\"", value.file(), key);
}

bool is_token(const JsonValue& value) { return value.is_string() || (value.is_object() && value.find("content")); }

// "<s>", or {"content": "<s>", "lstrip": ...}. Strings are special, and what plays a part is.
AddedToken read_token(const JsonValue& value, bool plays_part = false) {
  if (value.is_object()) return added_token_from_json(value, plays_part);
  AddedToken token{.content = value.string(), .special = true};
  check_added_token(token, value);
  return token;
}

class SpecialTokensReader {
 public:
  using File = std::optional<JsonFile>;

  SpecialTokensReader(File config, File map, File added)
      : config_(std::move(config)), map_(std::move(map)), added_(std::move(added)) {
    for (const File* file : {&config_, &map_, &added_})
      if (*file && !(*file)->root().is_object()) (*file)->root().fail("is no object");
  }

  SpecialTokens read() {
    const bool is_new = config_ && config_->root().has("added_tokens_decoder");
    if (config_) {
      read_switches(config_->root());
      read_names(config_->root());
      read_lists(config_->root());
    }
    if (map_ && !is_new) read_map(map_->root());
    // In the order in which new tokens get their ids.
    if (is_new) {
      read_decoder(config_->root());
    } else if (added_) {
      read_added(added_->root());
    }
    for (const char* part : kParts) add_named(part);
    for (const std::string& part : parts_)
      if (std::ranges::find(kParts, part) == std::end(kParts)) add_named(part);
    for (const LaidToken& token : extra_) result_.tokens.push_back(token);
    // What transformers passes over.
    for (LaidToken& token : passed_over_) result_.tokens.push_back(std::move(token));
    if (map_ && is_new) guard_all(map_->root());
    if (config_) guard_list(config_->root(), "chat_control_tokens");
    return std::move(result_);
  }

 private:
  void read_switches(const JsonValue& root) {
    if (auto split = root.find("split_special_tokens")) result_.split = split->boolean();
    if (auto adds = root.find("add_bos_token"); adds && adds->is_boolean()) result_.adds_bos = adds->boolean();
    if (auto adds = root.find("add_eos_token"); adds && adds->is_boolean()) result_.adds_eos = adds->boolean();
  }

  void name(const std::string& part, const JsonValue& value) {
    LaidToken laid{.token = read_token(value, true), .place = place_of(value, part)};
    const auto [entry, is_new] = named_.insert_or_assign(part, std::move(laid));
    if (is_new) parts_.push_back(part);
  }

  // "bos_token", and whatever else ends so and is a text: models have an "image_token".
  void read_names(const JsonValue& root) {
    root.each_member([&](const std::string& key, const JsonValue& value) {
      const bool is_part = std::ranges::find(kParts, key) != std::end(kParts);
      if (root.find(key) && (is_part || (key.ends_with("_token") && is_token(value)))) name(key, value);
    });
  }

  void add_extra(const JsonValue& list, const std::string& key, LaidToken::Does does, std::vector<LaidToken>& to) {
    if (list.is_object()) {
      list.each_member([&](const std::string& part, const JsonValue& value) { name(part, value); });
      return;
    }
    list.each_element([&](const JsonValue& value) {
      to.push_back({.token = read_token(value), .does = does, .place = place_of(value, key)});
    });
  }

  void read_lists(const JsonValue& root) {
    const auto extra = root.find(kExtra), additional = root.find(kAdditional);
    if (extra) add_extra(*extra, kExtra, LaidToken::Does::adds, extra_);
    has_extra_ = extra && extra->size() > 0;
    if (!additional) return;
    if (has_extra_)
      add_extra(*additional, kAdditional, LaidToken::Does::guards, passed_over_);
    else
      add_extra(*additional, kAdditional, LaidToken::Does::adds, extra_);
    has_extra_ |= additional->size() > 0;
  }

  void read_map(const JsonValue& root) {
    root.each_member([&](const std::string& key, const JsonValue& value) {
      if (key == kExtra && root.find(key)) {
        add_extra(value, kExtra, LaidToken::Does::adds, extra_);
      } else if (key == kAdditional && root.find(key)) {
        add_extra(value, kAdditional, has_extra_ ? LaidToken::Does::guards : LaidToken::Does::adds,
                  has_extra_ ? passed_over_ : extra_);
      } else if (key.ends_with("_token")) {
        if (root.find(key))
          name(key, value);
        else
          named_.erase(key), std::erase(parts_, key);  // a null takes away what the other file says
      }
    });
  }

  void read_decoder(const JsonValue& root) {
    const auto decoder = root.find("added_tokens_decoder");
    if (!decoder) return;
    std::map<int, LaidToken> by_id;
    decoder->each_member([&](const std::string& key, const JsonValue& value) {
      AddedToken token = added_token_from_json(value);
      token.id = read_id(key, value);
      by_id[token.id] = {.token = token,
                         .has_id = true,
                         .does = LaidToken::Does::replaces,
                         .place = place_of(value, "added_tokens_decoder")};
    });
    for (auto& [id, token] : by_id) result_.tokens.push_back(std::move(token));
  }

  static int read_id(const std::string& key, const JsonValue& value) {
    const bool is_number = !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || std::stoi(key) >= kMaxTokenIds)
      value.fail(fmt::format("is keyed by what is no id, want 0 to {}", kMaxTokenIds - 1));
    return std::stoi(key);
  }

  void read_added(const JsonValue& root) {
    auto is_special = [&](const std::string& content) {
      auto has = [&](const LaidToken& token) { return token.token.content == content; };
      return std::ranges::any_of(named_, [&](const auto& entry) { return has(entry.second); }) ||
             std::ranges::any_of(extra_, has);
    };
    std::map<int, LaidToken> by_id;
    root.each_member([&](const std::string& content, const JsonValue& value) {
      LaidToken laid{.has_id = true, .place = value.file()};
      laid.token.id = static_cast<int>(value.integer(0, kMaxTokenIds - 1));
      laid.token.content = content;
      laid.token.special = is_special(content);
      laid.token.normalized = !laid.token.special;
      check_added_token(laid.token, value);
      by_id[laid.token.id] = std::move(laid);
    });
    for (auto& [id, token] : by_id) result_.tokens.push_back(std::move(token));
  }

  void add_named(const std::string& part) {
    const auto entry = named_.find(part);
    if (entry == named_.end()) return;
    result_.names.emplace_back(part, entry->second.token.content);
    result_.tokens.push_back(entry->second);
  }

  void guard_list(const JsonValue& root, const char* key) {
    const auto list = root.find(key);
    if (list && list->is_array()) add_extra(*list, key, LaidToken::Does::guards, result_.tokens);
  }

  void guard_all(const JsonValue& root) {
    root.each_member([&](const std::string& key, const JsonValue& value) {
      if (is_token(value))
        result_.tokens.push_back(
            {.token = read_token(value), .does = LaidToken::Does::guards, .place = place_of(value, key)});
    });
    for (const char* key : {kExtra, kAdditional}) guard_list(root, key);
  }

  File config_, map_, added_;
  std::map<std::string, LaidToken> named_;
  std::vector<std::string> parts_;  // the names, as the files have them
  std::vector<LaidToken> extra_, passed_over_;
  bool has_extra_ = false;
  SpecialTokens result_;
};

}  // namespace

std::optional<std::string> SpecialTokens::named(std::string_view part) const {
  for (const auto& [name, token] : names)
    if (name == part) return token;
  return std::nullopt;
}

SpecialTokens SpecialTokens::from_folder(const std::string& folder) {
  auto open = [&](const char* name) {
    const std::string path = folder + "/" + name;
    return file_is_named(path) ? std::optional(JsonFile::read(path, kMaxTokenFileBytes, true)) : std::nullopt;
  };
  return SpecialTokensReader(open(kConfig), open(kMap), open(kAdded)).read();
}

SpecialTokens SpecialTokens::parse(std::string_view config, std::string_view map, std::string_view added) {
  auto open = [](std::string_view text, const char* name) {
    return text.empty() ? std::nullopt : std::optional(JsonFile::parse(text, name, true));
  };
  return SpecialTokensReader(open(config, kConfig), open(map, kMap), open(added, kAdded)).read();
}

}  // namespace megalith
