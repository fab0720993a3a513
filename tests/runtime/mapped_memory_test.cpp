// What of memory is there: addresses from outside are held against it before a kernel touches them.
#include "megalith/runtime/mapped_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace megalith::runtime {
namespace {

TEST(MappedMemory, KnowsWhatCanBeReadAndWritten) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  auto* const pages = static_cast<char*>(
      ::mmap(nullptr, static_cast<size_t>(4 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ::munmap(pages + 3 * page, static_cast<size_t>(page));
  ::mprotect(pages + page, static_cast<size_t>(page), PROT_READ);
  ::mprotect(pages + 2 * page, static_cast<size_t>(page), PROT_NONE);
  const MappedMemory memory = MappedMemory::of_this_process();
  EXPECT_EQ(memory.trouble(pages, page, true), "");
  EXPECT_EQ(memory.trouble(pages, 2 * page, false), "");
  EXPECT_EQ(memory.trouble(pages, 2 * page, true), "cannot be written: its pages are read-only");
  EXPECT_EQ(memory.trouble(pages, 3 * page, false), "cannot be read: its pages are protected");
  EXPECT_EQ(memory.trouble(pages + 3 * page, 1, false), "is not there: nothing is mapped at its address");
  EXPECT_EQ(memory.trouble(reinterpret_cast<void*>(16), 16, false), "is not there: nothing is mapped at its address");
  EXPECT_EQ(memory.trouble(reinterpret_cast<void*>(-16), 32, false), "reaches beyond the end of memory");
  ::mprotect(pages + 2 * page, static_cast<size_t>(page), PROT_READ);
  EXPECT_EQ(
      MappedMemory::of_this_process().trouble(pages + 2 * page, page + 1, false),
      "is not all there: only " + std::to_string(page) + " of its " + std::to_string(page + 1) + " bytes are mapped");
  ::munmap(pages, static_cast<size_t>(3 * page));
  const std::vector<int> heap(100000);
  const int stack[100] = {};
  const MappedMemory now = MappedMemory::of_this_process();
  EXPECT_EQ(now.trouble(heap.data(), 400000, true), "");
  EXPECT_EQ(now.trouble(stack, sizeof stack, true), "");
}

TEST(MappedMemory, WhereProcSaysNothingAllIsThere) {
  EXPECT_EQ(MappedMemory::of_this_process("/nowhere").trouble(reinterpret_cast<void*>(16), 16, true), "");
}

}  // namespace
}  // namespace megalith::runtime
