// Kernels for a GPU in the cache: what is not one is made again, and another NVRTC is another key.
#include <filesystem>

#include "cuda/skip.h"
#include "driver/fake_driver.h"
#include "megalith/base/file.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/jit/cuda/shared_library.h"

namespace megalith::jit {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CubinCacheTest : public ::testing::Test {
 protected:
  CudaBuild build() {
    Pipeline pipeline("answer", PipelineOptions{});
    return build_cubin(pipeline, "answer", test::kKernelSource, "sm_90a", cache);
  }
  // A whole entry, as the cache sees it.
  void store(const CudaBuild& computed, const std::string& cubin, bool with_log = true) {
    const CacheLock lock = cache.lock(computed.key);
    const std::string workspace = cache.workspace(computed.key);
    file_write_atomic(workspace + "/kernel.cu", test::kKernelSource);
    file_write_atomic(workspace + "/kernel.ptx", computed.ptx);
    file_write_atomic(workspace + "/kernel.cubin", cubin);
    if (with_log) file_write_atomic(workspace + "/log.txt", "");
    cache.store(computed.key, "answer", workspace);
  }
  test::TemporaryFolder folder;
  KernelCache cache{folder / "cache", int64_t{1} << 30};
};

TEST_F(CubinCacheTest, AnEntryWithoutACubinIsMadeAgain) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  const CudaBuild computed = build();
  for (const std::string cubin : {"", "half of one"}) {
    store(computed, cubin);
    ::testing::internal::CaptureStderr();
    const CudaBuild again = build();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("holds no cubin"));
    EXPECT_FALSE(again.cache_hit);
    EXPECT_EQ(again.cubin, computed.cubin);
    EXPECT_TRUE(build().cache_hit);
  }
}

// Whoever knows a source with the same hash.
TEST_F(CubinCacheTest, AnEntryOfAnotherSourceIsMadeAgain) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  const CudaBuild computed = build();
  const std::string workspace = cache.workspace(computed.key);
  file_write_atomic(workspace + "/kernel.cu", "another source");
  for (const char* file : {"/kernel.ptx", "/kernel.cubin", "/log.txt"})
    fs::copy_file(computed.directory + file, workspace + file);
  cache.store(computed.key, "answer", workspace);
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(build().cache_hit);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("is of another source; it is made again"));
  EXPECT_TRUE(build().cache_hit);
}

TEST_F(CubinCacheTest, AnEntryWithoutOneOfItsFilesIsMadeAgain) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  const CudaBuild computed = build();
  store(computed, computed.cubin, false);
  EXPECT_FALSE(build().cache_hit);
  EXPECT_TRUE(build().cache_hit);
}

TEST(SharedLibraryIdentity, IsThatOfTheFileBehindAllLinks) {
  const test::TemporaryFolder folder;
  fs::copy_file(FAKE_CUDA, folder / "libsome.so.1.2.3");
  fs::create_symlink("libsome.so.1.2.3", folder / "libsome.so");
  const SharedLibrary library = SharedLibrary::named(folder / "libsome.so", "SOME", "advice");
  EXPECT_EQ(library.path(), folder / "libsome.so");
  EXPECT_EQ(library.file(), fs::canonical(folder / "libsome.so.1.2.3"));
  const std::string before = library.identity();
  EXPECT_THAT(before, HasSubstr("libsome.so.1.2.3 "));
  // What an update of the same name leaves.
  fs::last_write_time(folder / "libsome.so.1.2.3", fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_NE(library.identity(), before);
}

}  // namespace
}  // namespace megalith::jit
