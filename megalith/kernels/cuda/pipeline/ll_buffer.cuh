// Activations that carry their flag: the exchange (docs/protocol.md). A word of 8 bytes is a payload of 4, two bf16 or f16
// or one f32 or i32, and the epoch in which it was written, the iteration's number plus 1. To wait for a value is to load
// it until its epoch is this iteration's: one trip through the L2 where a counter takes two. A word is stored and
// loaded whole (relaxed, 64 bits), so payload and epoch are never of different writes; nothing else may be concluded
// from seeing one.
#pragma once

#include "megalith/kernels/cuda/common/half_pair.cuh"
#include "megalith/kernels/cuda/common/prelude.cuh"
#include "megalith/kernels/cuda/common/shared_variables.cuh"

namespace megalith::kernels {

/// A tensor of bf16, f16, f32 or i32 as words. Row-major; the last dimension of bf16 or f16 is even.
template <class T>
struct Words {
  u64* at;
};

/// Set once a waiter saw that the run was aborted: no body waits any more, and the block leaves at the next gate (P0).
inline u32& stopped() { return shared_variable<u32, place::kStopped, place::kGate>(); }
/// Not 0 once the run is aborted.
inline const u32*& abort_word() { return shared_variable<const u32*, place::kAbortWord, place::kFlagNote>(); }
/// Where a thread that waits for long says for what (WorkerStatus::flag of runtime/protocol.h).
inline u64*& flag_note() { return shared_variable<u64*, place::kFlagNote, place::kEnded>(); }

/// Not 0 if the worker waits longer for words than for memory: its tasks are short.
inline u32& waits_for_words() { return shared_variable<u32, place::kWaitsForWords, place::kFault>(); }

/// A tensor that is read, as the type of one that is written: one type for both in what all projections share.
inline Words<f32> as_output(Words<f32> words) { return words; }
inline f32* as_output(const f32* plain) { return const_cast<f32*>(plain); }

/// For how long, in ticks, the worker's stream has asked memory for nothing because nothing more had room; if profiled.
inline u32& stream_idle() { return shared_variable<u32, place::kStreamIdle, place::kNextMail>(); }
/// What is written down of a task that is profiled: when it had its turn, when its inputs were there, and how long the
/// stream had been idle then.
struct TaskTimes {
  u64 begin, ready;
  u32 idle_at_begin, idle_at_ready;

  void begin_now() {
    begin = profile_clock();
    idle_at_begin = flag_value(&stream_idle());
  }
  void ready_now() {
    ready = profile_clock();
    idle_at_ready = flag_value(&stream_idle());
  }
};
/// What a wait for words waits for; and where to write down, if anybody wants to know, when the inputs were there.
struct Epoch {
  u32 value;
  TaskTimes* times;
};
inline void inputs_are_ready(Epoch epoch) {
  if (thread() == 0 && epoch.times != nullptr) epoch.times->ready_now();
}
inline bool is_fresh(u64 word, Epoch epoch) { return static_cast<u32>(word >> 32) == epoch.value; }
inline u32 payload(u64 word) { return static_cast<u32>(word); }

inline u64 load_word(const u64* at) { return load_relaxed(at); }
struct alignas(16) WordPair {
  u64 a, b;
};
inline WordPair load_words(const u64* at) {
  WordPair pair;
  load_two_relaxed(pair.a, pair.b, at);
  return pair;
}

/// After many looks in vain: true if the run was aborted. All words then count as fresh. Every so many looks the thread
/// writes down which word it waits for: `stale()`, or nullptr if its own are all there.
template <class Stale>
inline bool wait_is_over(u32 round, Epoch epoch, Stale stale) {
  constexpr u32 kRoundsBetweenLooks = 1024;
  if (flag_is_set(&stopped())) return true;
  if (round % kRoundsBetweenLooks != 0) return false;
  const u64* const at = stale();
  if (at != nullptr)
    store_relaxed(flag_note(), static_cast<u64>(epoch.value) << 32 | static_cast<u32>(reinterpret_cast<u64>(at) >> 3));
  if (load_relaxed(abort_word()) == 0) return false;
  flag_set(&stopped());
  return true;
}

/// Loads again until fresh. `pair` was loaded from `at` before: the first look is the caller's, who has others in
/// flight at the same time.
inline void wait_words(WordPair& pair, const u64* at, Epoch epoch) {
  for (u32 round = 1; !(is_fresh(pair.a, epoch) && is_fresh(pair.b, epoch)); ++round) {
    if (wait_is_over(round, epoch, [&] { return is_fresh(pair.a, epoch) ? at + 1 : at; })) return;
    pair = load_words(at);
  }
}
inline void wait_word(u64& word, const u64* at, Epoch epoch) {
  for (u32 round = 1; !is_fresh(word, epoch); ++round) {
    if (wait_is_over(round, epoch, [&] { return at; })) return;
    word = load_word(at);
  }
}

inline void store_word(u64* at, u32 value, Epoch epoch) {
  store_relaxed(at, static_cast<u64>(epoch.value) << 32 | value);
}

/// Rows of activations to work out. With room for one it is that one, without a look at how many there are: an iteration
/// that has none computes one for nothing.
template <class Args>
inline i64 rows_of(const Args& args) {
  if constexpr (Args::T_largest == 1)
    return 1;
  else
    return args.T;
}

// ---- one way to write and read, whether a tensor is words or plain memory ----------------------

/// Elements `index` and `index` + 1, index even.
template <Half T>
inline void put_pair(Words<T> to, i64 index, f32 low, f32 high, Epoch epoch) {
  store_word(to.at + index / 2, Pair<T>::of(low, high), epoch);
}
template <Half T>
inline void put_pair(T* to, i64 index, f32 low, f32 high, Epoch) {
  *reinterpret_cast<u32*>(to + index) = Pair<T>::of(low, high);
}
inline void put(Words<f32> to, i64 index, f32 value, Epoch epoch) {
  store_word(to.at + index, __builtin_bit_cast(u32, value), epoch);
}
inline void put(f32* to, i64 index, f32 value, Epoch) { to[index] = value; }
inline void put(Words<i32> to, i64 index, i32 value, Epoch epoch) {
  store_word(to.at + index, static_cast<u32>(value), epoch);
}
inline void put(i32* to, i64 index, i32 value, Epoch) { to[index] = value; }

inline void put_pair(Words<f32> to, i64 index, f32 a, f32 b, Epoch epoch) {
  put(to, index, a, epoch);
  put(to, index + 1, b, epoch);
}
inline void put_pair(f32* to, i64 index, f32 a, f32 b, Epoch) {
  to[index] = a;
  to[index + 1] = b;
}

/// Where 8 bytes of payload lie: four bf16 or f16, or two f32, from an index that is a multiple of as many.
template <Half T>
inline const WordPair* eight_at(Words<T> x, int index) {
  return reinterpret_cast<const WordPair*>(x.at + index / 2);
}
inline const WordPair* eight_at(Words<f32> x, int index) { return reinterpret_cast<const WordPair*>(x.at + index); }
template <Half T>
inline const uint2* eight_at(const T* x, int index) {
  return reinterpret_cast<const uint2*>(x + index);
}
inline const uint2* eight_at(const f32* x, int index) { return reinterpret_cast<const uint2*>(x + index); }

/// Several times 8 bytes of payload: looked at all at once, then waited for together. `At`: what eight_at() gives.
template <class At, int kCount>
class Eights;

template <int kCount>
class Eights<const WordPair*, kCount> {
 public:
  void look(int i, const WordPair* at) { words_[i] = load_words(&at->a); }
  /// There is no i-th one.
  void none(int i, Epoch epoch) { words_[i].a = words_[i].b = static_cast<u64>(epoch.value) << 32; }
  /// By all lanes of a warp, which stay together: lanes that left a loop one by one pay for it at the next shuffle.
  /// `at(i)`: as given to look(), of those that were.
  template <class At>
  void wait(At at, Epoch epoch) {
    for (u32 round = 1;; ++round) {
      bool fresh = true;
#pragma unroll
      for (int i = 0; i < kCount; ++i) fresh = fresh && is_fresh(words_[i].a, epoch) && is_fresh(words_[i].b, epoch);
      if (all_of_warp(fresh)) return;
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (!is_fresh(words_[i].a, epoch) || !is_fresh(words_[i].b, epoch)) look(i, at(i));
      const auto stale = [&] {
        const u64* found = nullptr;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if (!is_fresh(words_[i].a, epoch))
            found = &at(i)->a;
          else if (!is_fresh(words_[i].b, epoch))
            found = &at(i)->b;
        }
        return found;
      };
      if (any_of_warp(wait_is_over(round, epoch, stale))) return;
    }
  }
  uint2 get(int i) const { return make_uint2(payload(words_[i].a), payload(words_[i].b)); }

 private:
  WordPair words_[kCount];
};

template <int kCount>
class Eights<const uint2*, kCount> {
 public:
  void look(int i, const uint2* at) { eights_[i] = *at; }
  void none(int i, Epoch) { eights_[i] = make_uint2(0, 0); }
  template <class At>
  void wait(At, Epoch) {}
  uint2 get(int i) const { return eights_[i]; }

 private:
  uint2 eights_[kCount];
};
/// Two f32 of such a payload.
inline float2 two_f32(uint2 eight) { return {__builtin_bit_cast(f32, eight.x), __builtin_bit_cast(f32, eight.y)}; }

/// Two bf16 or f16 from an even `index` on.
template <Half T>
inline u32 get_pair(Words<T> from, i64 index, Epoch epoch) {
  const u64* at = from.at + index / 2;
  u64 word = load_word(at);
  wait_word(word, at, epoch);
  return payload(word);
}
/// The same at two places at once, by all lanes of a warp.
inline void get_two_pairs(Words<bf16> from, i64 index, i64 other, Epoch epoch, u32& a, u32& b) {
  const u64 *at = from.at + index / 2, *other_at = from.at + other / 2;
  u64 word = load_word(at), other_word = load_word(other_at);
  for (u32 round = 1; !all_of_warp(is_fresh(word, epoch) && is_fresh(other_word, epoch)); ++round) {
    const auto stale = [&] { return !is_fresh(word, epoch) ? at : !is_fresh(other_word, epoch) ? other_at : nullptr; };
    if (any_of_warp(wait_is_over(round, epoch, stale))) break;
    word = load_word(at);
    other_word = load_word(other_at);
  }
  a = payload(word);
  b = payload(other_word);
}
inline void get_two_pairs(const bf16* from, i64 index, i64 other, Epoch, u32& a, u32& b) {
  a = *reinterpret_cast<const u32*>(from + index);
  b = *reinterpret_cast<const u32*>(from + other);
}
template <Half T>
inline u32 get_pair(const T* from, i64 index, Epoch) {
  return *reinterpret_cast<const u32*>(from + index);
}

/// A first look at one value.
inline u64 look(Words<f32> from, i64 index) { return load_word(from.at + index); }
inline f32 look(const f32* from, i64 index) { return from[index]; }
inline u64 look(Words<i32> from, i64 index) { return load_word(from.at + index); }
inline i32 look(const i32* from, i64 index) { return from[index]; }

/// Until all are there that the lanes of a warp looked at, several each: seen[i] at index_of(i).
template <class X, int kCount, class IndexOf>
inline void wait_together(u64 (&seen)[kCount], X from, IndexOf index_of, Epoch epoch) {
  for (u32 round = 1;; ++round) {
    bool fresh = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) fresh = fresh && is_fresh(seen[i], epoch);
    if (all_of_warp(fresh)) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (!is_fresh(seen[i], epoch)) seen[i] = look(from, index_of(i));
    const auto stale = [&] {
      const u64* found = nullptr;
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (!is_fresh(seen[i], epoch)) found = from.at + index_of(i);
      return found;
    };
    if (any_of_warp(wait_is_over(round, epoch, stale))) return;
  }
}
template <class T, int kCount, class IndexOf>
inline void wait_together(T (&)[kCount], const T*, IndexOf, Epoch) {}
/// What was seen, once it is there.
inline f32 value_of(Words<f32>, u64 seen) { return __builtin_bit_cast(f32, payload(seen)); }
inline i32 value_of(Words<i32>, u64 seen) { return static_cast<i32>(payload(seen)); }
template <class T>
inline T value_of(const T*, T seen) {
  return seen;
}

/// Two f32 from an even index on: a first look, and what they are once they are there.
inline WordPair look_two(Words<f32> from, i64 index) { return load_words(from.at + index); }
inline float2 get_two(WordPair seen, Words<f32> from, i64 index, Epoch epoch) {
  wait_words(seen, from.at + index, epoch);
  return {__builtin_bit_cast(f32, payload(seen.a)), __builtin_bit_cast(f32, payload(seen.b))};
}
inline float2 look_two(const f32* from, i64 index) { return *reinterpret_cast<const float2*>(from + index); }
inline float2 get_two(float2 seen, const f32*, i64, Epoch) { return seen; }

/// Two values from an even index on, as f32.
template <Half T>
inline float2 get_pair_f32(Words<T> from, i64 index, Epoch epoch) {
  const u32 pair = get_pair(from, index, epoch);
  return {Pair<T>::low(pair), Pair<T>::high(pair)};
}
template <Half T>
inline float2 get_pair_f32(const T* from, i64 index, Epoch epoch) {
  const u32 pair = get_pair(from, index, epoch);
  return {Pair<T>::low(pair), Pair<T>::high(pair)};
}
inline float2 get_pair_f32(Words<f32> from, i64 index, Epoch epoch) {
  return get_two(look_two(from, index), from, index, epoch);
}
inline float2 get_pair_f32(const f32* from, i64 index, Epoch) { return look_two(from, index); }

inline void put_two(Words<f32> to, i64 index, f32 a, f32 b, Epoch epoch) {
  const u64 flag = static_cast<u64>(epoch.value) << 32;
  store_two_relaxed(to.at + index, flag | __builtin_bit_cast(u32, a), flag | __builtin_bit_cast(u32, b));
}
inline void put_two(f32* to, i64 index, f32 a, f32 b, Epoch) { *reinterpret_cast<float2*>(to + index) = {a, b}; }

}  // namespace megalith::kernels
