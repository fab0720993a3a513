// Temporaries that share memory: `temporary a_s: f32[256] shared in pool`. Each holds its own values in the meaning of the
// kernel; sharing must not show, which is checked per instance.
#pragma once

#include <string>

#include "megalith/loop/domain.h"
#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Whether the two are different temporaries that share their memory.
bool share_storage(const Kernel& kernel, const std::string& a, const std::string& b);

/// UserError if one of those that share memory is written between a write and a read of another one's element, or if they
/// differ in type.
void check_storage(const Kernel& kernel, const Domains& domains);

}  // namespace megalith::loop
