#include <algorithm>
#include <array>
#include <cmath>

#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;
using graph::NodeOptions;
using graph::Tensor;
using graph::TensorId;

namespace {

// Positions of a text are dealt to chunks in blocks of so many. 32 positions keep all warps of a task busy at once.
constexpr int64_t kBlockPositions = 32;
// Rows that a task merges, whose parts are under way together.
constexpr int64_t kMergeRows = 2;
// Tasks that write the cache, at most.
constexpr int64_t kMaxAppendTasks = 4;
// Rows of an iteration for each request there is room for, from which on many of them are of one prompt and look at each
// other.
constexpr int64_t kRowsOfPrompt = 8;
// What a tensor is called that says of each row where its request began in this iteration, or how its name ends.
constexpr const char* kRowStart = "row_start";

// ---- what is there ------------------------------------------------------------------------------------------------------

// Heads as they come from a product, or from the node that took q, k and v apart: what was done to them since.
struct Heads {
  const Node *split = nullptr, *product = nullptr, *bias = nullptr, *norm = nullptr, *rotation = nullptr;
};

// `which`: "q", "k" or "v".
std::optional<Heads> projected(const Uses& uses, TensorId heads, const char* which) {
  Heads h;
  if ((h.split = uses.only_maker(heads, "split_heads")))
    return operand(*h.split, which) == heads ? std::optional(h) : std::nullopt;
  if ((h.bias = uses.only_maker(heads, "row_bias"))) heads = operand(*h.bias, "x");
  h.product = uses.only_maker(heads, "linear");
  return h.product ? std::optional(h) : std::nullopt;
}

std::optional<Heads> rotated(const Uses& uses, TensorId heads, const char* which) {
  const Node* const rotation = uses.only_maker(heads, "rope");
  if (!rotation) return std::nullopt;
  heads = operand(*rotation, "x");
  const Node* const norm = uses.only_maker(heads, "head_norm");
  std::optional<Heads> h = projected(uses, norm ? operand(*norm, "x") : heads, which);
  if (h) {
    h->norm = norm;
    h->rotation = rotation;
  }
  return h;
}

bool agree(const Node* a, const Node* b, std::initializer_list<const char*> operands) {
  if (!a || !b) return !a && !b;
  return a->attributes == b->attributes &&
         std::ranges::all_of(operands, [&](const char* name) { return operand(*a, name) == operand(*b, name); });
}

// Attention, what writes its cache, and what they take.
struct Block {
  Node attention, append;
  std::vector<Node> split;             // what took q, k and v apart, if they came as one
  std::vector<Node> products, biases;  // of q, k and v, if they did not
  std::vector<Node> between;           // norms and rotations
  TensorId q_norm = -1, k_norm = -1, cosine = -1, sine = -1, start = -1;
  double eps = 0;
  int64_t groups = 0, per_group = 0, size = 0, rows = 0;  // heads of keys, of queries to each, values of a head
};

// A constant by itself, of the same dtype as another one and as it is in the stream.
bool is_like(const Graph& graph, TensorId matrix, TensorId first) {
  const Tensor &tensor = graph.tensor(matrix), &wanted = graph.tensor(first);
  return tensor.kind == graph::TensorKind::constant && tensor.dtype == wanted.dtype && tensor.parts.empty() &&
         tensor.quant_columns == wanted.quant_columns;
}

// The first node from number `at` on that writes one of these tensors, or what says how long they are today; the number of
// nodes if none does.
size_t first_writer(const Graph& graph, std::vector<TensorId> tensors, size_t at) {
  for (size_t i = 0, count = tensors.size(); i < count; ++i)
    for (const graph::Dim& dim : graph.tensor(tensors[i]).shape)
      if (!dim.dynamic.empty()) tensors.push_back(graph.dynamic_sizes().at(dim.dynamic).tensor);
  const auto writes = [&](const Node& node) {
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (node.op->operands[i].role != loop::Role::input &&
          std::ranges::find(tensors, node.operands[i]) != tensors.end())
        return true;
    return false;
  };
  while (at < graph.nodes().size() && !writes(graph.nodes()[at])) ++at;
  return at;
}

// Where each row's request began in this iteration: what a node in front of attention calls so that has to do with the
// positions that attention reads, be it that it reads them, too, or makes them; or a state.
TensorId start_of(const Graph& graph, const Node& attention) {
  const TensorId position = operand(attention, "position");
  const auto is_start = [&](TensorId id) {
    const Tensor& tensor = graph.tensor(id);
    return tensor.dtype == DType::i32 && tensor.shape == graph.tensor(position).shape &&
           (tensor.name == kRowStart || tensor.name.ends_with(fmt::format(".{}", kRowStart)));
  };
  for (size_t n = 0; n < graph.number_of(attention.name); ++n) {
    const Node& node = graph.nodes()[n];
    if (std::ranges::find(node.operands, position) == node.operands.end()) continue;
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (node.op->operands[i].role != loop::Role::input && is_start(node.operands[i])) return node.operands[i];
  }
  const TensorId state = graph.has(kRowStart) ? graph.find(kRowStart) : -1;
  return state >= 0 && graph.tensor(state).kind == graph::TensorKind::state && is_start(state) ? state : -1;
}

// What writes the cache that attention reads: the last one in front of it. Behind attention it is written by the next one, if at all,
// so nobody sees whether this one has written before attention or behind it. nullptr if anything else is the case.
const Node* append_in_front_of(const Graph& graph, const Uses& uses, const Node& attention) {
  const size_t at = graph.number_of(attention.name);
  const Node* append = nullptr;
  for (const char* cache : {"k_cache", "v_cache"}) {
    const std::span<const Use> users = uses.readers(operand(attention, cache));
    const auto mine = std::ranges::find(users, at, &Use::node);
    if (mine == users.begin() || mine == users.end()) return nullptr;
    const Node* const before = &graph.nodes()[std::prev(mine)->node];
    if (before->op->name != "kv_append" || (append && append != before) ||
        operand(*before, cache) != operand(attention, cache))
      return nullptr;
    append = before;
    const auto next = std::next(mine);
    if (next == users.end()) continue;
    const graph::Operand& behind = graph.nodes()[next->node].op->operands[next->operand];
    if (next->node == at || behind.role != loop::Role::inout || behind.name != cache) return nullptr;
  }
  return append;
}

std::optional<Block> block_at(const Graph& graph, const Node& attention) {
  const Uses uses(graph);
  const Node* const append = append_in_front_of(graph, uses, attention);
  if (!append) return std::nullopt;
  for (const char* shared : {"page_table", "request", "position"})
    if (operand(*append, shared) != operand(attention, shared)) return std::nullopt;

  const std::optional<Heads> q = rotated(uses, operand(attention, "q"), "q"),
                             k = rotated(uses, operand(*append, "k"), "k"),
                             v = projected(uses, operand(*append, "v"), "v");
  if (!q || !k || !v || q->split != k->split || q->split != v->split || !agree(q->product, k->product, {"x"}) ||
      !agree(q->product, v->product, {"x"}) || !agree(q->rotation, k->rotation, {"cosine", "sine", "position"}) ||
      !agree(q->norm, k->norm, {}) || !q->bias != !k->bias || !q->bias != !v->bias ||
      operand(*q->rotation, "position") != operand(attention, "position"))
    return std::nullopt;

  Block block{.attention = attention, .append = *append, .split = {}, .products = {}, .biases = {}, .between = {}};
  if (q->split) block.split.push_back(*q->split);
  for (const Heads& heads : {*q, *k, *v}) {
    for (const Node* node : {heads.norm, heads.rotation})
      if (node) block.between.push_back(*node);
    if (heads.split) continue;
    if (!is_like(graph, operand(*heads.product, "weight"), operand(*q->product, "weight"))) return std::nullopt;
    block.products.push_back(*heads.product);
    if (heads.bias) {
      if (!is_like(graph, operand(*heads.bias, "bias"), operand(*q->bias, "bias"))) return std::nullopt;
      block.biases.push_back(*heads.bias);
    }
  }
  if (q->norm) {
    block.q_norm = operand(*q->norm, "weight");
    block.k_norm = operand(*k->norm, "weight");
    block.eps = q->norm->attributes.at("eps");
  }
  block.cosine = operand(*q->rotation, "cosine");
  block.sine = operand(*q->rotation, "sine");
  block.groups = attention.sizes.at("G");
  block.per_group = attention.sizes.at("M");
  block.size = attention.sizes.at("D");
  block.rows = attention.sizes.at("T");
  block.start = start_of(graph, attention);
  for (const Heads& heads : {*q, *k})
    if (2 * heads.rotation->sizes.at("M") != block.size) return std::nullopt;
  if (q->split) {
    const auto is = [&](const char* size, int64_t wanted) { return q->split->sizes.at(size) == wanted; };
    if (!is("G", block.groups) || !is("M", block.per_group) || !is("E", block.per_group + 2) || !is("D", block.size))
      return std::nullopt;
    // All of it is read where attention is now.
    std::vector<TensorId> read = {operand(*q->split, "qkv"), block.cosine, block.sine};
    for (const TensorId more : {block.q_norm, block.k_norm, block.start})
      if (more >= 0) read.push_back(more);
    for (const char* more : {"page_table", "request", "position"}) read.push_back(operand(attention, more));
    const size_t begin = graph.number_of(q->split->name);
    if (first_writer(graph, read, begin + 1) < graph.number_of(attention.name)) return std::nullopt;
  }
  return block;
}

// ---- what takes its place -----------------------------------------------------------------------------------------------

enum class Form {
  parts,         // of a few rows: chunks of positions, put together behind that
  whole,         // of many rows: all positions, those of this iteration as they were made
  whole_cached,  // of a prompt's rows: all positions from the cache, which is written first
};

// The cache is written behind all who read it, and nobody waits for that before the next iteration. So it is done beside the
// attention of the next layer, by a worker that has none of that; whoever did it in its own layer would wait for the others
// first, and they for it then. It is one task; of several rows as many as there are workers without attention, since with
// 64 rows a second one behind that would keep all others waiting for 8 us.
struct Append {
  std::string op, name;
  std::vector<TensorId> inputs;
  NodeOptions options;
};

// Whether rows are of prompts, of which each looks at many others of the iteration: of more than 64 they are, unless every
// request has one.
bool are_of_prompts(int64_t rows, int64_t requests) {
  return rows >= kRowsOfPrompt * requests || rows > attention::kMaxRowsOfParts ||
         (rows > stream::kWideRows && rows > requests);
}

class AttentionFusion {
 public:
  AttentionFusion(Graph& graph, const Goal& goal, const Block& block) : graph_(graph), goal_(goal), b_(block) {
    form_ = b_.rows <= stream::kMaxRows           ? Form::parts
            : are_of_prompts(b_.rows, requests()) ? Form::whole_cached
                                                  : Form::whole;
  }

  // Whether there is a body, in whatever form.
  bool has_form() {
    // Of wide tables in f32 the cache's attention has a body where that of a batch has none.
    if (form_ == Form::whole && b_.rows > stream::kWideRows && !has_body()) form_ = Form::whole_cached;
    return b_.rows <= stream::kMaxWideRows && b_.size % 2 == 0 &&
           dtype_is_half(graph_.tensor(operand(b_.attention, "y")).dtype) && has_body();
  }

  // `pending`: of the layer before; then of this one. With has_form().
  void run(std::optional<Append>& pending) {
    // Attention is in bf16, whatever is multiplied before and behind it, and so are its cache and its norms.
    for (const TensorId norm : {b_.q_norm, b_.k_norm})
      if (is_rounded(norm)) graph_.set_dtype(norm, DType::bf16);
    const size_t at = b_.products.empty() ? 0 : graph_.number_of(b_.products[0].name);
    std::vector<std::string> replaced = {b_.append.name};
    for (const auto* nodes : {&b_.split, &b_.products, &b_.biases, &b_.between})
      for (const Node& node : *nodes) replaced.push_back(node.name);
    graph_.erase(replaced);
    const TensorId qkv = b_.products.empty() ? operand(b_.split[0], "qkv") : stack(at);
    size_t here = graph_.number_of(b_.attention.name);
    graph_.erase(b_.attention.name);
    const auto put_append = [&](const Append& append) {
      graph_.insert(here++, append.op, append.name, append.inputs, append.options);
    };
    const Append append = append_of(qkv);
    if (form_ == Form::whole_cached) put_append(append);
    const std::vector<TensorId> made = graph_.insert(here++, op(), b_.attention.name, inputs(qkv), options());
    if (pending) put_append(*pending);
    pending.reset();
    if (form_ != Form::whole_cached) pending = append;
    if (form_ == Form::parts)
      graph_.insert(here, "attention_merge_dealt", b_.attention.name + "_merge",
                    {made[0], made[1], operand(b_.attention, "position")},
                    {.sizes = {{"S", positions()}, {"U", dealt_rows()}, {"L", kBlockPositions}},
                     .tile = {{"t", kMergeRows}},
                     .outputs = {{"y", operand(b_.attention, "y")}}});
    graph_.remember({"fuse_attention", b_.attention.name,
                     fmt::format("{}, rope and attention with what is between, kv_append",
                                 b_.products.empty() ? "split_heads" : "linear"),
                     2 * graph_.tensor(qkv).bytes()});
  }

  // Without has_form(), since shared memory has no room for so many rows, where kernels of few rows have it: one product of q, k and
  // v all the same, so that both have the same weights.
  bool shares_weights_with_few() const { return !b_.products.empty() && has_form_of_one_row(); }
  void take_products_as_one() {
    NodeOptions options = {
        .sizes = {{"G", b_.groups}, {"E", places()}, {"M", b_.per_group}, {"D", b_.size}, {"T", b_.rows}}};
    const std::vector<Node>& last = b_.biases.empty() ? b_.products : b_.biases;
    for (size_t i = 0; i < last.size(); ++i) options.outputs[std::array{"q", "k", "v"}[i]] = operand(last[i], "y");
    size_t at = graph_.nodes().size();
    std::vector<std::string> replaced;
    for (const auto* nodes : {&b_.products, &b_.biases})
      for (const Node& node : *nodes) {
        replaced.push_back(node.name);
        at = std::min(at, graph_.number_of(node.name));
      }
    graph_.erase(replaced);
    const TensorId qkv = stack(at);
    graph_.insert(at + (b_.biases.empty() ? 1 : 2), "split_rows", b_.attention.name + "_split", {qkv}, options);
    graph_.remember({"fuse_attention", b_.attention.name, "the products of q, k and v", 0});
  }

 private:
  bool has_form_of_one_row() const {
    Block block = b_;
    Goal goal = goal_;
    block.rows = goal.rows = 1;
    return AttentionFusion(graph_, goal, block).has_form();
  }
  bool normed() const { return b_.q_norm >= 0; }
  int64_t requests() const { return graph_.tensor(operand(b_.attention, "page_table")).shape[0].size; }
  bool is_rounded(TensorId norm) const { return norm >= 0 && graph_.tensor(norm).kind == graph::TensorKind::constant; }
  // As many positions as attention looks at; tables of angles may go on, and where they do not, no row is behind them.
  int64_t positions() const { return std::min(b_.attention.sizes.at("S"), graph_.tensor(b_.cosine).shape[0].size); }
  int64_t places() const { return b_.per_group + 2; }
  // Of a kernel that shares its cache with others a sequence's bits depend on the load anyway.
  bool depends_on_load() const { return graph_.tensor(operand(b_.attention, "k_cache")).by_load; }
  // Rows that chunks are dealt to, however few there are; 0: to those that there are.
  int64_t dealt_rows() const { return depends_on_load() ? 0 : b_.rows; }
  int64_t attention_workers() const { return machine::halving_workers(goal_.gpu()); }
  // Of a prompt's tokens later ones have more keys, so a task has no more than a tile of queries: a worker that has several
  // tasks has early tokens and late ones then.
  int64_t rows_of_task() const {
    const int64_t rows = ceil_div(b_.rows * b_.groups, attention_workers());
    return form_ == Form::whole_cached && attention::takes_query_tiles(b_.rows, b_.size)
               ? std::min<int64_t>(rows, attention::kTileQueries / b_.per_group)
               : rows;
  }
  std::string op() const {
    const char* form = form_ == Form::parts ? "_chunk" : form_ == Form::whole ? "" : "_cached";
    return fmt::format("{}rope_attention{}", normed() ? "head_norm_" : "", form);
  }

  std::vector<TensorId> inputs(TensorId qkv) const {
    std::vector<TensorId> all = {qkv};
    if (normed()) all.push_back(b_.q_norm);
    if (normed() && form_ != Form::whole_cached) all.push_back(b_.k_norm);
    for (const TensorId more : {b_.cosine, b_.sine}) all.push_back(more);
    for (const char* more : {"k_cache", "v_cache", "page_table", "request", "position"})
      all.push_back(operand(b_.attention, more));
    if (form_ != Form::whole_cached) all.push_back(b_.start);
    return all;
  }

  NodeOptions options() const {
    NodeOptions options = {.sizes = {{"E", places()}, {"M", b_.per_group}, {"S", positions()}},
                           .attributes = {{"scale", b_.attention.attributes.at("scale")}}};
    if (normed()) options.attributes["eps"] = b_.eps;
    if (form_ == Form::whole_cached && requests() > 1 && depends_on_load()) options.attributes["alone"] = 1;
    if (form_ == Form::whole) {
      // A task's rows are apart, so that of few rows each is another worker's.
      options.sizes["F"] = ceil_div(b_.rows, std::min<int64_t>(rows_of_task(), attention::kParts));
      if (requests() > 1 && depends_on_load()) options.attributes["by_load"] = 1;
      options.tile = {{"g", 1}, {"r", ceil_div(options.sizes["F"] * b_.groups, attention_workers())}};
      options.outputs = {{"y", operand(b_.attention, "y")}};
      return options;
    }
    if (form_ != Form::parts) {
      options.tile = {{"g", 1}, {"t", rows_of_task()}};
      options.outputs = {{"y", operand(b_.attention, "y")}};
      return options;
    }
    // Chunks times groups of heads, or fours of chunks of many rows, come to about as many tasks as the GPU has workers.
    const int64_t together = attention::is_row_alone(b_.rows, b_.size) ? 1 : int64_t{attention::kParts};
    options.sizes["V"] =
        std::clamp(together * attention_workers() / b_.groups, b_.rows, b_.rows * int64_t{attention::kMaxChunks});
    options.sizes["U"] = dealt_rows();
    options.sizes["L"] = kBlockPositions;
    // Of as many rows as there may be each has the fewest chunks.
    const int64_t fewest = std::min(options.sizes["V"] / b_.rows, int64_t{attention::kMaxChunks});
    options.sizes["C"] = ceil_div(positions(), fewest * kBlockPositions) * kBlockPositions;
    options.tile = {{"s", together}};
    return options;
  }

  bool has_body() const {
    if (form_ != Form::whole_cached && b_.start < 0) return false;
    std::vector<Tensor> tensors = {b_.products.empty() ? graph_.tensor(operand(b_.split[0], "qkv"))
                                                       : like(DType::bf16, {b_.rows, b_.groups * places() * b_.size})};
    const std::vector<TensorId> ids = inputs(-1);  // the first stands for qkv
    for (size_t i = 1; i < ids.size(); ++i) {
      tensors.push_back(graph_.tensor(ids[i]));
      if (ids[i] == b_.start || ids[i] == operand(b_.attention, "request") ||
          ids[i] == operand(b_.attention, "position"))
        tensors.back().shape = {b_.rows};
      if ((ids[i] == b_.q_norm || ids[i] == b_.k_norm) && is_rounded(ids[i])) tensors.back().dtype = DType::bf16;
    }
    return goal_.has_body(graph_.registry(), op(), tensors, options());
  }

  // The product, and the bias, of all three, group by group.
  TensorId stack(size_t at) {
    const auto stacked = [&](const std::vector<Node>& nodes, const char* which, bool is_matrix) {
      std::vector<std::string> names, parts;
      for (const Node& node : nodes) {
        names.push_back(node.name);
        parts.push_back(graph_.tensor(operand(node, which)).name);
      }
      const Tensor first = graph_.tensor(operand(nodes[0], which));
      std::vector<graph::Dim> shape = {b_.groups * places() * b_.size};
      if (is_matrix) shape.push_back(first.shape[1]);
      const std::string name = joined_name(parts);
      return std::pair{joined_name(names), graph_.has(name)
                                               ? graph_.find(name)
                                               : graph_.stacked(name, first.dtype, shape, parts, b_.groups)};
    };
    const auto [name, matrix] = stacked(b_.products, "weight", true);
    const int64_t quant_columns = graph_.tensor(operand(b_.products[0], "weight")).quant_columns;
    if (quant_columns > 0) graph_.quantize(matrix, quant_columns);
    const NodeOptions narrow = {.dtypes = {{"y", DType::bf16}}};
    TensorId qkv = graph_.insert(at, "linear", name, {operand(b_.products[0], "x"), matrix}, narrow)[0];
    if (b_.biases.empty()) return qkv;
    const auto [bias_name, bias] = stacked(b_.biases, "bias", false);
    return graph_.insert(at + 1, "row_bias", bias_name, {qkv, bias}, narrow)[0];
  }

  Append append_of(TensorId qkv) const {
    std::vector<TensorId> all = {qkv};
    if (normed()) all.push_back(b_.k_norm);
    for (const TensorId more : {b_.cosine, b_.sine}) all.push_back(more);
    for (const char* more : {"page_table", "request", "position", "k_cache", "v_cache"})
      all.push_back(operand(b_.append, more));
    const int64_t others = std::max<int64_t>(goal_.gpu().multiprocessors - attention_workers(), 1);
    const int64_t tasks = form_ == Form::whole_cached ? b_.groups : b_.rows > 1 ? std::min(others, kMaxAppendTasks) : 1;
    // Attention of prompts waits for it, so all workers write; elsewhere few do, beside attention.
    const int64_t rows = form_ == Form::whole_cached ? ceil_div(b_.rows * b_.groups, attention_workers()) : b_.rows;
    NodeOptions options = {.sizes = {{"E", places()}, {"M", b_.per_group}, {"S", positions()}},
                           .tile = {{"g", ceil_div(b_.groups, tasks)}, {"t", rows}}};
    if (normed()) options.attributes["eps"] = b_.eps;
    return {normed() ? "head_norm_rope_kv_append" : "rope_kv_append", b_.append.name, all, options};
  }

  Graph& graph_;
  const Goal& goal_;
  const Block& b_;
  Form form_;
};

}  // namespace

int fuse_attention(Graph& graph, const Goal& goal) {
  if (!goal.is_gpu()) return 0;
  std::vector<std::string> names;
  for (const Node& node : graph.nodes())
    if (node.op->name == "attention") names.push_back(node.name);
  int times = 0;
  std::optional<Append> pending;
  std::string last;
  // As late as `latest`, but in front of who writes anew what it reads.
  const auto put_pending = [&](size_t latest) {
    const size_t at = std::min(latest, first_writer(graph, pending->inputs, graph.number_of(last) + 1));
    graph.insert(at, pending->op, pending->name, pending->inputs, pending->options);
    pending.reset();
  };
  for (const std::string& name : names) {
    const size_t at = graph.number_of(name);
    if (pending && first_writer(graph, pending->inputs, graph.number_of(last) + 1) < at) put_pending(at);
    const std::optional<Block> block = block_at(graph, graph.nodes()[graph.number_of(name)]);
    if (!block) continue;
    AttentionFusion fusion(graph, goal, *block);
    if (fusion.has_form()) {
      fusion.run(pending);
      last = name;
    } else if (fusion.shares_weights_with_few()) {
      fusion.take_products_as_one();
    } else {
      continue;
    }
    ++times;
  }
  if (pending) {  // of the last layer: behind all that weights are streamed for, in front of what ends the iteration
    size_t at = graph.number_of(last);
    const size_t end = graph.gate_node() ? static_cast<size_t>(*graph.gate_node()) : graph.nodes().size();
    while (at < end && !graph.nodes()[at].op->reference) ++at;
    put_pending(at);
  }
  return times;
}

}  // namespace megalith::optimize
