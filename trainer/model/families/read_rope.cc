#include "trainer/model/families/read_rope.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

namespace muster {
namespace {

using Json = nlohmann::json;

// One of the objects that describe a scaling.
class ScalingReader {
 public:
  ScalingReader(const Json& rope, const std::string& origin, ConfigReader& outer,
                const Family& family, const ModelConfig& config)
      : rope_(rope), reader_(rope, origin), outer_(outer), family_(family), config_(config) {}

  // Nothing: plain rotary embeddings.
  std::optional<RopeScaling> Read() {
    const std::map<std::string, RopeKind>& kinds = Kinds();
    for (const char* key : {"rope_type", "type"}) {
      const Json* word = reader_.Find(key);
      if (word == nullptr) continue;
      if (*word == "default") return std::nullopt;
      const auto kind = word->is_string() ? kinds.find(word->get<std::string>()) : kinds.end();
      if (kind != kinds.end()) return ReadKind(kind->second);
      reader_.Refuse("the kind " + word->dump() + " is not supported" +
                     (family_.longrope_positions > 0
                          ? std::string(" in a ") + family_.model_type + "; it knows default and "
                          : "; this version knows default, linear, dynamic, yarn, llama3 and ") +
                     "longrope");
      return std::nullopt;
    }
    if (rope_.contains("factor")) reader_.Refuse("a factor without rope_type is not supported");
    return std::nullopt;
  }
  ConfigReader& reader() { return reader_; }

 private:
  // A Phi-3's files have called LongRoPE "su" and "yarn".
  const std::map<std::string, RopeKind>& Kinds() const {
    static const std::map<std::string, RopeKind> kAll = {{"llama3", RopeKind::kLlama3},
                                                         {"linear", RopeKind::kLinear},
                                                         {"dynamic", RopeKind::kDynamic},
                                                         {"yarn", RopeKind::kYarn},
                                                         {"longrope", RopeKind::kLongRope}};
    static const std::map<std::string, RopeKind> kLong = {{"longrope", RopeKind::kLongRope},
                                                          {"su", RopeKind::kLongRope},
                                                          {"yarn", RopeKind::kLongRope}};
    return family_.longrope_positions > 0 ? kLong : kAll;
  }

  RopeScaling ReadKind(RopeKind kind) {
    scaling_.kind = kind;
    if (kind != RopeKind::kLinear && kind != RopeKind::kDynamic) ReadOriginal();
    switch (kind) {
      case RopeKind::kLlama3: ReadLlama3(); break;
      case RopeKind::kLinear: Require("factor", &scaling_.factor); break;
      case RopeKind::kDynamic: ReadDynamic(); break;
      case RopeKind::kYarn: ReadYarn(); break;
      case RopeKind::kLongRope: ReadLongRope(); break;
    }
    if (scaling_.factor < 1) reader_.Fail("factor", "is below 1");
    return scaling_;
  }

  void Require(const char* key, double* value) {
    if (reader_.Find(key) == nullptr) return reader_.Fail(key, "is missing");
    reader_.ReadPositive(key, value);
  }

  // What stands beside the object counts more than what it says itself, as in transformers.
  void ReadOriginal() {
    static constexpr char kKey[] = "original_max_position_embeddings";
    std::int64_t& original = scaling_.original_max_position_embeddings;
    original = config_.max_position_embeddings;
    if (family_.longrope_positions > 0) {
      original = family_.longrope_positions;
    } else {
      reader_.ReadPositions(kKey, &original);
    }
    outer_.ReadPositions(kKey, &original);
  }

  // All numbers decide about every weight: none of them has a default.
  void ReadLlama3() {
    Require("factor", &scaling_.factor);
    Require("low_freq_factor", &scaling_.low_freq_factor);
    Require("high_freq_factor", &scaling_.high_freq_factor);
    if (scaling_.low_freq_factor >= scaling_.high_freq_factor)
      reader_.Fail("low_freq_factor", "is not below high_freq_factor");
  }

  void ReadDynamic() {
    Require("factor", &scaling_.factor);
    if (config_.rotary_dim() <= 2)
      reader_.Fail("rope_type", "dynamic needs heads of which more than 2 elements rotate");
  }

  // Source of the attention factor: the YaRN paper, and DeepSeek's two numbers in its place.
  void ReadYarn() {
    Require("factor", &scaling_.factor);
    reader_.ReadPositive("beta_fast", &scaling_.beta_fast);
    reader_.ReadPositive("beta_slow", &scaling_.beta_slow);
    if (reader_.IsNull("truncate")) scaling_.truncate = false;  // as to transformers
    reader_.ReadBool("truncate", &scaling_.truncate);
    if (config_.rotary_dim() % 2 != 0)
      reader_.Fail("rope_type", "yarn needs heads of which an even number of elements rotates");
    double scale = 0, scale_of_all = 0;
    ReadZeroOrMore("mscale", &scale);
    ReadZeroOrMore("mscale_all_dim", &scale_of_all);
    const auto grown = [this](double by) {
      return scaling_.factor <= 1 ? 1 : 0.1 * by * std::log(scaling_.factor) + 1;
    };
    const bool both = scale > 0 && scale_of_all > 0;
    scaling_.attention_factor = both ? grown(scale) / grown(scale_of_all) : grown(1);
    reader_.ReadPositive("attention_factor", &scaling_.attention_factor);
  }

  void ReadLongRope() {
    const auto original = static_cast<double>(scaling_.original_max_position_embeddings);
    scaling_.factor = static_cast<double>(config_.max_position_embeddings) / original;
    reader_.ReadPositive("factor", &scaling_.factor);
    scaling_.attention_factor =
        scaling_.factor <= 1 ? 1 : std::sqrt(1 + std::log(scaling_.factor) / std::log(original));
    reader_.ReadPositive("attention_factor", &scaling_.attention_factor);
    scaling_.factor = std::max(scaling_.factor, 1.0);
    ReadFactors("short_factor", &scaling_.short_factors);
    ReadFactors("long_factor", &scaling_.long_factors);
  }

  void ReadZeroOrMore(const char* key, double* value) {
    const Json* found = reader_.Find(key);
    if (found != nullptr && *found != 0) reader_.ReadPositive(key, value);
  }

  // A positive number for each pair of elements that rotates.
  void ReadFactors(const char* key, std::vector<double>* factors) {
    const Json* list = reader_.Find(key);
    if (list == nullptr) return reader_.Fail(key, "is missing");
    const auto count = static_cast<std::size_t>(config_.rotary_half());
    if (!list->is_array() || list->size() != count)
      return reader_.Fail(key, "is no list of " + std::to_string(count) +
                                   " numbers, one for each pair of elements that rotates");
    for (const Json& each : *list) {
      if (!each.is_number() || !(each.get<double>() > 0))
        return reader_.Fail(key, "holds " + each.dump() + "; each is greater than 0");
      factors->push_back(each.get<double>());
    }
  }

  const Json& rope_;
  ConfigReader reader_;
  ConfigReader& outer_;
  const Family& family_;
  const ModelConfig& config_;
  RopeScaling scaling_;
};

// To transformers, the factor is that of the family's rotary embeddings or of none.
void ReadPartial(ConfigReader& reader, const Family& family, ModelConfig* config) {
  static constexpr char kKey[] = "partial_rotary_factor";
  double partial = config->partial_rotary_factor;
  reader.ReadPositive(kKey, &partial);
  if (!reader.status().ok()) return;
  if (!family.partial_rotary && partial != 1)
    return reader.Refuse(kKey + std::string(" other than 1 is not supported in a ") +
                         family.model_type);
  config->partial_rotary_factor = partial;
  if (partial > 1 || config->rotary_dim() < 1 || 2 * config->rotary_half() > config->head_dim)
    reader.Fail(kKey, "is " + std::to_string(partial) + ", which makes " +
                          std::to_string(config->rotary_dim()) + " of a head's " +
                          std::to_string(config->head_dim) + " elements rotate");
}

}  // namespace

Status ReadRope(ConfigReader& reader, const std::string& origin, const Family& family,
                ModelConfig* config) {
  if (!reader.status().ok()) return OkStatus();
  reader.ReadPositive("rope_theta", &config->rope_theta);
  ReadPartial(reader, family, config);
  bool given = false;  // then a scaling that the family has otherwise does not count
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = reader.Find(key);
    if (rope == nullptr || (rope->is_object() && rope->empty())) continue;
    if (!std::exchange(given, true)) config->rope_scaling.reset();
    if (!rope->is_object()) {
      reader.Fail(key, "is no object");
      continue;
    }
    MUSTER_RETURN_IF_ERROR(ReadRopeObject(*rope, origin + ": " + key, reader, family, config));
  }
  return OkStatus();
}

Status ReadRopeObject(const Json& rope, const std::string& origin, ConfigReader& outer,
                      const Family& family, ModelConfig* config) {
  ScalingReader scaling(rope, origin, outer, family, *config);
  scaling.reader().ReadPositive("rope_theta", &config->rope_theta);
  ReadPartial(scaling.reader(), family, config);
  if (const auto read = scaling.Read()) config->rope_scaling = read;
  return scaling.reader().status();
}

}  // namespace muster
