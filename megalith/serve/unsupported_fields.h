// Members of a request that this server understands and cannot do. To ignore them would give an answer that is not what
// was asked for, and nobody would know: each is refused by name unless its value changes nothing.
#pragma once

#include "megalith/serve/fields.h"

namespace megalith::serve {

/// ApiError (400, not_supported_error) naming the first that would change something.
void refuse_unsupported(const Fields& fields);

}  // namespace megalith::serve
