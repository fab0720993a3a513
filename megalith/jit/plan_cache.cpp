#include "megalith/jit/plan_cache.h"

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/jit/build_id.h"

namespace megalith::jit {

namespace {

constexpr const char *kPlanIdentity = "identity.txt", *kPlanTasks = "tasks.bin", *kPlanSource = "source.txt";

}  // namespace

PlanCache::PlanCache(const KernelCache& cache, const std::string& identity)
    : cache_(cache), identity_("plan\n" + build_id() + "\n" + identity), key_(hash_hex(identity_)) {}

std::optional<Plan> PlanCache::find() const {
  if (option_integer("MEGALITH_ALWAYS_COMPILE") != 0) return std::nullopt;
  std::optional<EntryFiles> files = cache_.find_files(key_);
  if (!files) return std::nullopt;
  // The key is a hash that is made for speed: a model may be made to have another one's. A file that is not there is
  // empty, and no identity is.
  if ((*files)[kPlanIdentity] != identity_) {
    log_warn("the cache entry {}/kernels/{} is of another graph; it is made again", cache_.directory(), key_);
    return std::nullopt;
  }
  return Plan{std::move((*files)[kPlanTasks]), std::move((*files)[kPlanSource])};
}

void PlanCache::store(const std::string& name, const Plan& plan) const {
  std::string workspace;
  try {
    workspace = cache_.workspace(key_);
    file_write_atomic(workspace + "/" + kPlanIdentity, identity_, 0600);
    file_write_atomic(workspace + "/" + kPlanTasks, plan.tasks, 0600);
    file_write_atomic(workspace + "/" + kPlanSource, plan.source, 0600);
    cache_.store(key_, name, workspace);
  } catch (const SystemError& error) {
    log_info("the plan of {} is not kept: {}", name, error.what());
    if (!workspace.empty()) cache_.discard(workspace);
  }
}

void PlanCache::remove() const { cache_.remove(key_); }

}  // namespace megalith::jit
