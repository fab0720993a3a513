// A loop kernel of somebody's own and its schedule, before the types of all arguments are known: what the text leaves open
// comes with the arguments. Until then it stands for f32, so that steps can be made and checked.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megalith/loop/transform/schedule.h"

namespace megalith::jit {

class OpenSchedule {
 public:
  /// `text`: a whole kernel, or domains and instructions; an instruction may stand on the line of the domain before it.
  explicit OpenSchedule(const std::string& text);

  OpenSchedule then(const std::string& line) const;
  /// Another kernel, for steps that name it: all of its types are known.
  OpenSchedule with(const std::string& name, const loop::Kernel& kernel) const;

  /// What it is checked against: without its steps, but for those that give it other arguments (batch, fix, fuse, rename).
  OpenSchedule plain() const;

  /// With f32 for what is open.
  const loop::Schedule& schedule() const { return schedule_; }
  const loop::Kernel& kernel() const { return schedule_.kernel(); }
  /// Whether the text leaves the type of this tensor of kernel() open.
  bool is_open(const std::string& tensor) const;
  /// With these types, by the names in kernel(), for what is open; an output that is not named has that of its values.
  /// UserError if a step does not apply to the kernel with those types.
  loop::Schedule typed(const std::map<std::string, DType>& dtypes) const;

 private:
  loop::Kernel text_;  // as it was read
  loop::Kernels others_;
  std::map<std::string, std::string> first_names_;  // of tensors that steps renamed
  loop::Schedule schedule_;
};

}  // namespace megalith::jit
