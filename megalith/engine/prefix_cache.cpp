#include "megalith/engine/prefix_cache.h"

#include <algorithm>
#include <functional>
#include <random>
#include <ranges>

#include "megalith/base/error.h"

namespace megalith::engine {

namespace {

// Whoever chooses tokens so that hashes collide would make lookups slow, and does not know it.
uint64_t random_seed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace

PrefixCache::PrefixCache(PagePool pool, int64_t page_size, bool keep)
    : pool_(std::move(pool)),
      page_size_(static_cast<size_t>(page_size)),
      keeps_(keep),
      seed_(random_seed()),
      pages_(static_cast<size_t>(pool_.num_pages())) {}

std::vector<int32_t> PrefixCache::find(std::span<const int> tokens, const std::string& salt) const {
  std::vector<int32_t> found;
  for (size_t begin = 0; begin + page_size_ <= tokens.size(); begin += page_size_) {
    const int32_t before = found.empty() ? kNone : found.back();
    const int32_t page = find_behind(before, tokens.subspan(begin, page_size_), salt);
    if (page == kNone) break;
    found.push_back(page);
  }
  return found;
}

int64_t PrefixCache::num_kept_of(const std::vector<int32_t>& pages) const {
  return std::ranges::count_if(pages, [&](int32_t page) { return at(page).users == 0; });
}

void PrefixCache::hold(const std::vector<int32_t>& pages) {
  for (const int32_t page : pages) {
    if (at(page).users++ > 0) continue;
    --num_kept_;
    note_leaf(page);
  }
}

std::vector<int32_t> PrefixCache::take(int64_t count) {
  MEGALITH_ASSERT(count <= num_available(), "[pages] {} pages wanted, {} are available", count, num_available());
  while (pool_.num_free() < count) evict();
  std::vector<int32_t> pages = pool_.take(count);
  for (const int32_t page : pages) at(page).users = 1;
  return pages;
}

void PrefixCache::release(const std::vector<int32_t>& pages) {
  ++now_;
  std::vector<int32_t> free;
  for (const int32_t page : pages) {
    Page& mine = at(page);
    MEGALITH_ASSERT(mine.users > 0, "[pages] nobody has page {}", page);
    if (--mine.users > 0) continue;
    if (!mine.is_known) {
      free.push_back(page);
      continue;
    }
    ++num_kept_;
    mine.released = now_;
    note_leaf(page);
  }
  pool_.give_back(free);
}

void PrefixCache::enter(std::span<const int> tokens, const std::string& salt, const std::vector<int32_t>& pages) {
  if (!keeps_) return;
  int32_t before = kNone;
  for (size_t i = 0; i < pages.size() && (i + 1) * page_size_ <= tokens.size(); ++i) {
    const std::span<const int> mine = tokens.subspan(i * page_size_, page_size_);
    int32_t page = find_behind(before, mine, salt);
    if (page == kNone) know(page = pages[i], before, mine, salt);
    before = page;
  }
}

void PrefixCache::clear() {
  for (size_t page = 0; page < pages_.size(); ++page)
    if (pages_[page].is_known) forget_all_behind(static_cast<int32_t>(page));
}

// Two multiplications of SplitMix64's finaliser a token mix better than it takes: tokens are compared.
uint64_t PrefixCache::hash(int32_t before, std::span<const int> tokens, const std::string& salt) const {
  uint64_t hash = seed_ ^ static_cast<uint64_t>(before);
  if (before == kNone) hash ^= std::hash<std::string>()(salt);
  for (const int token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0xbf58476d1ce4e5b9ull;
    hash ^= hash >> 29;
  }
  return hash;
}

int32_t PrefixCache::find_behind(int32_t before, std::span<const int> tokens, const std::string& salt) const {
  const auto [begin, end] = known_.equal_range(hash(before, tokens, salt));
  for (auto it = begin; it != end; ++it) {
    const Page& page = at(it->second);
    if (page.before == before && std::ranges::equal(page.tokens, tokens) && (before != kNone || page.salt == salt))
      return it->second;
  }
  return kNone;
}

void PrefixCache::know(int32_t page, int32_t before, std::span<const int> tokens, const std::string& salt) {
  Page& mine = at(page);
  MEGALITH_ASSERT(mine.users > 0 && !mine.is_known, "[pages] page {} is not the sequence's, or known for another",
                  page);
  mine.is_known = true;
  mine.before = before;
  mine.first_behind = mine.previous = mine.next = kNone;
  mine.tokens.assign(tokens.begin(), tokens.end());
  if (before == kNone) mine.salt = salt;
  mine.hash = hash(before, tokens, salt);
  known_.emplace(mine.hash, page);
  if (before == kNone) return;
  mine.next = std::exchange(at(before).first_behind, page);
  if (mine.next != kNone) at(mine.next).previous = page;
  note_leaf(before);
}

void PrefixCache::forget(int32_t page) {
  Page& mine = at(page);
  const auto [begin, end] = known_.equal_range(mine.hash);
  known_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == page; }));
  if (mine.next != kNone) at(mine.next).previous = mine.previous;
  if (mine.previous != kNone)
    at(mine.previous).next = mine.next;
  else if (mine.before != kNone)
    at(mine.before).first_behind = mine.next;
  leaves_.erase({mine.released, page});
  const int32_t before = mine.before, users = mine.users;
  mine = {.users = users};
  if (before != kNone) note_leaf(before);
  if (users > 0) return;
  --num_kept_;
  pool_.give_back({page});
}

void PrefixCache::forget_all_behind(int32_t page) {
  std::vector<int32_t> all = {page};
  for (size_t i = 0; i < all.size(); ++i)
    for (int32_t behind = at(all[i]).first_behind; behind != kNone; behind = at(behind).next) all.push_back(behind);
  for (const int32_t one : std::views::reverse(all)) forget(one);
}

void PrefixCache::note_leaf(int32_t page) {
  const Page& mine = at(page);
  if (mine.is_known && mine.users == 0 && mine.first_behind == kNone)
    leaves_.insert({mine.released, page});
  else
    leaves_.erase({mine.released, page});
}

// A page that nobody has may have pages behind it that somebody has: whoever worked through the same tokens beside it has
// pages of his own for them, and only those behind are known for his. They are forgotten with it.
void PrefixCache::evict() {
  if (!leaves_.empty()) return forget(leaves_.begin()->second);
  int32_t oldest = kNone;
  for (size_t i = 0; i < pages_.size(); ++i) {
    const auto page = static_cast<int32_t>(i);
    const bool is_kept = pages_[i].is_known && pages_[i].users == 0;
    if (is_kept && (oldest == kNone || pages_[i].released < at(oldest).released)) oldest = page;
  }
  forget_all_behind(oldest);
}

}  // namespace megalith::engine
