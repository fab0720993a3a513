#include "megalith/model/tokenizer.h"

#include <filesystem>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/json_quote.h"
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
  std::string content;  // "" if there is no such token
  std::string bytes;
  bool special = false;
};

PreTokenizer read_pretokenizer(const JsonValue& root) {
  auto value = root.find("pre_tokenizer");
  return value ? PreTokenizer::from_json(*value) : PreTokenizer();
}

TokenDecoder read_decoder(const JsonValue& root, bool is_byte_level) {
  auto value = root.find("decoder");
  if (!value)
    root.fail(is_byte_level ? "has no \"decoder\", want ByteLevel"
                            : "has no \"decoder\", want Replace, ByteFallback, Fuse and Strip, or Metaspace; or a "
                              "\"pre_tokenizer\" that ends with ByteLevel");
  return TokenDecoder::from_json(*value, is_byte_level);
}

}  // namespace

struct Tokenizer::Impl {
  Normalizer normalizer;
  PreTokenizer pretokenizer;
  Bpe bpe;
  TokenDecoder decoder;
  PostProcessor post_processor;
  std::vector<AddedToken> added;
  AddedTokenFinder raw_tokens;         // looked for in the text as it comes
  AddedTokenFinder normalized_tokens;  // looked for after normalization
  std::vector<Token> tokens;           // by id

  explicit Impl(const JsonValue& root);
  void read_added_tokens(const JsonValue& value);
  std::vector<int> encode(const MarkedView& text, bool add_special) const;
  void encode_words(std::vector<int>& ids, const MarkedView& text, bool at_start) const;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer::Impl::Impl(const JsonValue& root)
    : pretokenizer(read_pretokenizer(root)),
      bpe(Bpe::from_json(root.at("model"),
                         pretokenizer.is_byte_level() ? Bpe::Symbols::bytes : Bpe::Symbols::characters)),
      decoder(read_decoder(root, pretokenizer.is_byte_level())) {
  if (auto value = root.find("normalizer")) normalizer = Normalizer::from_json(*value);
  for (const std::string& bytes : bpe.bytes()) tokens.push_back({bytes, decoder.token_bytes(bytes), false});
  if (auto value = root.find("added_tokens")) read_added_tokens(*value);
  if (auto value = root.find("post_processor")) {
    post_processor = PostProcessor::from_json(*value);
    for (const std::vector<int>* ids : {&post_processor.before, &post_processor.after})
      for (int id : *ids)
        if (static_cast<size_t>(id) >= tokens.size() || tokens[id].content.empty())
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
    tokens[id] = {token.content, decoder.token_bytes(token.content), token.special};
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

void Tokenizer::Impl::encode_words(std::vector<int>& ids, const MarkedView& text, bool at_start) const {
  const MarkedText normalized = normalizer.apply(text);
  normalized_tokens.each_piece(normalized.view(), [&](const MarkedView& piece, const AddedToken* token) {
    if (token)
      ids.push_back(token->id);
    else
      pretokenizer.each_word(piece.text, at_start && piece.text.data() == normalized.text.data(),
                             [&](std::string_view word) { bpe.encode(ids, word); });
  });
}

std::vector<int> Tokenizer::Impl::encode(const MarkedView& text, bool add_special) const {
  std::vector<int> ids;
  if (add_special) ids = post_processor.before;
  raw_tokens.each_piece(text, [&](const MarkedView& piece, const AddedToken* token) {
    if (token)
      ids.push_back(token->id);
    else
      encode_words(ids, piece, piece.text.data() == text.text.data());
  });
  if (add_special) ids.insert(ids.end(), post_processor.after.begin(), post_processor.after.end());
  return ids;
}

std::vector<int> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  std::string repaired;
  if (!utf8_is_valid(text)) text = repaired = utf8_repair(text);
  const std::string marks = parse_special ? "" : std::string(text.size(), '\1');
  return impl_->encode({text, marks}, add_special);
}

std::vector<int> Tokenizer::encode(std::span<const TextSegment> segments, bool add_special) const {
  MarkedText text;
  for (const TextSegment& segment : segments) {  // one by one: broken bytes must not swallow their neighbours
    text.text += utf8_repair(segment.text);
    text.marks.resize(text.text.size(), segment.is_user_content ? '\1' : '\0');
  }
  return impl_->encode(text.view(), add_special);
}

std::string Tokenizer::decode(std::span<const int> ids, bool skip_special) const {
  DecoderState state;
  std::string text;
  for (int id : ids) text += decode_push(state, id, skip_special);
  return text + decode_finish(state);
}

std::string Tokenizer::decode_push(DecoderState& state, int id, bool skip_special) const {
  if (id < 0 || id >= vocab_size() || impl_->tokens[id].content.empty()) return "";
  const Token& token = impl_->tokens[id];
  return skip_special && token.special ? "" : impl_->decoder.push(state, token.content);
}

std::string Tokenizer::decode_finish(DecoderState& state) const { return impl_->decoder.finish(state); }

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
