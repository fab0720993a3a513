#include "megalith/loop/domain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/options.h>
#include <isl/set.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "megalith/base/error.h"
#include "megalith/loop/domain_text.h"
#include "megalith/loop/recall.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace megalith::loop {

namespace {

// A thread borrows a context for as long as it lives. Contexts are never freed, only lent again: isl objects must not
// outlive theirs, and a static's destructor could not know.
class ContextPool {
 public:
  isl_ctx* take() {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      isl_ctx* context = free_.back();
      free_.pop_back();
      return context;
    }
    isl_ctx* context = isl_ctx_alloc();
    isl_options_set_on_error(context, ISL_ON_ERROR_CONTINUE);  // errors are exceptions, nothing on stderr
    return context;
  }
  void put_back(isl_ctx* context) {
    std::lock_guard lock(mutex_);
    free_.push_back(context);
  }
  static ContextPool& instance() {
    static auto* pool = new ContextPool;
    return *pool;
  }

 private:
  std::mutex mutex_;
  std::vector<isl_ctx*> free_;
};

struct BorrowedContext {
  isl_ctx* context = ContextPool::instance().take();
  ~BorrowedContext() { ContextPool::instance().put_back(context); }
};

// isl 0.25 loses a token of 32 bytes when it refuses a text such as "{ [i] : i 3 }". While this lives, the leak checker
// looks away.
struct ForgiveLeaks {
#ifdef __SANITIZE_ADDRESS__
  ForgiveLeaks() { __lsan_disable(); }
  ~ForgiveLeaks() { __lsan_enable(); }
#else
  ForgiveLeaks() {}
#endif
};

// A parameter list for isl and a set text over `inames`.
std::string isl_text(const std::vector<std::string>& parameters, const std::vector<std::string>& inames,
                     const std::string& body) {
  return fmt::format("[{}] -> {{ [{}]{}{} }}", fmt::join(parameters, ", "), fmt::join(inames, ", "),
                     body.empty() ? "" : " : ", body);
}

isl::set read_isl(const std::string& text, const std::string& kernel) {
  try {
    return isl::set(isl_context(), text);
  } catch (const isl::exception_quota&) {
    throw;  // with_isl_limit() says so
  } catch (const isl::exception& error) {
    throw UserError(fmt::format("{} isl cannot read the domain {}: {}", message_prefix(kernel), text, error.what()));
  }
}

std::vector<std::string> free_parameters(const Kernel& kernel, const Binding& binding) {
  std::vector<std::string> names;
  for (const Parameter& parameter : kernel.parameters)
    if (!binding.sizes.contains(parameter.name)) names.push_back(parameter.name);
  return names;
}

// What isl made of texts: reading one takes longer than most questions about it.
Recall<isl::set>& known_sets() {
  isl_context();
  thread_local Recall<isl::set> known(8192);
  return known;
}

template <class Work>
isl::set remembered(const std::string& question, const Work& work) {
  if (const isl::set* known = known_sets().find(question)) return *known;
  const isl::set answer = work();
  known_sets().keep(question, answer);
  return answer;
}

isl::set read_context(const Kernel& kernel, const Binding& binding) {
  const std::string body = substitute_names(kernel.assumptions, binding.sizes);
  const std::string text = isl_text(free_parameters(kernel, binding), {}, body);
  return remembered("the context " + text, [&] { return read_isl(text, kernel.name).params(); });
}

bool overlaps(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::ranges::any_of(a, [&](const std::string& name) { return std::ranges::find(b, name) != b.end(); });
}

// Projects `set`, over `from`, onto those dimensions that `onto` names.
isl::set project_onto(isl::set set, const std::vector<std::string>& from, const std::vector<std::string>& onto) {
  for (size_t i = from.size(); i-- > 0;)
    if (std::ranges::find(onto, from[i]) == onto.end())
      set = isl::manage(isl_set_project_out(set.release(), isl_dim_set, static_cast<unsigned>(i), 1));
  return set;
}

std::vector<std::string> dimension_names(const isl::set& set, isl_dim_type type) {
  std::vector<std::string> names;
  for (int i = 0; i < isl_set_dim(set.get(), type); ++i)
    names.emplace_back(isl_set_get_dim_name(set.get(), type, static_cast<unsigned>(i)));
  return names;
}

void substitute_sizes(Expr& expr, const std::map<std::string, int64_t>& sizes) {
  if (expr.kind == Expr::Kind::name) {
    if (const auto size = sizes.find(expr.name); size != sizes.end()) {
      const DType dtype = expr.dtype;
      expr = make_integer(size->second);
      expr.dtype = dtype;
    }
  }
  for (Expr& arg : expr.args) substitute_sizes(arg, sizes);
}

}  // namespace

isl::ctx isl_context() {
  thread_local BorrowedContext borrowed;
  return isl::ctx(borrowed.context);
}

void check_domain_texts(const Kernel& kernel, const std::function<void(int, const std::string&)>& complain) {
  // Enough for any domain a person writes; stops texts made to keep isl busy for hours.
  constexpr unsigned long kMaxOperations = 2'000'000;
  isl_ctx* context = isl_context().get();
  struct Limit {
    isl_ctx* context;
    unsigned long around = isl_ctx_get_max_operations(context);  // with_isl_limit()
    ~Limit() {
      isl_ctx_set_max_operations(context, around);
      isl_ctx_reset_operations(context);
    }
  } limit{context};
  isl_ctx_set_max_operations(context, kMaxOperations);

  thread_local Recall<bool> known_to_read(8192);
  const std::vector<std::string> inames = kernel.inames();
  const std::set<std::string> all(inames.begin(), inames.end());
  const std::vector<std::string> parameters = free_parameters(kernel, {});
  auto check = [&](int index, const std::vector<std::string>& tuple, const std::string& body,
                   const std::string& shown) {
    std::string text = isl_text(parameters, tuple, body);
    if (known_to_read.find(text)) return;
    isl_ctx_reset_operations(context);
    const ForgiveLeaks forgive;
    try {
      isl::set(isl_context(), text).is_empty();
      known_to_read.keep(std::move(text), true);
    } catch (const isl::exception& error) {
      std::string reason = error.what();
      if (const size_t colon = reason.rfind(": "); colon != std::string::npos) reason = reason.substr(colon + 2);
      complain(index, fmt::format("isl cannot read {}: {}", shown, reason));
    }
  };
  for (size_t i = 0; i < kernel.domains.size(); ++i) {
    const DomainText domain = read_domain(kernel.domains[i], kernel.name);
    std::vector<std::string> tuple = domain.inames;
    for (const std::string& name : domain.names)
      if (all.contains(name)) tuple.push_back(name);
    check(static_cast<int>(i), tuple, domain.body, fmt::format("the domain {}", kernel.domains[i]));
  }
  if (!kernel.assumptions.empty()) {
    const std::vector<Token> tokens = lex(kernel.assumptions, kernel.name);
    Cursor cursor(tokens, kernel.name);
    if (overlaps(read_constraints(cursor, "").names, inames))
      complain(-1, fmt::format("the assumption {} names an iname, wanted parameters only", kernel.assumptions));
    check(-1, {}, kernel.assumptions, fmt::format("the assumption {}", kernel.assumptions));
  }
}

Domains::Domains(const Kernel& kernel, const Binding& binding)
    : inames_(kernel.inames()), parameters_(free_parameters(kernel, binding)), prefix_(kernel.name) {
  context_ = read_context(kernel, binding);
  about_ = isl_text(parameters_, {}, substitute_names(kernel.assumptions, binding.sizes));
  for (size_t i = 0; i < inames_.size(); ++i) places_[inames_[i]] = i;
  for (const std::string& text : kernel.domains) {
    DomainText domain = read_domain(text, kernel.name);
    std::string body = substitute_names(domain.body, binding.sizes);
    std::erase_if(domain.names, [&](const std::string& name) { return !places_.contains(name); });
    for (const std::string& iname : domain.inames) parts_of_[iname].push_back(parts_.size());
    parts_.push_back({std::move(body), std::move(domain.inames), std::move(domain.names)});
  }
}

std::vector<std::string> Domains::sorted(const std::vector<std::string>& inames) const {
  std::set<size_t> places;
  for (const std::string& iname : inames)
    if (const auto place = places_.find(iname); place != places_.end()) places.insert(place->second);
  std::vector<std::string> result;
  for (const size_t place : places) result.push_back(inames_[place]);
  return result;
}

isl::set Domains::over(const std::vector<std::string>& inames) const { return answer(inames).points; }

const std::string& Domains::question(const std::vector<std::string>& inames) const { return answer(inames).question; }

const Domains::Answer& Domains::answer(const std::vector<std::string>& inames) const {
  const std::vector<std::string> wanted = sorted(inames);
  const auto [known, is_new] = known_.try_emplace(wanted);
  if (is_new || known->second.points.is_null()) known->second = read(wanted);
  return known->second;
}

// Only what the texts that count have to do with takes part: a kernel may have hundreds of others.
Domains::Answer Domains::read(const std::vector<std::string>& inames) const {
  std::set<size_t> used;
  std::vector<std::string> needed = inames;
  std::set<std::string> all(inames.begin(), inames.end());
  for (size_t i = 0; i < needed.size(); ++i) {
    const auto parts = parts_of_.find(needed[i]);
    if (parts == parts_of_.end()) continue;
    for (const size_t part : parts->second) {
      if (!used.insert(part).second) continue;
      all.insert(parts_[part].inames.begin(), parts_[part].inames.end());
      for (const std::string& mentioned : parts_[part].mentions) {
        all.insert(mentioned);
        needed.push_back(mentioned);
      }
    }
  }
  if (used.empty()) {
    MEGALITH_ASSERT(inames.empty(), "inames {} are in no domain", fmt::join(inames, ", "));
    return {about_, isl::manage(isl_set_from_params(context_.copy()))};
  }
  const std::vector<std::string> dimensions = sorted({all.begin(), all.end()});
  std::string whole = about_;
  for (const size_t part : used) whole += isl_text({}, dimensions, parts_[part].body);
  const isl::set points = remembered(whole, [&] {
    isl::set result;
    for (const size_t part : used) {
      const isl::set set =
          read_isl(isl_text(parameters_, dimensions, parts_[part].body), prefix_).intersect_params(context_);
      result = result.is_null() ? set : result.intersect(set);
    }
    return result;
  });
  if (inames == dimensions) return {whole, points};
  const std::string question = whole + isl_text(inames, {}, "");
  return {question, remembered(question, [&] { return project_onto(points, dimensions, inames); })};
}

isl::set kernel_domain(const Kernel& kernel) { return kernel_domain(kernel, {}); }

isl::set kernel_domain(const Kernel& kernel, const Binding& binding) {
  const Domains domains(kernel, binding);
  return domains.over(domains.inames());
}

isl::set instruction_domain(const isl::set& domain, const Kernel& kernel, const Instruction& instruction,
                            const std::vector<std::string>& extra) {
  std::vector<std::string> onto = instruction.within;
  onto.insert(onto.end(), extra.begin(), extra.end());
  return project_onto(domain, kernel.inames(), onto);
}

Kernel bind_sizes(const Kernel& kernel, const Binding& binding) {
  std::map<std::string, int64_t> sizes;
  for (const Parameter& parameter : kernel.parameters)
    if (const auto size = binding.sizes.find(parameter.name); size != binding.sizes.end()) sizes.insert(*size);
  Kernel result = kernel;
  std::erase_if(result.parameters, [&](const Parameter& parameter) { return sizes.contains(parameter.name); });
  for (std::string& text : result.domains) {
    DomainText domain = read_domain(text, kernel.name);
    domain.body = substitute_names(domain.body, sizes);
    text = domain.text();
  }
  result.assumptions = substitute_names(kernel.assumptions, sizes);
  for (TensorArgument& tensor : result.tensors)
    for (Expr& size : tensor.shape) substitute_sizes(size, sizes);
  for (Instruction& instruction : result.instructions) {
    substitute_sizes(instruction.target, sizes);
    substitute_sizes(instruction.value, sizes);
    if (instruction.condition) substitute_sizes(*instruction.condition, sizes);
  }
  for (Rule& rule : result.rules) substitute_sizes(rule.body, sizes);
  return result;
}

isl::set parameter_context(const Kernel& kernel, const Binding& binding) {
  return isl::manage(isl_set_from_params(read_context(kernel, binding).release()));
}

std::vector<std::string> variable_names(const isl::set& set) {
  std::vector<std::string> names = dimension_names(set, isl_dim_param);
  const std::vector<std::string> dimensions = dimension_names(set, isl_dim_set);
  names.insert(names.end(), dimensions.begin(), dimensions.end());
  return names;
}

isl::set project_dimensions(const isl::set& domain, const std::vector<std::string>& onto) {
  isl::set set = project_onto(domain, dimension_names(domain, isl_dim_set), onto);
  std::vector<std::string> names = dimension_names(set, isl_dim_set);
  MEGALITH_ASSERT(names.size() == onto.size(), "the set has no dimensions {}", fmt::join(onto, ", "));
  for (size_t i = 0; names != onto; ++i) {
    // Dimension onto[i] goes to the end; after a round, all stand in order.
    const std::string& name = onto[i];
    const auto from = static_cast<unsigned>(std::ranges::find(names, name) - names.begin());
    const auto last = static_cast<unsigned>(names.size());
    isl_set* moved = isl_set_add_dims(set.release(), isl_dim_set, 1);
    moved = isl_set_equate(moved, isl_dim_set, static_cast<int>(from), isl_dim_set, static_cast<int>(last));
    moved = isl_set_project_out(moved, isl_dim_set, from, 1);
    set = isl::manage(isl_set_set_dim_name(moved, isl_dim_set, last - 1, name.c_str()));
    names.erase(names.begin() + from);
    names.push_back(name);
  }
  return set;
}

}  // namespace megalith::loop
