// Mail to the host by a block: what it knows of the mailbox stays in shared memory from one iteration to the next. Each
// look at the mailbox is a trip over the host's link.
#pragma once

#include "megalith/kernels/cuda/common/shared_variables.cuh"
#include "megalith/runtime/mailbox.h"

namespace megalith::kernels {

/// Where the block's next mail goes, unless it had none in this run: the mailbox says so only when the signal warp has
/// published what went before.
struct NextMail {
  runtime::MailWriter writer;
  u32 is_known;
  u32 serves;  // the mailbox's
};
inline NextMail& next_mail() { return shared_variable<NextMail, place::kNextMail, place::kSizes>(); }

}  // namespace megalith::kernels
