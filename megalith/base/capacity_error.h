// A UserError of its own: the kernel is right, but a machine cannot hold it.
#pragma once

#include "megalith/base/error.h"

namespace megalith {

/// A block's shared memory, its threads, their registers: says what is needed and what there is. Whoever tries many kernels
/// goes on with the next one.
class CapacityError : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace megalith
