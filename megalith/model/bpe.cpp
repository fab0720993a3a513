#include "megalith/model/bpe.h"

#include <array>
#include <functional>
#include <mutex>
#include <queue>
#include <unordered_map>

#include "megalith/base/error.h"
#include "megalith/model/byte_level.h"
#include "megalith/model/json.h"

namespace megalith {

namespace {

// Text repeats its words: some ten thousand cover nearly all of it, and take about a megabyte. A full cache stays as it
// is, because the common words come first. Long words do not come again.
constexpr size_t kMostCachedWords = 16384;
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
  std::vector<std::string> bytes;                        // by id
  StringMap<int> id_of_bytes;                            // tokens written in the alphabet
  StringMap<int> id_of_name;                             // the others, which text never becomes
  std::array<int, 256> id_of_byte;                       // where merging starts
  std::unordered_map<uint64_t, Merge, PairHash> merges;  // by pair_key
  bool ignore_merges = false;                            // a word that is a token is not merged, but taken (Llama 3)

  std::mutex cache_mutex;
  StringMap<std::vector<int>> cache;

  void read_vocabulary(const JsonValue& value);
  void read_merges(const JsonValue& value);
  int merge_part(const JsonValue& merge, std::string_view name) const;
  void merge_word(std::vector<int>& ids, std::string_view word) const;
};

Bpe::Bpe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bpe::Bpe(Bpe&&) noexcept = default;
Bpe& Bpe::operator=(Bpe&&) noexcept = default;
Bpe::~Bpe() = default;

const std::vector<std::string>& Bpe::bytes() const { return impl_->bytes; }

Bpe Bpe::from_json(const JsonValue& value) {
  if (auto type = value.find("type"); type && type->string() != "BPE")
    type->fail(fmt::format("is {}, supported is \"BPE\"", type->excerpt()));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (auto text = value.find(key); text && !text->string().empty())
      text->fail(fmt::format("is {}, which is not supported", text->excerpt()));
  if (auto fallback = value.find("byte_fallback"); fallback && fallback->boolean())
    fallback->fail("is true: SentencePiece-style tokenizers are not supported");
  if (auto dropout = value.find("dropout"); dropout && dropout->number(0, 1) != 0)
    dropout->fail(fmt::format("is {}: random merges are not supported", dropout->excerpt()));

  auto impl = std::make_unique<Impl>();
  if (auto ignore = value.find("ignore_merges")) impl->ignore_merges = ignore->boolean();
  impl->read_vocabulary(value.at("vocab"));
  impl->read_merges(value.at("merges"));
  return Bpe(std::move(impl));
}

void Bpe::Impl::read_vocabulary(const JsonValue& value) {
  std::vector<bool> taken;
  id_of_bytes.reserve(value.size());
  value.each_member([&](const std::string& name, const JsonValue& entry) {
    const int id = static_cast<int>(entry.integer(0, kMostTokenIds - 1));
    if (static_cast<size_t>(id) >= bytes.size()) {
      bytes.resize(id + 1);
      taken.resize(id + 1);
    }
    if (taken[id]) entry.fail(fmt::format("has the id {}, which another token has too", id));
    taken[id] = true;
    if (auto decoded = byte_level_decode(name)) {
      bytes[id] = *decoded;
      id_of_bytes.emplace(std::move(*decoded), id);
    } else {
      bytes[id] = name;
      id_of_name.emplace(name, id);
    }
  });
  for (int byte = 0; byte < 256; ++byte) {
    const auto entry = id_of_bytes.find(std::string(1, static_cast<char>(byte)));
    if (entry == id_of_bytes.end())
      value.fail(
          fmt::format("has no token for the byte 0x{:02X}, so text with that byte could not be written: "
                      "train with the whole byte-level alphabet",
                      byte));
    id_of_byte[byte] = entry->second;
  }
}

int Bpe::Impl::merge_part(const JsonValue& merge, std::string_view name) const {
  if (auto decoded = byte_level_decode(name))
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
  if (auto decoded = byte_level_decode(token))
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
  if (word.size() == 1) {
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
  if (impl_->cache.size() < kMostCachedWords)
    impl_->cache.emplace(word, std::vector<int>(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end()));
}

void Bpe::Impl::merge_word(std::vector<int>& ids, std::string_view word) const {
  MEGALITH_CHECK(word.size() < (size_t{1} << 30), "a word of {} bytes is too long to tokenize", word.size());
  const int count = static_cast<int>(word.size());
  std::vector<Symbol> symbols(count);
  for (int i = 0; i < count; ++i)
    symbols[i] = {id_of_byte[static_cast<uint8_t>(word[i])], i - 1, i + 1 < count ? i + 1 : -1};

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  auto offer = [&](int place) {
    if (place < 0 || symbols[place].next < 0) return;
    const int left = symbols[place].id, right = symbols[symbols[place].next].id;
    if (const auto merge = merges.find(pair_key(left, right)); merge != merges.end())
      queue.push({merge->second.rank, place, left, right, merge->second.id});
  };
  for (int i = 0; i < count; ++i) offer(i);

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    // Either symbol may have been joined with another since; then this candidate is stale.
    Symbol& symbol = symbols[best.place];
    if (symbol.id != best.left || symbol.next < 0 || symbols[symbol.next].id != best.right) continue;
    Symbol& right = symbols[symbol.next];
    symbol.id = best.id;
    symbol.next = right.next;
    if (symbol.next >= 0) symbols[symbol.next].previous = best.place;
    right.id = -1;
    offer(symbol.previous);
    offer(best.place);
  }
  for (int i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace megalith
