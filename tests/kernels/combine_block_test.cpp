// What puts the chunks of attention together on a GPU (attention/combine.cuh), on a block of the host's threads, against f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_combine
#define MEGALITH_BLOCK_WARPS 16
#define MEGALITH_BLOCK_LANES 32
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 96 << 10, .area_bytes = 48 << 10, .stream_rows = 1};
}

#include "megalith/kernels/cuda/attention/combine.cuh"
#include "megalith/kernels/shared_budget.h"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

constexpr u32 kEpoch = 7;

template <int kValues, int kRows, int kShares, int kDealt = 0>
struct Task {
  static constexpr i64 D = kValues, A = 3, V = kShares, U = kDealt, S = 1000, L = 32, T_largest = kRows;
  i64 T, t_begin, t_end, a_begin, a_end;
  Words<f32> part, softmax;  // (V, A, D) and (V, A, 2)
  bf16* y;                   // (T, A * D)
  Epoch epoch;
};

template <class Of>
class Combine : public ::testing::Test {
 protected:
  static constexpr size_t D = Of::D, A = Of::A, V = Of::V;

  /// `rows`: that there are. Of those dealt, row r has shares r, r + dealt and so on; each third one is empty, but for a row's
  /// first, and what is nobody's is not written.
  void make(size_t rows) {
    rows_ = rows, dealt_ = std::max<size_t>(rows, Of::U);
    values_.assign(V * A * D, 0), states_.assign(V * A * 2, 0);
    part_.assign(values_.size(), 0), softmax_.assign(states_.size(), 0);
    y_.assign(Of::T_largest * A * D, bf16{0x7fff});
    std::normal_distribution<f32> normal;
    for (size_t s = 0; s < V; ++s) {
      if (s % dealt_ >= rows_ || s / dealt_ >= attention::kMaxChunks) continue;
      const bool is_empty = s / dealt_ % 3 == 2;
      for (size_t a = 0; a < A; ++a) {
        states_[(s * A + a) * 2] = is_empty ? -INFINITY : 4 * normal(random_);
        states_[(s * A + a) * 2 + 1] = is_empty ? 0 : 1 + std::abs(normal(random_));
        for (size_t d = 0; d < D; ++d) values_[(s * A + a) * D + d] = is_empty ? 0 : normal(random_);
      }
      const auto write = [](std::vector<u64>& words, const std::vector<f32>& from, size_t begin, size_t count) {
        for (size_t i = begin; i < begin + count; ++i)
          words[i] = static_cast<u64>(kEpoch) << 32 | __builtin_bit_cast(u32, from[i]);
      };
      write(part_, values_, s * A * D, A * D);
      write(softmax_, states_, s * A * 2, A * 2);
    }
  }
  /// By every thread of the block, two rows a task.
  void run() {
    for (size_t t = 0; t < rows_; t += 2) {
      Of task = {};
      task.T = static_cast<i64>(rows_);
      task.t_begin = static_cast<i64>(t), task.t_end = static_cast<i64>(t) + 2, task.a_begin = 0, task.a_end = Of::A;
      task.part = {part_.data()}, task.softmax = {softmax_.data()}, task.y = y_.data();
      task.epoch = {kEpoch, nullptr};
      combine_kv_splits(task);
      block_sync();
    }
  }
  void check() const {
    for (size_t t = 0; t < Of::T_largest; ++t)
      for (size_t a = 0; a < A; ++a) {
        f64 top = -INFINITY, total = 0;
        std::vector<f64> wanted(D);
        for (size_t s = t; s < V && t < rows_; s += dealt_) top = std::max<f64>(top, states_[(s * A + a) * 2]);
        for (size_t s = t; s < V && t < rows_ && s / dealt_ < attention::kMaxChunks; s += dealt_) {
          const f64 weight = std::exp(states_[(s * A + a) * 2] - top);
          total += weight * states_[(s * A + a) * 2 + 1];
          for (size_t d = 0; d < D; ++d) wanted[d] += weight * values_[(s * A + a) * D + d];
        }
        for (size_t d = 0; d < D; ++d) {
          const bf16 found = y_[(t * A + a) * D + d];
          if (t >= rows_)
            ASSERT_EQ(found.bits, 0x7fff) << "of row " << t << ", which there is not";
          else
            ASSERT_NEAR(to_f32(found), wanted[d] / total, std::abs(wanted[d] / total) / 256 + 1e-6) << "of row " << t;
        }
      }
  }

 private:
  std::mt19937 random_{1};
  size_t rows_ = 0, dealt_ = 1;
  std::vector<f32> values_, states_;
  std::vector<u64> part_, softmax_;
  std::vector<bf16> y_;
};

using Shapes = ::testing::Types<Task<128, 1, 16>, Task<64, 1, 5>, Task<128, 8, 16>, Task<64, 5, 64>, Task<128, 64, 64>,
                                Task<128, 8, 16, 8>>;
TYPED_TEST_SUITE(Combine, Shapes);

TYPED_TEST(Combine, PutsTogetherTheChunksOfHoweverManyRows) {
  by_block([&] {
    for (const i64 rows : {1, 2, 3, 5, 8, 9, 63, 64}) {
      if (rows > TypeParam::T_largest) continue;
      if (thread() == 0) {
        this->make(static_cast<size_t>(rows));
        std::memset(shared_area(), 0xff, kWorkerConfig.area_bytes);
      }
      block_sync();
      this->run();
      SCOPED_TRACE(testing::Message() << rows << " rows");
      if (thread() == 0) this->check();
      block_sync();
    }
  });
}

}  // namespace
}  // namespace megalith::kernels
