#include "tools/loops_random.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "megalith/base/progress.h"
#include "megalith/jit/random_loops.h"
#include "megalith/loop/transform/random_illegal.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

constexpr int64_t kTogether = 64;  // kernels to a library: the compiler reads what they have in common once

void print_wrong(const std::string& wrong) {
  progress_erase();
  print(wrong + "\n");
}

jit::RandomLoops check_right(int64_t count, uint64_t seed) {
  jit::RandomLoops all;
  Progress progress("random schedules", count);
  for (int64_t done = 0; done < count; done += kTogether) {
    const auto some = static_cast<int>(std::min(kTogether, count - done));
    const jit::RandomLoops part =
        jit::check_random_loops(seed + static_cast<uint64_t>(done), some, 10, {"-std=c++20", "-fPIC", "-O1", "-w"});
    progress.advance(some);
    all.num_kernels += part.num_kernels;
    all.num_steps += part.num_steps;
    all.num_refused += part.num_refused;
    all.num_barriers += part.num_barriers;
    all.num_without += part.num_without;
    all.num_cut += part.num_cut;
    for (const auto& [step, times] : part.accepted) all.accepted[step] += times;
    for (const auto& [what, times] : part.sources_with) all.sources_with[what] += times;
    for (const std::string& wrong : part.wrong) print_wrong(wrong);
    all.wrong.insert(all.wrong.end(), part.wrong.begin(), part.wrong.end());
  }
  return all;
}

int64_t check_illegal(int64_t count, uint64_t seed) {
  int64_t num_wrong = 0;
  Progress progress("wrong schedules", count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t own = seed + static_cast<uint64_t>(i);
    const std::string wrong = loop::check_refused(loop::random_illegal(own));
    progress.advance();
    if (wrong.empty()) continue;
    print_wrong(fmt::format("seed {}: {}", own, wrong));
    ++num_wrong;
  }
  return num_wrong;
}

}  // namespace

int check_random_loops(int64_t count, uint64_t seed) {
  const auto start = std::chrono::steady_clock::now();
  const jit::RandomLoops right = check_right(count, seed);
  const int64_t num_wrong = check_illegal(count, seed);
  std::vector<std::string> steps;
  for (const auto& [step, times] : right.accepted) steps.push_back(fmt::format("{} {}", times, step));
  print(fmt::format("{}, {} accepted ({}), {} refused, {}, {} cut in several, {} refused as code: {} wrong\n",
                    plural(right.num_kernels, "kernel"), plural(right.num_steps, "step"), fmt::join(steps, ", "),
                    right.num_refused, plural(right.num_barriers, "barrier"), plural(right.num_cut, "kernel"),
                    plural(right.num_without, "source"), right.wrong.size()));
  std::map<std::string, int> with = right.sources_with;
  print(fmt::format(
      "sources with elements that move at once: {}, vectors: {}, past the caches: {}, squares: {}; temporaries in "
      "lanes: {}\n",
      with["_pack<"], with["store_vector<"], with["stream_vector<"], with["transpose_pack<"], with["lanes"]));
  print(fmt::format("{} of {} wrong schedules refused for what is wrong with them; {:.0f} s\n", count - num_wrong,
                    count, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  return right.wrong.empty() && num_wrong == 0 ? kExitOk : kExitError;
}

}  // namespace megalith::tools
