// The sides of a GPU's L2: found in latencies, and what is laid out by them. No GPU is needed but for the last test.
#include "megalith/runtime/cuda/sides.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "cuda/skip.h"
#include "megalith/engine/batch_block.h"
#include "megalith/engine/memory_map.h"
#include "megalith/jit/compile.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/model/decoder.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/cuda/caches.h"
#include "megalith/runtime/cuda/program.h"
#include "megalith/runtime/cuda/streams.h"

namespace megalith::runtime {
namespace {

constexpr u32 kMultiprocessors = 132, kPieces = 512, kMaskOfH200 = 0xab000;

bool is_odd(u64 bits) { return __builtin_popcountll(bits) % 2 != 0; }

// What each multiprocessor sees of each piece of a page: near ones some 310 cycles, far ones 220 more, with what differs
// from slice to slice and from one multiprocessor to another. Sides are dealt by chance.
struct Seen {
  explicit Seen(u32 mask, u32 farther = 220, uint64_t seed = 1) : random(seed) {
    for (u32 m = 0; m < kMultiprocessors; ++m) sides.push_back(m == 0 ? 0 : random() % 2);
    for (u32 m = 0; m < kMultiprocessors; ++m) {
      const u32 own = random() % 40;
      for (u32 i = 0; i < kPieces; ++i)
        cycles.push_back(290 + own + random() % 40 + farther * (is_odd(i * 4096 & mask) != sides[m]));
    }
  }
  std::mt19937_64 random;
  std::vector<u8> sides;
  std::vector<u32> cycles;
};

TEST(Sides, AreFoundInLatencies) {
  for (const u32 mask : {kMaskOfH200, 0xb3000u}) {  // of an H200 and an H100
    const Seen seen(mask);
    const std::optional<SideMap> found = sides_of_multiprocessors(seen.cycles, kMultiprocessors);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->of_multiprocessor, seen.sides);
    EXPECT_EQ(found->mask, mask);
  }
}

TEST(Sides, AreNotFoundWhereThereAreNone) {
  EXPECT_FALSE(sides_of_multiprocessors(Seen(kMaskOfH200, 0).cycles, kMultiprocessors)) << "all are as near";
  EXPECT_FALSE(sides_of_multiprocessors(std::vector<u32>(kMultiprocessors * kPieces), kMultiprocessors));
  EXPECT_FALSE(sides_of_multiprocessors(Seen(0x1ef000).cycles, kMultiprocessors)) << "halves of blocks are on both";
  Seen one_piece(kMaskOfH200);
  for (u32 m = 0; m < kMultiprocessors; ++m) one_piece.cycles[m * kPieces + 100] = m % 3 * 100;
  EXPECT_FALSE(sides_of_multiprocessors(one_piece.cycles, kMultiprocessors)) << "a piece that goes by no mask";
  Seen disturbed(kMaskOfH200);
  for (u32 i = 0; i < kPieces; ++i) disturbed.cycles[7 * kPieces + i] = 300 + disturbed.random() % 2000;
  EXPECT_FALSE(sides_of_multiprocessors(disturbed.cycles, kMultiprocessors)) << "a multiprocessor that was disturbed";
}

SideMap some_sides(size_t pages, uint64_t seed = 1) {
  Seen seen(kMaskOfH200, 220, seed);
  SideMap sides = *sides_of_multiprocessors(seen.cycles, kMultiprocessors);
  std::vector<PageProbe> probes;
  std::vector<u8> wanted;
  for (size_t i = 0; i < pages; ++i) {
    const auto who = static_cast<i32>(seen.random() % kMultiprocessors);
    wanted.push_back(seen.random() % 2);
    // Its first piece is near to who is on its side; those of the other parity are farther then.
    const bool is_near = wanted.back() == sides.of_multiprocessor[static_cast<size_t>(who)];
    probes.push_back({is_near ? 200 : -200, who});
  }
  EXPECT_TRUE(add_sides_of_pages(sides, probes));
  EXPECT_EQ(sides.of_page, wanted);
  return sides;
}

TEST(Sides, OfPagesAreDoubtedIfTooManyAreUnclear) {
  SideMap sides = some_sides(1);
  std::vector<PageProbe> probes(100, {200, 3});
  for (size_t i = 0; i < 4; ++i) probes[i].difference = 5;
  EXPECT_TRUE(add_sides_of_pages(sides, probes));
  for (size_t i = 0; i < 8; ++i) probes[i].difference = -5;
  EXPECT_FALSE(add_sides_of_pages(sides, probes));
  EXPECT_FALSE(add_sides_of_pages(sides, std::vector<PageProbe>{{200, 1000}})) << "nobody's";
}

// Every block has a worker, and as many as can be are on the side that it is for.
TEST(Sides, EveryMultiprocessorHasASeat) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    const SideMap sides = some_sides(1, seed);
    const std::vector<u32> worker_of_sm = sides.worker_of_sm();
    EXPECT_EQ(std::set<u32>(worker_of_sm.begin(), worker_of_sm.end()).size(), kMultiprocessors);
    EXPECT_LT(*std::ranges::max_element(worker_of_sm), kMultiprocessors);
    size_t wrong = 0;
    for (size_t m = 0; m < worker_of_sm.size(); ++m) wrong += worker_of_sm[m] % 2 != sides.of_multiprocessor[m];
    const auto of_one = static_cast<size_t>(std::ranges::count(sides.of_multiprocessor, 1));
    EXPECT_EQ(wrong, of_one > kMultiprocessors / 2 ? of_one - kMultiprocessors / 2 : kMultiprocessors / 2 - of_one);
  }
}

// ---- streams -----------------------------------------------------------------------------------

TEST(Sides, EveryChunkOfAStreamIsOnItsWorkersSide) {
  // Workers with more and fewer chunks than their neighbours, and one with none.
  const std::vector<u64> counts = {100, 97, 33, 0, 64, 65};
  StreamPlan plan;
  for (const u64 count : counts) {
    plan.streams.push_back({plan.num_chunks(), count, 0, 0});
    for (u64 c = 0; c < count; ++c)  // two of three with a hole
      plan.records[0].push_back({.chunk = static_cast<u64>(plan.totals.chunks++),
                                 .slices = 0,
                                 .group = c % 3 == 0   ? 64u
                                          : c % 3 == 1 ? 48u
                                                       : 96u,
                                 .matrices = 1});
  }
  const u64 blocks = 100 + 33 + 65;
  ASSERT_EQ(plan.num_blocks(), blocks);
  const SideMap sides = some_sides(blocks * stream::kBlockBytes / stream::kPageBytes + 1);
  const std::vector<u32> kinds = deal_to_sides(plan, sides);
  std::set<u64> taken;
  size_t record = 0;
  for (size_t w = 0; w < counts.size(); ++w)
    for (u64 c = 0; c < counts[w]; ++c, ++record) {
      const Stream& mine = plan.streams[w];
      const u64 kind = kinds.at(mine.first_bits + c / stream::kChunksOfWord) >>
                           c % stream::kChunksOfWord * stream::kKindBits &
                       15,
                half = kind % 2;
      const u64 chunk = plan.records[0][record].chunk;
      EXPECT_EQ(kind / 2, c % 3 == 0 ? 0 : 1) << c;
      EXPECT_EQ(chunk, (mine.first + c) * 2 + half) << "where it is packed is not where it is copied from";
      EXPECT_TRUE(taken.insert(chunk).second);
      EXPECT_LT(mine.first + c, blocks);
      for (int i = 0; i < stream::kChunkPieces; ++i) {
        const u64 at = (mine.first + c) * stream::kBlockBytes +
                       static_cast<u64>(stream::half_piece(static_cast<int>(half), i)) * stream::kPieceBytes;
        const bool side = is_odd(at % stream::kPageBytes & sides.mask) != (sides.of_page[at / stream::kPageBytes] != 0);
        ASSERT_EQ(side, w % 2 != 0) << "worker " << w << ", chunk " << c << ", piece " << i;
      }
    }
}

// ---- caches ------------------------------------------------------------------------------------

// Of shapes whose runs are a piece, a part of one, and several: every row has bytes of its own, and lies on the side of its head.
TEST(Sides, EveryHeadOfACacheIsOnTheSideOfItsNumber) {
  constexpr int64_t kBegin = 5 * int64_t{stream::kPageBytes},
                    kBytes = 6400 << 10;  // more than three of the memory's pages
  const SideMap sides = some_sides(16);
  const auto table = table_of_pairs(sides, kBegin, kBytes);
  for (const head_pairs::PageShape shape :
       {head_pairs::PageShape{16, 8, 256}, {16, 8, 128}, {8, 16, 64}, {8, 4, 512}, {16, 2, 128}}) {
    const unsigned pages = static_cast<unsigned>(kBytes) / (shape.positions * shape.heads * shape.row_bytes);
    ASSERT_TRUE(head_pairs::fits(pages, shape.positions, shape.heads, shape.row_bytes));
    std::set<int64_t> taken;
    for (unsigned page = 0; page < pages; ++page)
      for (unsigned position = 0; position < shape.positions; ++position)
        for (unsigned head = 0; head < shape.heads; ++head) {
          const head_pairs::Place place = head_pairs::place_of(shape, page, position, head);
          const unsigned first = head_pairs::side_of_first(place.pair, table[head_pairs::kMaskWord],
                                                           table[head_pairs::memory_page(place.pair) / 32]);
          const int64_t byte =
              int64_t{head_pairs::piece_of(head, place.pair, first)} * head_pairs::kPieceBytes + place.byte;
          EXPECT_TRUE(taken.insert(byte).second);
          ASSERT_LE(byte + shape.row_bytes, kBytes);
          const auto at = static_cast<u64>(kBegin + byte);
          const bool side =
              is_odd(at % stream::kPageBytes & sides.mask) != (sides.of_page[at / stream::kPageBytes] != 0);
          ASSERT_EQ(side, head % 2 != 0) << "page " << page << ", position " << position << ", head " << head;
        }
  }
}

TEST(Sides, CachesThatDoNotFitAreLeftAsTheyAre) {
  EXPECT_TRUE(head_pairs::fits(3072, 16, 8, 256));
  EXPECT_TRUE(head_pairs::fits(3, 16, 4, 128));
  EXPECT_TRUE(head_pairs::fits(2, 16, 2, 128));
  EXPECT_FALSE(head_pairs::fits(3, 16, 2, 128)) << "half a piece";
  EXPECT_FALSE(head_pairs::fits(2, 16, 3, 256)) << "an odd head has no other half";
  EXPECT_FALSE(head_pairs::fits(2, 32, 8, 256)) << "a head's rows in two pieces";
  EXPECT_FALSE(head_pairs::fits(2, 16, 8, 192)) << "a row that two pieces share";
  EXPECT_FALSE(head_pairs::fits(40000, 16, 8, 256)) << "more than the table has bits";
}

TEST(Sides, CachesLieInPairsWhateverTheLoad) {
  const auto paired = [](int64_t rows, int64_t requests, const char* target) {
    const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-8B");
    const graph::Graph graph =
        build_decoder(config, {.max_rows = rows, .max_requests = requests, .max_seq_len = 512, .target = target});
    return std::ranges::count(optimize::make_schedule(graph, "cuda").layouts, graph::Layout::head_pairs);
  };
  EXPECT_EQ(paired(64, 64, "cuda"), 72);
  EXPECT_EQ(paired(16, 16, "cuda"), 72);
  EXPECT_EQ(paired(8, 8, "cuda"), 72);
  EXPECT_EQ(paired(1, 1, "cuda"), 72);
  EXPECT_EQ(paired(512, 1, "cuda"), 72);
  EXPECT_EQ(paired(64, 64, "cpu"), 0);
}

// A task of attention of an even head is an even worker's: only so keys and values are near to who reads them.
TEST(Sides, WorkersAttendHeadsThatAreNear) {
  ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-8B");
  config.num_layers = 6;
  const graph::Graph graph =
      build_decoder(config, {.max_rows = 64, .max_requests = 64, .max_seq_len = 512, .target = "cuda:sm_90a"});
  const jit::CompiledKernel kernel =
      jit::compile(graph, {.target = "cuda:sm_90a", .num_workers = kMultiprocessors, .plan_only = true});
  int near = 0, all = 0;
  for (const task::Task& task : kernel.tasks.tasks) {
    if (!graph.nodes()[static_cast<size_t>(task.node)].name.ends_with(".attention")) continue;
    const auto heads = std::ranges::find_if(task.tile, [](const loop::Range& r) { return r.iname == "g"; });
    near += heads->begin % 2 == task.worker % 2;
    ++all;
  }
  EXPECT_EQ(all, 6 * 128);
  EXPECT_EQ(near, all);
}

// ---- on a card ---------------------------------------------------------------------------------

TEST(Sides, OfThisGpuAreFound) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const jit::CudaDeviceInfo device = jit::cuda_device();
  if (device.architecture != "sm_90a") GTEST_SKIP() << "[SKIP] they are known of Hopper only";
  const graph::Graph graph = build_decoder(config_read(MEGALITH_SOURCE_DIR "/models/storyteller"),
                                           {.max_rows = 64, .max_requests = 64, .max_seq_len = 128, .target = "cuda"});
  engine::MemoryMap memory;
  memory.bind_states(graph);
  memory.bind_random(graph, 7);
  memory.bind_rope(graph, config_read(MEGALITH_SOURCE_DIR "/models/storyteller"), 128);
  for (const int workers : {device.num_multiprocessors, 100}) {
    const CudaProgram program(graph, jit::compile(graph, {.target = "cuda", .num_workers = workers}),
                              memory.addresses(), {"mailbox"});
    EXPECT_EQ(program.is_on_sides(), workers == device.num_multiprocessors);
  }
}

}  // namespace
}  // namespace megalith::runtime
