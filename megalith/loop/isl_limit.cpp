#include "megalith/loop/isl_limit.h"

#include <isl/cpp.h>
#include <isl/ctx.h>
#include <isl/space.h>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/lex.h"

namespace megalith::loop {

namespace {

class Limit {
 public:
  Limit(isl_ctx* context, unsigned long most_steps) : context_(context) {
    isl_ctx_reset_operations(context);
    isl_ctx_set_max_operations(context, most_steps);
  }
  ~Limit() {
    isl_ctx_set_max_operations(context_, 0);
    isl_ctx_reset_operations(context_);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  isl_ctx* context_;
};

// Whether the limit is reached: from then on all that needs memory fails.
bool is_spent(isl_ctx* context) {
  isl_space* const space = isl_space_params_alloc(context, 0);
  isl_space_free(space);
  return space == nullptr;
}

}  // namespace

void with_isl_limit(const std::string& kernel, const std::function<void()>& work, unsigned long most_steps) {
  isl_ctx* const context = isl_context().get();
  if (isl_ctx_get_max_operations(context) != 0) return work();
  const Limit limit(context, most_steps);
  const auto gave_up = [&] {
    return UserError(fmt::format(
        "{} isl gave up on this loop kernel after {} steps: give it fewer loop variables and conditions in "
        "one domain, less of //, mod, or and not in domains and subscripts, and smaller numbers beside them",
        message_prefix(kernel), most_steps));
  };
  try {
    work();
  } catch (const isl::exception_quota&) { throw gave_up(); } catch (const isl::exception&) {
    // What a function of isl's C interface gives up on is the next one's null, and another exception.
    if (!is_spent(context)) throw;
    throw gave_up();
  }
}

}  // namespace megalith::loop
