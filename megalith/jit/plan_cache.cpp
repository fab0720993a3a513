#include "megalith/jit/plan_cache.h"

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/jit/build_id.h"

namespace megalith::jit {

namespace {

constexpr const char *kTasks = "/tasks.bin", *kSource = "/source.txt";

}  // namespace

PlanCache::PlanCache(const KernelCache& cache, const std::string& identity)
    : cache_(cache), key_(hash_hex("plan\n" + build_id() + "\n" + identity)) {}

std::optional<Plan> PlanCache::find() const {
  if (option_integer("MEGALITH_ALWAYS_COMPILE") != 0) return std::nullopt;
  const std::optional<std::string> directory = cache_.find(key_);
  if (!directory) return std::nullopt;
  try {
    return Plan{file_read(*directory + kTasks), file_read(*directory + kSource)};
  } catch (const SystemError&) {
    return std::nullopt;  // evicted between the look and the reading
  }
}

void PlanCache::store(const std::string& name, const Plan& plan) const {
  const CacheLock lock = cache_.lock(key_);
  std::string workspace;
  try {
    workspace = cache_.workspace(key_);
    file_write_atomic(workspace + kTasks, plan.tasks);
    file_write_atomic(workspace + kSource, plan.source);
    cache_.store(key_, name, workspace);
  } catch (const SystemError& error) {
    log_info("the plan of {} is not kept: {}", name, error.what());
    if (!workspace.empty()) cache_.discard(workspace);
  }
}

}  // namespace megalith::jit
