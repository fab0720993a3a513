#include "megalith/engine/machine.h"

#include "megalith/base/error.h"

namespace megalith::engine {

void Machine::profile(uint32_t) {
  throw UserError("[profile] the workers of this target write no records yet; profile with --target cpu");
}

runtime::Profile Machine::profile_take() { return {}; }

}  // namespace megalith::engine
