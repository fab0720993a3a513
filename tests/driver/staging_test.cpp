#include "megalith/runtime/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "driver/fake_driver.h"
#include "megalith/base/error.h"

namespace megalith::runtime {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::byte> pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 13);
  return data;
}

std::vector<std::byte> on_the_card(const DeviceMemory& memory, size_t bytes) {
  std::vector<std::byte> data(bytes);
  memory.download(data.data(), static_cast<int64_t>(bytes));
  return data;
}

class StagedUploadTest : public test::FakeDriverTest {
 protected:
  CudaContextGuard context{0};
};

// The stand-in copies nothing before somebody waits for it, so a buffer that is filled again too early gives wrong
// bytes.
TEST_F(StagedUploadTest, BytesArriveThroughBuffersThatAreUsedManyTimes) {
  for (const int num_readers : {1, 2, 3}) {
    const auto first = pattern(100'003, 1), second = pattern(7, 2), third = pattern(64 * 1024, 3);
    const DeviceMemory a(100'003, "a"), b(7, "b"), c(64 * 1024, "c");
    StagedUpload upload(0, 200'000, {.num_readers = num_readers, .buffer_bytes = 1024});
    upload.upload(a.address(), first.data(), 100'003);
    upload.upload(b.address(), second.data(), 7);
    upload.upload(c.address(), third.data(), 64 * 1024);
    upload.finish();
    EXPECT_EQ(on_the_card(a, first.size()), first);
    EXPECT_EQ(on_the_card(b, second.size()), second);
    EXPECT_EQ(on_the_card(c, third.size()), third);
  }
  EXPECT_EQ(fake.freed_while_used, 0);
}

// What a loader does that packs weights: the same staging area on the card over and over, read by work on the stream.
TEST_F(StagedUploadTest, AFenceOrdersLaterWorkOnTheStream) {
  constexpr int64_t kBytes = 10'000;
  const DeviceMemory staging(kBytes, "staging");
  const auto& driver = jit::CudaDriver::get();
  std::vector<std::vector<std::byte>> sources, results(20, std::vector<std::byte>(kBytes));
  for (unsigned i = 0; i < 20; ++i) sources.push_back(pattern(kBytes, i));
  {
    StagedUpload upload(0, 20 * kBytes, {.num_readers = 2, .buffer_bytes = 512});
    for (size_t i = 0; i < 20; ++i) {
      upload.upload(staging.address(), sources[i].data(), kBytes);
      upload.fence();
      std::ranges::fill(sources[i], std::byte(0xee));  // it has been read
      driver.copy_to_host_async(results[i].data(), staging.address(), kBytes, upload.stream());
    }
    upload.finish();
  }
  for (unsigned i = 0; i < 20; ++i) EXPECT_EQ(results[i], pattern(kBytes, i)) << i;
}

TEST_F(StagedUploadTest, NothingToDoEnds) {
  StagedUpload upload(0, 0, {.num_readers = 2, .buffer_bytes = 512});
  upload.upload(0, nullptr, 0);
  upload.fence();
  upload.finish();
}

TEST_F(StagedUploadTest, BuffersOutliveTheirCopiesWhenItIsGivenUp) {
  const auto data = pattern(50'000, 1);
  const DeviceMemory memory(50'000, "weights");
  for (int i = 0; i < 20; ++i) {
    StagedUpload upload(0, 50'000, {.num_readers = 3, .buffer_bytes = 1024});
    upload.upload(memory.address(), data.data(), 50'000);
  }
  EXPECT_EQ(fake.freed_while_used, 0);
}

TEST_F(StagedUploadTest, AnErrorOfAReaderIsTheCallers) {
  const auto data = pattern(50'000, 1);
  const DeviceMemory memory(50'000, "weights");
  fake.fails_after["cuMemcpyHtoDAsync_v2"] = 5;
  fake.failures["cuMemcpyHtoDAsync_v2"] = 999;
  // One reader: another might hear first that the card is gone, in another call.
  StagedUpload upload(0, 50'000, {.num_readers = 1, .buffer_bytes = 1024});
  const std::string message = message_of<SystemError>([&] {
    upload.upload(memory.address(), data.data(), 50'000);
    upload.finish();
  });
  EXPECT_THAT(message, HasSubstr("[cuda] copying weights to the GPU failed: CUDA_ERROR_UNKNOWN"));
  EXPECT_THAT(message, HasSubstr("nvidia-smi"));
  EXPECT_EQ(message_of<SystemError>([&] { upload.upload(memory.address(), data.data(), 1); }), message);
  EXPECT_EQ(message_of<SystemError>([&] { upload.fence(); }), message);
}

TEST_F(StagedUploadTest, NoMemoryToLockIsAnErrorThatSaysHowMuch) {
  fake.failures["cuMemHostAlloc"] = 2;
  StagedUpload upload(0, 10, {.num_readers = 1, .buffer_bytes = 4096});
  EXPECT_THAT(message_of<SystemError>([&] {
                upload.upload(0, "0123456789", 10);
                upload.finish();
              }),
              AllOf(HasSubstr("cannot lock 4 KiB of host memory for the upload of weights"), HasSubstr("available"),
                    HasSubstr("ulimit -l")));
}

}  // namespace
}  // namespace megalith::runtime
