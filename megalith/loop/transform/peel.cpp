// peel: some points of a loop in a loop of their own
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/loop/domain_text.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

// Whether some x in `earlier` comes before some y in `later` in the loop `at`, all inames around it being equal.
bool has_before(const isl::set& earlier, const isl::set& later, unsigned at) {
  isl::map pairs = isl::manage(isl_map_from_domain_and_range(earlier.copy(), later.copy()));
  for (unsigned d = 0; d < at; ++d) pairs = pairs.intersect(compared(pairs, d, d, true));
  return !pairs.intersect(compared(pairs, at, at, false)).is_empty();
}

std::vector<size_t> instructions_within(const Kernel& kernel, const std::string& iname) {
  std::vector<size_t> found;
  for (size_t i = 0; i < kernel.instructions.size(); ++i)
    if (is_among(kernel.instructions[i].within, iname)) found.push_back(i);
  return found;
}

}  // namespace

Kernel peel(const Kernel& kernel, const std::string& iname, const std::string& peeled, const std::string& condition) {
  check_has_iname(kernel, iname);
  check_is_free(kernel, peeled);
  const std::vector<size_t> concerned = instructions_within(kernel, iname);
  if (concerned.empty()) refuse(kernel, "no instruction is within \"{}\"", iname);
  if (concerned.back() - concerned.front() + 1 != concerned.size())
    refuse(kernel, "the instructions within \"{}\" do not stand together", iname);
  const std::vector<std::string>& around = kernel.instructions[concerned.front()].within;
  const auto depth = static_cast<size_t>(std::ranges::find(around, iname) - around.begin());
  if (shared_loops(kernel, concerned.front(), concerned.back()) <= depth)
    refuse(kernel, "the instructions within \"{}\" do not share its loop", iname);
  for (const std::string& text : kernel.domains)
    if (is_among(read_domain(text, kernel.name).names, iname))
      refuse(kernel, "the domain {} depends on \"{}\": put both into one domain", text, iname);

  Kernel result = kernel;
  result.order = kernel.inames();
  result.order.insert(std::ranges::find(result.order, iname) + 1, peeled);
  for (const std::string& text : kernel.domains) {
    DomainText domain = read_domain(text, kernel.name);
    if (!is_among(domain.inames, iname)) continue;
    const auto with = [&](const std::string& more) {
      return domain.body.empty() ? more : fmt::format("({}) and {}", domain.body, more);
    };
    DomainText rest = domain, last = domain;
    rest.body = with(fmt::format("not ({})", condition));
    last.inames = {peeled};
    last.body = replace_names(kernel, with(fmt::format("({})", condition)), {{iname, peeled}});
    // The other inames keep the values that they had with any of the two.
    std::vector<std::string> others = domain.inames;
    std::erase(others, iname);
    rest.inames = {iname};
    std::ranges::replace(result.domains, text, rest.text());
    result.domains.push_back(last.text());
    if (!others.empty()) {
      const isl::set all(isl_context(), fmt::format("[{}] -> {}", fmt::join(domain.names, ", "), domain.text()));
      DomainText shared;
      shared.inames = others;
      shared.body = constraints_of(project_dimensions(all, others));
      result.domains.push_back(shared.text());
    }
  }
  check_domain_texts(result, [&](int, const std::string& reason) { refuse(kernel, "{}", reason); });

  std::vector<Instruction> copies;
  std::map<std::string, std::string> ids;
  for (const size_t i : concerned) ids[kernel.instructions[i].id] = kernel.instructions[i].id + "_" + peeled;
  for (const size_t i : concerned) {
    Instruction copy = kernel.instructions[i];
    copy.id = ids.at(copy.id);
    copy.unordered.clear();
    for (std::string& id : copy.depends_on)
      if (const auto other = ids.find(id); other != ids.end()) id = other->second;
    std::ranges::replace(copy.within, iname, peeled);
    for_each_expression(copy, [&](Expr& expr) {
      if (expr.kind == Expr::Kind::name && expr.name == iname) expr.name = peeled;
    });
    copies.push_back(std::move(copy));
  }
  // Before or after: whichever keeps the order.
  const Domains domains(result);
  std::vector<std::string> loops(around.begin(), around.begin() + static_cast<std::ptrdiff_t>(depth));
  std::vector<std::string> of_rest = loops, of_peeled = loops;
  of_rest.push_back(iname);
  of_peeled.push_back(peeled);
  const isl::set rest = project_dimensions(domains.over(of_rest), of_rest),
                 last = project_dimensions(domains.over(of_peeled), of_peeled);
  const auto at = static_cast<unsigned>(depth);
  const bool is_last = !has_before(last, rest, at), is_first = !has_before(rest, last, at);
  if (!is_last && !is_first)
    refuse(kernel, "the values of \"{}\" with {} lie among the others: want the first or the last", iname, condition);
  const size_t place = is_last ? concerned.back() + 1 : concerned.front();
  if (is_last) {
    for (Instruction& copy : copies) copy.is_behind_barrier = false;
    result.instructions.insert(result.instructions.begin() + static_cast<std::ptrdiff_t>(place), copies.begin(),
                               copies.end());
  } else {
    insert_instructions(result, place, std::move(copies));
  }
  if (const auto tag = kernel.tags.find(iname); tag != kernel.tags.end()) result.tags[peeled] = tag->second;
  return finished(std::move(result));
}

}  // namespace megalith::loop
