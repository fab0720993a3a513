#include "megalith/loop/in_place.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/loop/meeting.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

// Whether all pairs of points that meet agree in `iname`. An access that has no such iname is made for every value.
bool agree_in(const isl::map& meet, const TensorAccess& read, const TensorAccess& write, const std::string& iname) {
  const auto in_read = read.position(iname), in_write = write.position(iname);
  return in_read && in_write && meet.is_subset(compared(meet, *in_read, *in_write, true));
}

std::string why_not(const Kernel& kernel, const std::vector<std::string>& cut, const TensorAccess& read,
                    const TensorAccess& write) {
  const std::string reads = print(*read.expr), writes = print(*write.expr);
  const auto meet = meetings(read, write);
  if (!meet) return fmt::format("which elements {} reads and {} writes only the data say", reads, writes);
  if (meet->is_empty()) return "";
  const std::string too_early = fmt::format("{} is written before {} is read for the last time", writes, reads);
  if (write.instruction < read.instruction) return too_early;
  // In one instruction: at the same point, where reading comes first. Else the loops that both share have to be at the
  // same point; then the reading instruction stands first there.
  const std::vector<std::string>& within = kernel.instructions[write.instruction].within;
  const size_t shared = shared_loops(kernel, read.instruction, write.instruction);
  for (size_t d = 0; d < shared; ++d)
    if (!agree_in(*meet, read, write, within[d])) return too_early;
  for (const std::string& iname : cut)
    if (!agree_in(*meet, read, write, iname)) return fmt::format("{}, in another task along {}", too_early, iname);
  return "";
}

void rename(Expr& expr, const std::string& from, const std::string& to) {
  if (expr.kind == Expr::Kind::subscript && expr.name == from) expr.name = to;
  for (Expr& arg : expr.args) rename(arg, from, to);
}

}  // namespace

std::string why_not_in_place(const Kernel& kernel, const std::string& reader, const std::string& writer) {
  const Domains domains(kernel);
  const std::vector<std::string> cut = cut_inames(kernel, domains);
  const std::vector<TensorAccess> accesses =
      tensor_accesses(kernel, domains, [&](const std::string& name) { return name == reader || name == writer; });
  for (const TensorAccess& write : accesses) {
    if (!write.is_write || write.expr->name != writer) continue;
    for (const TensorAccess& read : accesses) {
      if (read.is_write || read.expr->name != reader) continue;
      if (std::string reason = why_not(kernel, cut, read, write); !reason.empty()) return reason;
    }
  }
  return "";
}

void merge_operands(Kernel& kernel, const std::string& reader, const std::string& writer) {
  for (Instruction& instruction : kernel.instructions) {
    rename(instruction.target, reader, writer);
    rename(instruction.value, reader, writer);
    if (instruction.condition) rename(*instruction.condition, reader, writer);
  }
  kernel.find_tensor(writer)->role = Role::inout;
}

}  // namespace megalith::loop
