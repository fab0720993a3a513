// What a GPU's bodies do with data that leads outside (common/check.cuh), on a block of the host's threads: they
// read and write nothing there, and one thread says which value of which operand it was. After an abort nobody says
// anything, for what is there may be anything.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_faults_block
#define MEGALITH_BLOCK_WARPS 2
#define MEGALITH_BLOCK_LANES 4
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 96 << 10, .area_bytes = 48 << 10};
}

#include "megalith/kernels/cuda/attention/kv_append.cuh"
#include "megalith/kernels/cuda/attention/kv_split.cuh"
#include "megalith/kernels/cuda/rowwise/gather.cuh"
#include "megalith/kernels/cuda/rowwise/rmsnorm.cuh"
#include "megalith/kernels/cuda/scheduler/single_thread.cuh"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

constexpr u32 kEpoch = 7, kTask = 42;

/// A run in which bodies note what they find.
class FaultsBlock : public ::testing::Test {
 protected:
  FaultsBlock() {
    worker_fault() = &fault_;
    abort_word() = &abort_;
    stopped() = 0;
    row_table().epoch = 0;
  }

  /// The fault that is noted must be this one, of the task that ran; then there is none.
  void expect_fault(u32 check, i64 value, i64 extent) {
    EXPECT_NE(fault_.found, 0u);
    EXPECT_EQ(fault_.task, kTask);
    EXPECT_EQ(fault_.check, check);
    EXPECT_EQ(fault_.value, value);
    EXPECT_EQ(fault_.extent, extent);
    EXPECT_EQ(abort_, static_cast<u32>(runtime::kAbortFault));
    fault_ = {};
    abort_ = 0;
  }
  void expect_none() { EXPECT_EQ(fault_.found, 0u) << fault_.check << " has " << fault_.value; }

  runtime::Fault fault_ = {};
  u32 abort_ = 0, task_ = kTask;
  FaultNote note_{&task_};
};

constexpr bf16 kOne = {0x3f80};

struct Embedding {
  static constexpr i64 V = 5, H = 8, T_largest = 4;
  struct Checks {
    static constexpr u32 ids = 3;
  };
  FaultNote faults;
  i64 T, t_begin, t_end, h_begin, h_end;
  const i32* ids;
  const bf16* weight;
  f32* y;
  Epoch epoch;
};

TEST_F(FaultsBlock, EmbeddingRows) {
  const std::vector<bf16> weight(Embedding::V * Embedding::H, kOne);
  for (const i32 wrong : {5, -1, std::numeric_limits<i32>::max(), std::numeric_limits<i32>::min()}) {
    std::vector<i32> ids = {0, wrong, 4, 1};
    std::vector<f32> y(4 * Embedding::H);
    const Embedding args{note_, 4, 0, 4, 0, Embedding::H, ids.data(), weight.data(), y.data(), {kEpoch, nullptr}};
    by_block([&] { embedding_rows(args); });
    expect_fault(3, wrong, 5);
    EXPECT_EQ(y, std::vector<f32>(4 * Embedding::H, 1));
  }
}

TEST_F(FaultsBlock, RowsThatAreNotThereTodayMaySayAnything) {
  const std::vector<bf16> weight(Embedding::V * Embedding::H, kOne);
  const std::vector<i32> ids = {2, 99, -5, 99};
  std::vector<f32> y(4 * Embedding::H);
  const Embedding args{note_, 1, 0, 4, 0, Embedding::H, ids.data(), weight.data(), y.data(), {kEpoch, nullptr}};
  by_block([&] { embedding_rows(args); });
  expect_none();
}

TEST_F(FaultsBlock, NobodySaysAnythingAfterAnAbort) {
  const std::vector<bf16> weight(Embedding::V * Embedding::H, kOne);
  const std::vector<i32> ids = {99, 99, 99, 99};
  std::vector<f32> y(4 * Embedding::H);
  const Embedding args{note_, 4, 0, 4, 0, Embedding::H, ids.data(), weight.data(), y.data(), {kEpoch, nullptr}};
  abort_ = runtime::kAbortCancel;
  by_block([&] { embedding_rows(args); });
  expect_none();
  EXPECT_EQ(abort_, static_cast<u32>(runtime::kAbortCancel));
}

struct Squares {
  static constexpr i64 V = 5, C = 2, L = 8, T_largest = 4;
  static constexpr f32 factor = 1;
  struct Checks {
    static constexpr u32 ids = 1;
  };
  FaultNote faults;
  i64 T, t_begin, t_end;
  const i32* ids;
  const bf16 *weight, *norm;
  f32* y;
  bf16* copy;
  f32* squares;
  Epoch epoch;
};

TEST_F(FaultsBlock, EmbeddingWithSquares) {
  const std::vector<bf16> weight(Squares::V * 16, kOne), norm(16, kOne);
  const std::vector<i32> ids = {0, 1, 2, 77};
  std::vector<f32> y(64), squares(8);
  std::vector<bf16> copy(64);
  const Squares args{
      note_, 4, 0, 4, ids.data(), weight.data(), norm.data(), y.data(), copy.data(), squares.data(), {kEpoch, nullptr}};
  by_block([&] { embedding_rmsnorm_parts_rows(args); });
  expect_fault(1, 77, 5);
  EXPECT_EQ(squares, std::vector<f32>(8, 8));
}

struct Gather {
  static constexpr i64 H = 8, T_largest = 6, R_largest = 3;
  struct Checks {
    static constexpr u32 rows = 2;
  };
  FaultNote faults;
  i64 T, R, r_begin, r_end;
  Words<f32> x;
  const i32* rows;
  bf16* y;
  Epoch epoch;
};

// A row behind those of today would never come, so it is no row to wait for.
TEST_F(FaultsBlock, GatheredRowsAreThoseOfToday) {
  std::vector<u64> words(6 * Gather::H);
  for (size_t i = 0; i < 4 * Gather::H; ++i) words[i] = static_cast<u64>(kEpoch) << 32 | 0x3f800000u;
  const std::vector<i32> rows = {3, 4, 0};
  std::vector<bf16> y(3 * Gather::H);
  const Gather args{note_, 4, 3, 0, 3, {words.data()}, rows.data(), y.data(), {kEpoch, nullptr}};
  by_block([&] { gather_token_rows(args); });
  expect_fault(2, 4, 4);
}

struct Append {
  static constexpr i64 H = 4, W = 4, E = 4, G = 2, B = 4, Q = 3, P = 5, S = 16, R_largest = 2, T_largest = 2;
  struct Checks {
    static constexpr u32 page_table = 6, request = 7, position = 8;
  };
  FaultNote faults;
  i64 T, t_begin, t_end, g_begin, g_end;
  const bf16* qkv;
  const f32 *cosine, *sine;
  const i32 *page_table, *request, *position;
  bf16 *k_cache, *v_cache;
  Epoch epoch;
};

TEST_F(FaultsBlock, WhatHasNoPlaceIsNotAppended) {
  constexpr size_t kCache = Append::P * Append::B * Append::G * 2 * Append::H;
  const std::vector<bf16> qkv(2 * Append::G * Append::E * 2 * Append::H, kOne);
  const std::vector<f32> cosine(Append::S * Append::H, 1), sine(cosine.size());
  struct Wrong {
    std::vector<i32> pages, requests, positions;
    u32 check;
    i64 value, extent;
  };
  const std::vector<i32> pages = {0, 1, 2, 3, 4, 0};
  for (const Wrong& wrong : {Wrong{{0, 1, 2, 3, 5, 0}, {1, 1}, {4, 5}, 6, 5, 5}, Wrong{pages, {2, 2}, {0, 1}, 7, 2, 2},
                             Wrong{pages, {-1, -1}, {0, 1}, 7, -1, 2}, Wrong{pages, {0, 0}, {12, 12}, 8, 12, 12},
                             Wrong{pages, {0, 0}, {-4, -4}, 8, -4, 12}}) {
    std::vector<bf16> keys(kCache), values(kCache);
    const Append args{note_,
                      2,
                      0,
                      2,
                      0,
                      Append::G,
                      qkv.data(),
                      cosine.data(),
                      sine.data(),
                      wrong.pages.data(),
                      wrong.requests.data(),
                      wrong.positions.data(),
                      keys.data(),
                      values.data(),
                      {kEpoch, nullptr}};
    by_block([&] { append_heads<false>(args); });
    expect_fault(wrong.check, wrong.value, wrong.extent);
    for (const std::vector<bf16>* cache : {&keys, &values})
      for (const bf16 value : *cache) ASSERT_EQ(value.bits, 0) << "something was written";
  }
}

struct Attention {
  static constexpr i64 H = 4, G = 1, B = 4, Q = 3, P = 5, S = 12, R_largest = 2, T_largest = 4;
  struct Checks {
    static constexpr u32 page_table = 1, request = 2, position = 3, start = 4;
  };
  FaultNote faults;
  i64 T;
  const i32 *position, *request, *start, *page_table;
  const bf16 *k_cache, *v_cache;
  Epoch epoch;
};

TEST_F(FaultsBlock, TheTableOfRowsSaysNothingThatIsOutside) {
  const std::vector<i32> position = {3, 12, 5, 99}, request = {0, 1, 1, 99}, start = {0, 0, 0, 99},
                         pages = {0, 1, 2, 3, 4, 9};
  const Attention args{note_,        3,       position.data(), request.data(),   start.data(),
                       pages.data(), nullptr, nullptr,         {kEpoch, nullptr}};
  by_block([&] { look_up_rows(args); });
  expect_fault(3, 12, 12);
  for (int row = 0; row < 4; ++row) {
    EXPECT_LT(row_table().position[row], 12);
    EXPECT_LT(row_table().request[row], 2);
    EXPECT_LT(row_table().start[row], 12);
  }
  EXPECT_EQ(row_table().position[0], 3);
  EXPECT_EQ(page_of(args, 1, 4), 4);
  expect_none();
  EXPECT_EQ(page_of(args, 1, 8), 0);
  expect_fault(1, 9, 5);
}

struct Batch {
  static constexpr i64 N = 3, S = 10, E = 1, T_largest = 4, R_largest = 3;
  static constexpr f32 draft_tokens = 0, draft_match = 0, draft_rows = 0, draft_free_rows = 0, draft_model = 0;
  struct Checks {
    static constexpr u32 requests = 0, sample_request = 1;
  };
  FaultNote faults;
  i64 R;
  const i32 *token, *stop_tokens, *own_stops;
  const f32* logprob;
  i32 *requests, *history, *counts, *row_token, *row_request, *row_position, *row_start, *sample_row, *sample_request,
      *mailbox, *stop;
  const u32* abort;
};

TEST_F(FaultsBlock, AdvanceOfTablesThatDoNotFit) {
  using batch::kRequestFields;
  const auto run = [&](auto change) {
    std::vector<i32> token(3, 5), stop_tokens(1, -1), own_stops(3 * batch::kMaxOwnStops, -1),
        requests(3 * kRequestFields), history(30), counts(batch::kCountFields), rows(16), samples(6), stop(1);
    std::vector<f32> logprob(3);
    std::vector<runtime::MailRecord> records(16);
    runtime::Mailbox mail;
    runtime::mailbox_init(&mail, records.data(), 16);
    for (int n = 0; n < 3; ++n) {
      i32* const fields = requests.data() + n * kRequestFields;
      fields[batch::kState] = batch::kActive, fields[batch::kLength] = 4, fields[batch::kDone] = 4;
      fields[batch::kLimit] = 9;
      samples[static_cast<size_t>(3 + n)] = n;
    }
    counts[batch::kMaxWaiting] = 100;
    change(requests, samples);
    const Batch args{note_,
                     3,
                     token.data(),
                     stop_tokens.data(),
                     own_stops.data(),
                     logprob.data(),
                     requests.data(),
                     history.data(),
                     counts.data(),
                     rows.data(),
                     rows.data() + 4,
                     rows.data() + 8,
                     rows.data() + 12,
                     samples.data(),
                     samples.data() + 3,
                     reinterpret_cast<i32*>(&mail),
                     stop.data(),
                     &abort_};
    by_block([&] { advance_by_one(args); });
  };
  run([](auto&, auto&) {});
  expect_none();
  run([](auto&, auto& samples) { samples[4] = 3; });
  expect_fault(1, 3, 3);
  run([](auto& requests, auto&) { requests[kRequestFields + batch::kLength] = 10; });
  expect_fault(0, 10, 10);
  run([](auto& requests, auto&) { requests[kRequestFields + batch::kDone] = -1; });
  expect_fault(0, -1, 5);
}

TEST_F(FaultsBlock, DivisorsAndSubscriptsOfWholeNumbers) {
  EXPECT_EQ(inside(note_, i64{4}, i64{5}, 9), 4);
  EXPECT_EQ(nonzero(note_, -3, 9), -3);
  expect_none();
  EXPECT_EQ(inside(note_, i64{1} << 40, i64{5}, 9), 0);
  expect_fault(9, i64{1} << 40, 5);
  EXPECT_EQ(nonzero(note_, 0, 9), 1);
  expect_fault(9, 0, runtime::kDivides);
  EXPECT_FALSE(is_inside(note_, 0, 0, 9));
  expect_fault(9, 0, 0);
}

}  // namespace
}  // namespace megalith::kernels
