#include "megalith/model/bpe.h"

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <queue>
#include <unordered_map>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/model/byte_level.h"
#include "megalith/model/json.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// Text repeats its words: some ten thousand cover nearly all of it, and take about a megabyte. A full cache stays as it
// is, because the common words come first. Long words do not come again.
constexpr size_t kMaxCachedWords = 16384;
constexpr size_t kLongestCachedWord = 64;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

struct PairHash {
  // Fibonacci hashing; the standard hash of an integer is itself, which would crowd the buckets.
  size_t operator()(uint64_t pair) const { return (pair ^ pair >> 32) * 0x9E3779B97F4A7C15u >> 16; }
};
uint64_t pair_key(int left, int right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct Merge {
  int rank;  // place in the list: low ones first
  int id;    // of the joined token
};

// A stretch of the word that is one token so far. Joined symbols drop out of the list, their left one grows.
struct Symbol {
  int id;
  int previous;
  int next;
};

struct Candidate {
  int rank;
  int place;  // of the left symbol
  int left, right, id;
  // Lowest rank first; of equal ones the leftmost.
  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : place > other.place; }
};

}  // namespace

struct Bpe::Impl {
  Symbols symbols;
  std::vector<std::string> bytes;   // by id
  StringMap<int> id_of_bytes;       // tokens written in the alphabet; all, where symbols are characters
  StringMap<int> id_of_name;        // the others, which text never becomes
  std::array<int, 256> id_of_byte;  // where merging of bytes starts; -1: that one has no token
  bool has_all_bytes = false;       // every text has tokens, and nothing below is looked at
  std::array<int, 256> fallback;    // byte_fallback's tokens, "<0x0A>"; -1 where there is none
  std::unordered_map<uint64_t, Merge, PairHash> merges;  // by pair_key
  bool ignore_merges = false;                            // a word that is a token is not merged, but taken (Llama 3)
  bool byte_fallback = false;                            // symbols without a token become those of their bytes
  bool fuse_unknown = false;                             // unknown symbols in a row become one token
  std::optional<std::string> unknown_name;               // none: they become nothing
  std::optional<int> unknown;                            // none: that is not in the vocabulary, which text may show
  std::string file;

  std::mutex cache_mutex;
  StringMap<std::vector<int>> cache;

  std::optional<std::string> decode_name(std::string_view name) const;
  void read_vocabulary(const JsonValue& value);
  void read_byte_tokens();
  void read_unknown(const JsonValue& value);
  void read_merges(const JsonValue& value);
  int merge_part(const JsonValue& merge, std::string_view name) const;
  int symbol_id(std::string_view symbol) const;
  bool add_fallback(std::vector<int>& ids, std::string_view symbol) const;
  int unknown_id(std::string_view symbol) const;
  void start_word(std::vector<int>& ids, std::string_view word) const;
  void merge_word(std::vector<int>& ids, std::string_view word) const;
};

Bpe::Bpe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bpe::Bpe(Bpe&&) noexcept = default;
Bpe& Bpe::operator=(Bpe&&) noexcept = default;
Bpe::~Bpe() = default;

const std::vector<std::string>& Bpe::bytes() const { return impl_->bytes; }
size_t Bpe::num_tokens() const { return impl_->id_of_bytes.size() + impl_->id_of_name.size(); }

Bpe Bpe::from_json(const JsonValue& value, Symbols symbols) {
  if (auto type = value.find("type"); type && type->string() != "BPE")
    type->fail(fmt::format("is {}, supported is \"BPE\"", type->excerpt()));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (auto text = value.find(key); text && !text->string().empty())
      text->fail(fmt::format("is {}, which is not supported", text->excerpt()));
  if (auto dropout = value.find("dropout"); dropout && dropout->number(0, 1) != 0)
    dropout->fail(fmt::format("is {}: random merges are not supported", dropout->excerpt()));

  auto impl = std::make_unique<Impl>();
  impl->symbols = symbols;
  if (auto ignore = value.find("ignore_merges")) impl->ignore_merges = ignore->boolean();
  impl->read_vocabulary(value.at("vocab"));
  impl->file = value.file();
  impl->read_byte_tokens();
  impl->read_unknown(value);
  impl->read_merges(value.at("merges"));
  return Bpe(std::move(impl));
}

// What a token of text is written as in the file; nothing if it stands for no text.
std::optional<std::string> Bpe::Impl::decode_name(std::string_view name) const {
  return symbols == Symbols::bytes ? byte_level_decode(name) : std::optional(std::string(name));
}

void Bpe::Impl::read_vocabulary(const JsonValue& value) {
  std::vector<bool> taken;
  id_of_bytes.reserve(value.size());
  value.each_member([&](const std::string& name, const JsonValue& entry) {
    const int id = static_cast<int>(entry.integer(0, kMaxTokenIds - 1));
    if (static_cast<size_t>(id) >= bytes.size()) {
      bytes.resize(id + 1);
      taken.resize(id + 1);
    }
    if (taken[id]) entry.fail(fmt::format("has the id {}, which another token has too", id));
    taken[id] = true;
    if (auto decoded = decode_name(name)) {
      bytes[id] = *decoded;
      id_of_bytes.emplace(std::move(*decoded), id);
    } else {
      bytes[id] = name;
      id_of_name.emplace(name, id);
    }
  });
}

void Bpe::Impl::read_byte_tokens() {
  auto id_of = [&](const std::string& text) {
    const auto entry = id_of_bytes.find(text);
    return entry == id_of_bytes.end() ? -1 : entry->second;
  };
  for (int byte = 0; byte < 256; ++byte) {
    id_of_byte[byte] = id_of(std::string(1, static_cast<char>(byte)));
    fallback[byte] = id_of(fmt::format("<0x{:02X}>", byte));
  }
  has_all_bytes = symbols == Symbols::bytes && std::ranges::find(id_of_byte, -1) == id_of_byte.end();
}

void Bpe::Impl::read_unknown(const JsonValue& value) {
  auto flag = [&](const char* key) {
    auto member = value.find(key);
    return member && member->boolean();
  };
  byte_fallback = flag("byte_fallback");
  fuse_unknown = flag("fuse_unk");
  if (const auto token = value.find("unk_token")) {
    unknown_name = token->string();
    if (const auto entry = id_of_bytes.find(*unknown_name); entry != id_of_bytes.end())
      unknown = entry->second;
    else if (const auto other = id_of_name.find(*unknown_name); other != id_of_name.end())
      unknown = other->second;
  }
}

int Bpe::Impl::merge_part(const JsonValue& merge, std::string_view name) const {
  if (auto decoded = decode_name(name))
    if (const auto entry = id_of_bytes.find(*decoded); entry != id_of_bytes.end()) return entry->second;
  if (const auto entry = id_of_name.find(name); entry != id_of_name.end()) return entry->second;
  merge.fail(fmt::format("names {}, which is not in the vocabulary", json_quote(name)));
}

void Bpe::Impl::read_merges(const JsonValue& value) {
  int rank = 0;
  merges.reserve(value.size());
  value.each_element([&](const JsonValue& merge) {
    std::string left, right;
    if (merge.is_string()) {  // "a b": the way before tokenizers 0.20, when tokens could not hold spaces
      const std::string& text = merge.string();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        merge.fail(fmt::format("is {}, want two tokens with a space between", merge.excerpt()));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      const std::vector<JsonValue> parts = merge.elements();
      if (parts.size() != 2) merge.fail(fmt::format("is {}, want two tokens", merge.excerpt()));
      left = parts[0].string();
      right = parts[1].string();
    }
    const int joined = merge_part(merge, left + right);
    merges.insert_or_assign(pair_key(merge_part(merge, left), merge_part(merge, right)), Merge{rank++, joined});
  });
}

std::optional<int> Bpe::find(std::string_view token) const {
  if (auto decoded = impl_->decode_name(token))
    if (const auto entry = impl_->id_of_bytes.find(*decoded); entry != impl_->id_of_bytes.end()) return entry->second;
  if (const auto entry = impl_->id_of_name.find(token); entry != impl_->id_of_name.end()) return entry->second;
  return std::nullopt;
}

void Bpe::encode(std::vector<int>& ids, std::string_view word) const {
  if (impl_->ignore_merges) {
    if (const auto entry = impl_->id_of_bytes.find(word); entry != impl_->id_of_bytes.end()) {
      ids.push_back(entry->second);
      return;
    }
  }
  if (word.empty()) return;
  if (word.size() == 1 && impl_->has_all_bytes) {
    ids.push_back(impl_->id_of_byte[static_cast<uint8_t>(word[0])]);
    return;
  }
  if (word.size() > kLongestCachedWord) return impl_->merge_word(ids, word);
  {
    std::lock_guard lock(impl_->cache_mutex);
    if (const auto entry = impl_->cache.find(word); entry != impl_->cache.end()) {
      ids.insert(ids.end(), entry->second.begin(), entry->second.end());
      return;
    }
  }
  const size_t before = ids.size();
  impl_->merge_word(ids, word);
  std::lock_guard lock(impl_->cache_mutex);
  if (impl_->cache.size() < kMaxCachedWords)
    impl_->cache.emplace(word, std::vector<int>(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end()));
}

int Bpe::Impl::symbol_id(std::string_view symbol) const {
  if (symbols == Symbols::bytes) return id_of_byte[static_cast<uint8_t>(symbol[0])];
  const auto entry = id_of_bytes.find(symbol);
  return entry == id_of_bytes.end() ? -1 : entry->second;
}

// The tokens of the bytes that the symbol is written with in the file (a byte: as a character of the alphabet); false
// if one of them is missing.
bool Bpe::Impl::add_fallback(std::vector<int>& ids, std::string_view symbol) const {
  const std::string written = symbols == Symbols::bytes ? byte_level_encode(symbol) : std::string(symbol);
  for (char byte : written)
    if (fallback[static_cast<uint8_t>(byte)] < 0) return false;
  for (char byte : written) ids.push_back(fallback[static_cast<uint8_t>(byte)]);
  return true;
}

int Bpe::Impl::unknown_id(std::string_view symbol) const {
  if (unknown) return *unknown;
  throw UserError(fmt::format(
      "{}: text with {} has no tokens: the vocabulary lacks it, and also the \"unk_token\", which is {}", file,
      symbols == Symbols::bytes ? fmt::format("the byte 0x{:02X}", static_cast<uint8_t>(symbol[0]))
                                : json_quote(symbol),
      json_quote(*unknown_name)));
}

// The tokens that merging starts with.
void Bpe::Impl::start_word(std::vector<int>& ids, std::string_view word) const {
  if (has_all_bytes) {
    for (char byte : word) ids.push_back(id_of_byte[static_cast<uint8_t>(byte)]);
    return;
  }
  // An unknown token that is not written yet; bytes of a fallback do not end a row of them, known tokens do.
  int pending = -1;
  auto flush = [&] {
    if (pending >= 0) ids.push_back(pending);
    pending = -1;
  };
  while (!word.empty()) {
    const auto length = symbols == Symbols::bytes ? 1 : static_cast<size_t>(utf8_next(word));
    const std::string_view symbol = word.substr(0, length);
    word.remove_prefix(length);
    if (const int id = symbol_id(symbol); id >= 0) {
      flush();
      ids.push_back(id);
    } else if (!(byte_fallback && add_fallback(ids, symbol)) && unknown_name) {
      if (!fuse_unknown) flush();
      pending = unknown_id(symbol);
    }
  }
  flush();
}

void Bpe::Impl::merge_word(std::vector<int>& ids, std::string_view word) const {
  MEGALITH_CHECK(word.size() < (size_t{1} << 30), "a word of {} bytes is too long to tokenize", word.size());
  std::vector<int> start;
  start.reserve(word.size());
  start_word(start, word);
  if (start.empty()) return;
  const int count = static_cast<int>(start.size());
  std::vector<Symbol> parts(count);
  for (int i = 0; i < count; ++i) parts[i] = {start[i], i - 1, i + 1 < count ? i + 1 : -1};

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  auto offer = [&](int place) {
    if (place < 0 || parts[place].next < 0) return;
    const int left = parts[place].id, right = parts[parts[place].next].id;
    if (const auto merge = merges.find(pair_key(left, right)); merge != merges.end())
      queue.push({merge->second.rank, place, left, right, merge->second.id});
  };
  for (int i = 0; i < count; ++i) offer(i);

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    // Either symbol may have been joined with another since; then this candidate is stale.
    Symbol& symbol = parts[best.place];
    if (symbol.id != best.left || symbol.next < 0 || parts[symbol.next].id != best.right) continue;
    Symbol& right = parts[symbol.next];
    symbol.id = best.id;
    symbol.next = right.next;
    if (symbol.next >= 0) parts[symbol.next].previous = best.place;
    right.id = -1;
    offer(symbol.previous);
    offer(best.place);
  }
  for (int i = 0; i >= 0; i = parts[i].next) ids.push_back(parts[i].id);
}

}  // namespace megalith
