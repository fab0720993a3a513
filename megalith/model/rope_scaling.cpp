#include "megalith/model/rope_scaling.h"

#include <cmath>
#include <string>

#include "megalith/base/error.h"

namespace megalith {

namespace {

// Far beyond what any model has.
constexpr double kLeastFactor = 1e-6, kMaxFactor = 1e6;
constexpr double kLeastTheta = 1, kMaxTheta = 1e15;
constexpr int64_t kMaxPositions = int64_t{1} << 40;

void refuse_partial(const JsonValue& object) {
  if (auto partial = object.find("partial_rotary_factor"); partial && partial->number(0, 1) != 1)
    partial->fail(fmt::format("is {}: rotating a part of each head is not supported, want 1", partial->excerpt()));
}

struct Reader {
  const JsonValue& text;
  const Architecture& architecture;
  int64_t max_position;

  // A key of the whole configuration counts before that of the object, and both before the context of the checkpoint.
  int64_t original_max_position(const JsonValue& rope) const {
    constexpr const char* kKey = "original_max_position_embeddings";
    if (auto value = text.find(kKey)) return value->integer(1, kMaxPositions);
    if (auto value = rope.find(kKey)) return value->integer(1, kMaxPositions);
    return max_position;
  }

  RopeScaling read_llama3(const JsonValue& rope) const {
    RopeScaling scaling{.kind = RopeKind::llama3,
                        .factor = rope.at("factor").number(kLeastFactor, kMaxFactor),
                        .original_max_position = original_max_position(rope),
                        .low_freq_factor = rope.at("low_freq_factor").number(kLeastFactor, kMaxFactor),
                        .high_freq_factor = rope.at("high_freq_factor").number(kLeastFactor, kMaxFactor)};
    if (scaling.low_freq_factor >= scaling.high_freq_factor)
      rope.fail(fmt::format("has low_freq_factor {} and high_freq_factor {}, want the low one smaller",
                            scaling.low_freq_factor, scaling.high_freq_factor));
    return scaling;
  }

  RopeScaling read_yarn(const JsonValue& rope) const {
    RopeScaling scaling{.kind = RopeKind::yarn, .original_max_position = original_max_position(rope)};
    // Without a factor it is the one that the two contexts have between them.
    const auto factor = rope.find("factor");
    scaling.factor = factor ? factor->number(kLeastFactor, kMaxFactor)
                            : static_cast<double>(max_position) / static_cast<double>(scaling.original_max_position);
    auto turns = [&](const char* key, double usual) {
      const auto value = rope.find(key);
      const double number = value ? value->number(0, kMaxFactor) : 0;
      return number == 0 ? usual : number;
    };
    scaling.beta_fast = turns("beta_fast", 32);
    scaling.beta_slow = turns("beta_slow", 1);
    if (auto truncate = rope.find("truncate")) scaling.truncate = truncate->boolean();
    scaling.attention_factor = attention_factor(rope, scaling.factor);
    return scaling;
  }

  static double attention_factor(const JsonValue& rope, double factor) {
    if (auto value = rope.find("attention_factor")) return value->number(0, kMaxFactor);
    auto scale_of = [&](double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; };
    const auto scale = rope.find("mscale"), of_all_dims = rope.find("mscale_all_dim");
    const double above = scale ? scale->number(0, kMaxFactor) : 0;
    const double below = of_all_dims ? of_all_dims->number(0, kMaxFactor) : 0;
    return above != 0 && below != 0 ? scale_of(above) / scale_of(below) : scale_of(1);
  }

  std::optional<RopeScaling> read_scaling(const JsonValue& rope) const {
    rope.each_member([](const std::string&, const JsonValue& member) {
      if (member.is_object()) member.fail("gives one kind of layer its own RoPE, which is not supported");
    });
    refuse_partial(rope);
    auto type = rope.find("rope_type");
    if (!type) type = rope.find("type");  // the spelling before transformers 4.43
    const std::string name = type ? type->string() : "default";
    if (name == "default" || (name == "mrope" && architecture.allows_mrope)) return std::nullopt;
    RopeScaling scaling;
    if (name == "llama3")
      scaling = read_llama3(rope);
    else if (name == "yarn")
      scaling = read_yarn(rope);
    else if (name == "linear")
      scaling = {.kind = RopeKind::linear, .factor = rope.at("factor").number(kLeastFactor, kMaxFactor)};
    else if (name == "dynamic")
      scaling = {.kind = RopeKind::dynamic, .factor = rope.at("factor").number(1, kMaxFactor)};
    else
      type->fail(fmt::format("is {}, supported are \"default\", \"linear\", \"dynamic\", \"yarn\" and \"llama3\"",
                             type->excerpt()));
    if (scaling.original_max_position == 0) scaling.original_max_position = max_position;
    return scaling.factor == 1 && scaling.attention_factor == 1 ? std::nullopt : std::optional(scaling);
  }
};

std::optional<double> read_theta(const JsonValue& object) {
  const auto theta = object.find("rope_theta");
  return theta ? std::optional(theta->number(kLeastTheta, kMaxTheta)) : std::nullopt;
}

// What is written as {} says nothing.
std::optional<JsonValue> find_object(const JsonValue& text, const char* key) {
  auto value = text.find(key);
  return value && (!value->is_object() || value->size() > 0) ? value : std::nullopt;
}

}  // namespace

RopeSettings read_rope(const JsonValue& text, const Architecture& architecture, int64_t max_position_embeddings) {
  refuse_partial(text);
  const Reader reader{text, architecture, max_position_embeddings};
  const auto classic = find_object(text, "rope_scaling"), modern = find_object(text, "rope_parameters");
  RopeSettings settings;
  if (classic) settings.scaling = reader.read_scaling(*classic);
  if (modern) {
    const std::optional<RopeScaling> scaling = reader.read_scaling(*modern);
    if (classic && scaling != settings.scaling)
      modern->fail("stands beside \"rope_scaling\", which says something else: remove one of them");
    settings.scaling = scaling;
  }

  std::optional<double> theta = read_theta(text);
  for (const auto& rope : {classic, modern}) {
    const std::optional<double> own = rope ? read_theta(*rope) : std::nullopt;
    if (own && theta && *own != *theta)
      rope->at("rope_theta")
          .fail(fmt::format("is {}, but another \"rope_theta\" is {}: remove one of them", *own, *theta));
    if (own) theta = own;
  }
  settings.theta = theta.value_or(architecture.rope_theta);
  if (settings.scaling && settings.scaling->kind == RopeKind::yarn && settings.theta == 1)
    text.fail("has a \"rope_theta\" of 1, want more for \"yarn\"");
  return settings;
}

}  // namespace megalith
