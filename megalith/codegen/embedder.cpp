#include "megalith/codegen/embedder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "megalith/kernels/embedded.h"

namespace megalith::codegen {

void Embedder::add(const std::string& wanted) {
  const auto other = replaced_.find(wanted);
  const std::string name = other == replaced_.end() ? wanted : other->second;
  if (!done_.insert(name).second) return;
  std::string own;
  std::string_view rest = kernels::embedded_source(name);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    constexpr std::string_view kInclude = "#include \"megalith/";
    if (line.starts_with(kInclude))
      add(std::string(line.substr(kInclude.size(), line.rfind('"') - kInclude.size())));
    else if (!line.starts_with("#pragma once"))
      own += line;
  }
  text_ += fmt::format("// ==== megalith/{0} {1:=>{2}}\n{3}// ==== end of megalith/{0}\n\n", name, "",
                       std::max<int>(4, 104 - static_cast<int>(name.size())), own);
}

}  // namespace megalith::codegen
