#include "megalith/model/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/log.h"
#include "megalith/model/added_tokens.h"
#include "megalith/model/added_vocabulary.h"
#include "megalith/model/bpe.h"
#include "megalith/model/encode_budget.h"
#include "megalith/model/json.h"
#include "megalith/model/normalizer.h"
#include "megalith/model/post_processor.h"
#include "megalith/model/pretokenizer.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// The largest published one has 35 MB. As values in memory a file takes up to 20 times its size.
constexpr size_t kMaxFileBytes = 64 << 20;

struct Token {
  std::string content;  // "" if there is no such token
  std::string bytes;
  bool special = false;
  bool added = false;
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
  std::optional<int> end;
  bool split_special = false;

  Impl(const JsonValue& root, const SpecialTokens& special);
  bool has(int id) const;
  void add_tokens();
  void warn_of(const JsonValue& root, std::string_view key, std::optional<bool> wanted,
               const std::optional<std::string>& token, const std::vector<int>& ids) const;
  std::optional<int> find(std::string_view name) const;
  std::vector<int> encode(const MarkedView& text, bool add_special, std::span<const int> markers) const;
  void encode_words(std::vector<int>& ids, const MarkedView& text, bool at_start, std::span<const int> markers,
                    EncodeBudget& budget) const;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer::Impl::Impl(const JsonValue& root, const SpecialTokens& special)
    : pretokenizer(read_pretokenizer(root)),
      bpe(Bpe::from_json(root.at("model"),
                         pretokenizer.is_byte_level() ? Bpe::Symbols::bytes : Bpe::Symbols::characters)),
      decoder(read_decoder(root, pretokenizer.is_byte_level())),
      split_special(special.split) {
  if (auto value = root.find("normalizer")) normalizer = Normalizer::from_json(*value);
  AddedVocabulary vocabulary(bpe);
  if (auto value = root.find("added_tokens")) vocabulary.read(*value);
  for (const LaidToken& token : special.tokens) vocabulary.lay(token);
  added = vocabulary.tokens();
  add_tokens();
  if (auto value = root.find("post_processor")) {
    post_processor = PostProcessor::from_json(*value);
    for (const std::vector<int>* ids : {&post_processor.before, &post_processor.after})
      for (int id : *ids)
        if (!has(id)) value->fail(fmt::format("adds the token {}, but there is none of that id", id));
  }
  const auto bos = special.named("bos_token"), eos = special.named("eos_token");
  if (eos) end = find(*eos);
  warn_of(root, "add_bos_token", special.adds_bos, bos, post_processor.before);
  warn_of(root, "add_eos_token", special.adds_eos, eos, post_processor.after);
}

// Older transformers put another token around a text than tokenizer.json says; who trained the model with these should
// know.
void Tokenizer::Impl::warn_of(const JsonValue& root, std::string_view key, std::optional<bool> wanted,
                              const std::optional<std::string>& token, const std::vector<int>& ids) const {
  if (!wanted || !token || !find(*token)) return;
  const bool is_there = std::ranges::find(ids, *find(*token)) != ids.end();
  if (*wanted != is_there)
    log_warn(
        "{} puts {}{} around a text, though tokenizer_config.json has \"{}\": {}; the former counts, as in "
        "transformers 5",
        root.file(), is_there ? "" : "no ", json_quote(*token), key, *wanted);
}

bool Tokenizer::Impl::has(int id) const {
  return id >= 0 && static_cast<size_t>(id) < tokens.size() && !tokens[id].content.empty();
}

void Tokenizer::Impl::add_tokens() {
  for (const std::string& bytes : bpe.bytes()) tokens.push_back({bytes, decoder.token_bytes(bytes)});
  for (const AddedToken& token : added) {
    if (static_cast<size_t>(token.id) >= tokens.size()) tokens.resize(token.id + 1);
    tokens[token.id] = {token.content, decoder.token_bytes(token.content), token.special, true};
  }
  size_t bytes = 0;
  for (const AddedToken& token : added) bytes += token.content.size();
  EncodeBudget budget(bytes);           // for all of them together
  for (bool special : {true, false}) {  // where two match the same stretch, the special one wins
    for (const AddedToken& token : added) {
      if (token.special != special) continue;
      if (token.normalized)
        normalized_tokens.add(normalizer.apply({token.content}, budget).text, token);
      else
        raw_tokens.add(token.content, token);
    }
  }
}

Tokenizer Tokenizer::open(const std::string& path) {
  std::error_code unreadable;  // then it is not a folder either
  const bool is_folder = std::filesystem::is_directory(path, unreadable);
  const std::string file = is_folder ? path + "/tokenizer.json" : path;
  MEGALITH_CHECK(file_exists(file), "no tokenizer at {}: want a tokenizer.json (older formats are not supported)",
                 path);
  const JsonFile json = JsonFile::read(file, kMaxFileBytes);
  return Tokenizer(
      std::make_unique<const Impl>(json.root(), is_folder ? SpecialTokens::from_folder(path) : SpecialTokens()));
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name, const SpecialTokens& special) {
  return Tokenizer(std::make_unique<const Impl>(JsonFile::parse(json, name).root(), special));
}

void Tokenizer::Impl::encode_words(std::vector<int>& ids, const MarkedView& text, bool at_start,
                                   std::span<const int> markers, EncodeBudget& budget) const {
  const MarkedText normalized = normalizer.apply(text, budget);
  normalized_tokens.each_piece(
      normalized.view(), markers, budget, [&](const MarkedView& piece, const AddedToken* token) {
        if (token)
          ids.push_back(token->id);
        else
          pretokenizer.each_word(piece.text, at_start && piece.text.data() == normalized.text.data(), budget,
                                 [&](std::string_view word) { bpe.encode(ids, word); });
      });
}

std::vector<int> Tokenizer::Impl::encode(const MarkedView& text, bool add_special, std::span<const int> markers) const {
  EncodeBudget budget(text.text.size());
  std::vector<int> ids;
  if (add_special) ids = post_processor.before;
  raw_tokens.each_piece(text, markers, budget, [&](const MarkedView& piece, const AddedToken* token) {
    if (token)
      ids.push_back(token->id);
    else
      encode_words(ids, piece, piece.text.data() == text.text.data(), markers, budget);
  });
  if (add_special) ids.insert(ids.end(), post_processor.after.begin(), post_processor.after.end());
  return ids;
}

std::vector<int> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  std::string repaired;
  if (!utf8_is_valid(text)) text = repaired = utf8_repair(text);
  const std::string marks = parse_special && !impl_->split_special ? "" : std::string(text.size(), '\1');
  return impl_->encode({text, marks}, add_special, {});
}

std::vector<int> Tokenizer::encode(std::span<const TextSegment> segments, bool add_special,
                                   std::vector<int> markers) const {
  MarkedText text;
  for (const TextSegment& segment : segments) {  // one by one: broken bytes must not swallow their neighbours
    text.text += utf8_repair(segment.text);
    text.marks.resize(text.text.size(), segment.is_user_content || impl_->split_special ? '\1' : '\0');
  }
  std::ranges::sort(markers);
  return impl_->encode(text.view(), add_special, markers);
}

std::string Tokenizer::decode(std::span<const int> ids, bool skip_special) const {
  DecoderState state;
  std::string text;
  for (int id : ids) text += decode_push(state, id, skip_special);
  return text + decode_finish(state);
}

std::string Tokenizer::decode_push(DecoderState& state, int id, bool skip_special) const {
  if (!impl_->has(id)) return "";
  const Token& token = impl_->tokens[id];
  return skip_special && token.special ? "" : impl_->decoder.push(state, token.content);
}

std::string Tokenizer::decode_finish(DecoderState& state) const { return impl_->decoder.finish(state); }

std::optional<int> Tokenizer::Impl::find(std::string_view name) const {
  const auto entry = std::ranges::find(added, name, &AddedToken::content);
  return entry == added.end() ? bpe.find(name) : entry->id;
}

std::optional<int> Tokenizer::token_id(std::string_view name) const { return impl_->find(name); }

std::string_view Tokenizer::token_bytes(int id) const {
  if (id < 0 || id >= vocab_size()) return "";
  return impl_->tokens[id].bytes;
}

bool Tokenizer::is_special(int id) const { return impl_->has(id) && impl_->tokens[id].special; }

bool Tokenizer::is_added(int id) const { return impl_->has(id) && impl_->tokens[id].added; }

std::optional<int> Tokenizer::end_token() const { return impl_->end; }

int Tokenizer::vocab_size() const { return static_cast<int>(impl_->tokens.size()); }

}  // namespace megalith
