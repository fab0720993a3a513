#include "megalith/model/tokenizer.h"

#include <filesystem>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/added_tokens.h"
#include "megalith/model/bpe.h"
#include "megalith/model/json.h"
#include "megalith/model/normalizer.h"
#include "megalith/model/post_processor.h"
#include "megalith/model/pretokenizer.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// The largest published one has 35 MB.
constexpr size_t kMostFileBytes = 256 << 20;

struct Token {
  std::string bytes;
  bool special = false;
};

void check_decoder(const JsonValue& root) {
  auto decoder = root.find("decoder");
  if (!decoder) root.fail("has no \"decoder\", want ByteLevel");
  JsonValue value = *decoder;
  if (value.at("type").string() == "Sequence") {
    const std::vector<JsonValue> parts = value.at("decoders").elements();
    if (parts.size() != 1) value.fail(fmt::format("is a sequence of {} decoders, supported is one", parts.size()));
    value = parts[0];
  }
  if (const JsonValue type = value.at("type"); type.string() != "ByteLevel")
    type.fail(fmt::format("is {}, supported is \"ByteLevel\"", type.excerpt()));
}

}  // namespace

struct Tokenizer::Impl {
  Normalizer normalizer;
  PreTokenizer pretokenizer;
  Bpe bpe;
  PostProcessor post_processor;
  std::vector<AddedToken> added;
  AddedTokenFinder raw_tokens;         // looked for in the text as it comes
  AddedTokenFinder normalized_tokens;  // looked for after normalization
  std::vector<Token> tokens;           // by id

  explicit Impl(const JsonValue& root);
  void read_added_tokens(const JsonValue& value);
  void encode_words(std::vector<int>& ids, std::string_view text, bool parse_special) const;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer::Impl::Impl(const JsonValue& root)
    : pretokenizer(PreTokenizer::from_json(root.at("pre_tokenizer"))), bpe(Bpe::from_json(root.at("model"))) {
  check_decoder(root);
  if (auto value = root.find("normalizer")) normalizer = Normalizer::from_json(*value);
  for (const std::string& bytes : bpe.bytes()) tokens.push_back({bytes, false});
  if (auto value = root.find("added_tokens")) read_added_tokens(*value);
  if (auto value = root.find("post_processor")) {
    post_processor = PostProcessor::from_json(*value);
    for (const std::vector<int>* ids : {&post_processor.before, &post_processor.after})
      for (int id : *ids)
        if (static_cast<size_t>(id) >= tokens.size() || tokens[id].bytes.empty())
          value->fail(fmt::format("adds the token {}, but there is none of that id", id));
  }
}

void Tokenizer::Impl::read_added_tokens(const JsonValue& value) {
  added = added_tokens_from_json(value);
  for (const AddedToken& token : added) {
    const size_t id = static_cast<size_t>(token.id);
    if (const std::optional<int> known = bpe.find(token.content)) {
      if (*known != token.id)
        value.fail(
            fmt::format("gives {} the id {}, but the vocabulary gives it {}", json_quote(token.content), id, *known));
    } else if (id < bpe.bytes().size() && !bpe.bytes()[id].empty()) {
      value.fail(fmt::format("gives {} the id {}, which the vocabulary gives to another token",
                             json_quote(token.content), id));
    }
    if (id >= tokens.size()) tokens.resize(id + 1);
    tokens[id] = {token.content, token.special};
  }
  for (bool special : {true, false}) {  // where two match the same stretch, the special one wins
    for (const AddedToken& token : added) {
      if (token.special != special) continue;
      if (token.normalized)
        normalized_tokens.add(normalizer.apply(token.content), token);
      else
        raw_tokens.add(token.content, token);
    }
  }
}

Tokenizer Tokenizer::open(const std::string& path) {
  std::error_code unreadable;  // then it is not a folder either
  const std::string file = std::filesystem::is_directory(path, unreadable) ? path + "/tokenizer.json" : path;
  MEGALITH_CHECK(file_exists(file), "no tokenizer at {}: want a tokenizer.json (older formats are not supported)",
                 path);
  return Tokenizer(std::make_unique<const Impl>(JsonFile::read(file, kMostFileBytes).root()));
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  return Tokenizer(std::make_unique<const Impl>(JsonFile::parse(json, name).root()));
}

void Tokenizer::Impl::encode_words(std::vector<int>& ids, std::string_view text, bool parse_special) const {
  const std::string normalized = normalizer.apply(text);
  normalized_tokens.each_piece(normalized, parse_special, [&](std::string_view piece, const AddedToken* token) {
    if (token)
      ids.push_back(token->id);
    else
      pretokenizer.each_word(piece, [&](std::string_view word) { bpe.encode(ids, word); });
  });
}

std::vector<int> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  std::string repaired;
  if (!utf8_is_valid(text)) text = repaired = utf8_repair(text);
  std::vector<int> ids;
  if (add_special) ids = impl_->post_processor.before;
  impl_->raw_tokens.each_piece(text, parse_special, [&](std::string_view piece, const AddedToken* token) {
    if (token)
      ids.push_back(token->id);
    else
      impl_->encode_words(ids, piece, parse_special);
  });
  if (add_special) ids.insert(ids.end(), impl_->post_processor.after.begin(), impl_->post_processor.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int> ids, bool skip_special) const {
  std::string bytes;
  for (int id : ids)
    if (!skip_special || !is_special(id)) bytes += token_bytes(id);
  return utf8_repair(bytes);
}

std::optional<int> Tokenizer::token_id(std::string_view name) const {
  for (const AddedToken& token : impl_->added)
    if (token.content == name) return token.id;
  return impl_->bpe.find(name);
}

std::string_view Tokenizer::token_bytes(int id) const {
  if (id < 0 || id >= vocab_size()) return "";
  return impl_->tokens[id].bytes;
}

bool Tokenizer::is_special(int id) const { return id >= 0 && id < vocab_size() && impl_->tokens[id].special; }

int Tokenizer::vocab_size() const { return static_cast<int>(impl_->tokens.size()); }

}  // namespace megalith
