// The pages of the KV cache: those that are free, those that sequences have, and those that are kept because the next
// sequence may begin with the same tokens (prefix cache).
//
// A page is known once it is full and worked through. It is found by the page before it, its tokens and, of a first page,
// the salt; a hash only finds candidates, whose tokens are compared. So what two sequences share is a tree, in which a page
// is never known without those before it. Pages that sequences have are counted; one that nobody has any longer is kept as
// long as there are free ones, and then the one that was used longest ago goes, leaves first.
//
// One thread at a time; no kernel and no memory of pages is known here.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megalith/engine/page_pool.h"

namespace megalith::engine {

class PrefixCache {
 public:
  /// Of pages of `page_size` tokens. One that does not `keep` them knows none.
  PrefixCache(PagePool pool, int64_t page_size, bool keep = true);

  bool keeps() const { return keeps_; }
  int64_t num_pages() const { return pool_.num_pages(); }
  /// Those that take() can give: free ones, and kept ones that nobody has.
  int64_t num_available() const { return pool_.num_free() + num_kept_; }
  /// Those of them that are kept.
  int64_t num_kept() const { return num_kept_; }
  /// Of pages that find() gave, those that nobody has.
  int64_t num_kept_of(const std::vector<int32_t>& pages) const;

  /// The known pages that `tokens` begin with, each of them whole.
  std::vector<int32_t> find(std::span<const int> tokens, const std::string& salt) const;
  /// A sequence has these pages, which find() gave, too.
  void hold(const std::vector<int32_t>& pages);
  /// `count` pages for a request, which has them alone; as many must be available.
  std::vector<int32_t> take(int64_t count);
  /// A sequence has these no longer. Those of them that are known are kept.
  void release(const std::vector<int32_t>& pages);
  /// Makes pages known that a sequence has: the first of them, as many as are full, hold `tokens`, all worked through.
  /// Where others hold the same already, those stay the known ones.
  void enter(std::span<const int> tokens, const std::string& salt, const std::vector<int32_t>& pages);
  /// No page is known any longer.
  void clear();

 private:
  static constexpr int32_t kNone = -1;

  /// A page. Those that follow it are a list.
  struct Page {
    int32_t users = 0;  // sequences that have it
    bool is_known = false;
    int32_t before = kNone, first_behind = kNone, next = kNone, previous = kNone;
    uint64_t hash = 0;
    uint64_t released = 0;  // when the last sequence gave it up
    std::vector<int> tokens = {};
    std::string salt = {};
  };
  Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }
  const Page& at(int32_t page) const { return pages_[static_cast<size_t>(page)]; }
  uint64_t hash(int32_t before, std::span<const int> tokens, const std::string& salt) const;
  int32_t find_behind(int32_t before, std::span<const int> tokens, const std::string& salt) const;
  void know(int32_t page, int32_t before, std::span<const int> tokens, const std::string& salt);
  /// The page is known no longer; no page follows it. It is free if nobody has it.
  void forget(int32_t page);
  /// Likewise, behind all that follow it.
  void forget_all_behind(int32_t page);
  /// Notes or withdraws that the page may go next.
  void note_leaf(int32_t page);
  void evict();

  PagePool pool_;
  const size_t page_size_;
  const bool keeps_;
  const uint64_t seed_;
  std::vector<Page> pages_;
  std::unordered_multimap<uint64_t, int32_t> known_;  // by hash
  std::set<std::pair<uint64_t, int32_t>> leaves_;     // kept, and no page follows: by `released`
  int64_t num_kept_ = 0;
  uint64_t now_ = 0;
};

}  // namespace megalith::engine
