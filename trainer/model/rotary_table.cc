#include "trainer/model/rotary_table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "trainer/ops/documents.h"
#include "trainer/ops/to_device.h"

namespace muster {
namespace {

// Every length of a dynamic scaling has a table; most are wanted once.
constexpr std::size_t kMostTables = 16;

// All of these compute in fp32 and in the order of transformers, so that the angles are its angles.
at::Tensor Exponents(std::int64_t dim) { return at::arange(0, dim, 2, at::kFloat) / dim; }

// A number over a tensor is times its reciprocal in Python, but a division in C++.
at::Tensor Llama3(const at::Tensor& frequencies, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double longest = original / scaling.low_freq_factor;
  const double shortest = original / scaling.high_freq_factor;
  const at::Tensor lengths = at::reciprocal(frequencies) * (2 * M_PI);
  const at::Tensor slowed = at::where(lengths > longest, frequencies / scaling.factor, frequencies);
  const at::Tensor share = (at::reciprocal(lengths) * original - scaling.low_freq_factor) /
                           (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor blended = (1 - share) * slowed / scaling.factor + share * slowed;
  const at::Tensor between = (lengths >= shortest).logical_and(lengths <= longest);
  return at::where(between, blended, slowed);
}

// The frequencies in a document of `length` positions; 0: one that is not longer than the model's.
// transformers computes the base of a long one in fp32.
at::Tensor Dynamic(const ModelConfig& config, std::int64_t length) {
  const std::int64_t dim = config.rotary_dim(), most = config.max_position_embeddings;
  const double factor = config.rope_scaling->factor;
  const double power = static_cast<double>(dim) / static_cast<double>(dim - 2);
  if (length == 0) {
    const double stretch =
        factor * static_cast<double>(most) / static_cast<double>(most) - (factor - 1);
    return at::reciprocal(at::pow(config.rope_theta * std::pow(stretch, power), Exponents(dim)));
  }
  const at::Tensor stretch = at::scalar_tensor(length, at::kLong) * factor / most - (factor - 1);
  return at::reciprocal(at::pow(stretch.pow(power) * config.rope_theta, Exponents(dim)));
}

// The element that turns so often in the original context.
double ElementOf(const ModelConfig& config, double turns) {
  const auto original = static_cast<double>(config.rope_scaling->original_max_position_embeddings);
  return static_cast<double>(config.rotary_dim()) * std::log(original / (turns * 2 * M_PI)) /
         (2 * std::log(config.rope_theta));
}

at::Tensor Yarn(const ModelConfig& config) {
  const RopeScaling& scaling = *config.rope_scaling;
  const std::int64_t dim = config.rotary_dim();
  double low = ElementOf(config, scaling.beta_fast), high = ElementOf(config, scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor slowed_part =
      ((at::arange(dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor kept = 1 - slowed_part;
  const at::Tensor waves = at::pow(config.rope_theta, Exponents(dim));
  return at::reciprocal(waves * scaling.factor) * (1 - kept) + at::reciprocal(waves) * kept;
}

at::Tensor LongRope(const ModelConfig& config, bool is_long) {
  const RopeScaling& scaling = *config.rope_scaling;
  const at::Tensor factors =
      at::tensor(is_long ? scaling.long_factors : scaling.short_factors, at::kFloat);
  return at::reciprocal(factors * at::pow(config.rope_theta, Exponents(config.rotary_dim())));
}

}  // namespace

RotaryTable::RotaryTable(const ModelConfig& config, const RotaryTypes& types)
    : config_(config), types_(types) {}

bool RotaryTable::depends_on_length() const {
  return config_.rope_scaling && (config_.rope_scaling->kind == RopeKind::kDynamic ||
                                  config_.rope_scaling->kind == RopeKind::kLongRope);
}

std::int64_t RotaryTable::ClassOf(std::int64_t length) const {
  if (!depends_on_length()) return 0;
  const RopeScaling& scaling = *config_.rope_scaling;
  if (scaling.kind == RopeKind::kLongRope)
    return length > scaling.original_max_position_embeddings ? 1 : 0;
  return length > config_.max_position_embeddings ? length : 0;
}

at::Tensor RotaryTable::Frequencies(std::int64_t document_class) const {
  const auto plain = [this] {
    return at::reciprocal(at::pow(config_.rope_theta, Exponents(config_.rotary_dim())));
  };
  if (!config_.rope_scaling) return plain();
  switch (config_.rope_scaling->kind) {
    case RopeKind::kLlama3: return Llama3(plain(), *config_.rope_scaling);
    case RopeKind::kLinear: return plain() / config_.rope_scaling->factor;
    case RopeKind::kDynamic: return Dynamic(config_, document_class);
    case RopeKind::kYarn: return Yarn(config_);
    case RopeKind::kLongRope: return LongRope(config_, document_class != 0);
  }
  return plain();
}

const RotaryTable::Grown& RotaryTable::OfClass(std::int64_t document_class,
                                               std::int64_t positions) {
  if (const auto found = tables_.find(document_class);
      found != tables_.end() && found->second.length >= positions)
    return found->second;
  if (tables_.size() >= kMostTables) tables_.clear();
  Grown& table = tables_[document_class];
  table.length = std::max(positions, 2 * table.length);
  const at::Tensor angles =
      at::outer(at::arange(table.length, at::kFloat), Frequencies(document_class));
  const auto stored = [&](at::Tensor values) {
    if (config_.rope_scaling) values = values * config_.rope_scaling->attention_factor;
    return ToDevice(values.to(types_.buffer).to(types_.stored), types_.device);
  };
  table.cos = stored(angles.cos());
  table.sin = stored(angles.sin());
  return table;
}

RotaryAngles RotaryTable::Of(std::int64_t length, std::int64_t begin, std::int64_t count) {
  const Grown& table = OfClass(ClassOf(length), begin + count);
  return {.cos = table.cos.narrow(0, begin, count), .sin = table.sin.narrow(0, begin, count)};
}

RotaryAngles RotaryTable::OfBatch(const BatchShape& shape,
                                  const std::vector<std::int64_t>& row_lengths) {
  if (!depends_on_length()) return Of(shape.length, 0, shape.length);
  const std::vector<std::int64_t> bounds = DocumentBounds(shape);
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 1; i < bounds.size(); ++i) lengths.push_back(bounds[i] - bounds[i - 1]);
  if (shape.document_begins.empty() && !row_lengths.empty()) lengths = row_lengths;
  const bool alike = std::all_of(lengths.begin(), lengths.end(), [&](std::int64_t length) {
    return ClassOf(length) == ClassOf(lengths.front());
  });
  if (alike) return Of(lengths.front(), 0, shape.length);
  std::vector<at::Tensor> cosines, sines;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const RotaryAngles document = Of(lengths[i], 0, bounds[i + 1] - bounds[i]);
    cosines.push_back(document.cos);
    sines.push_back(document.sin);
  }
  return {.cos = at::cat(cosines), .sin = at::cat(sines), .by_token = true};
}

RotaryTables::RotaryTables(const ModelConfig& config, const RotaryTypes& types)
    : config_(config), all_(config, types) {
  if (!config.attention.window_rope_theta) return;
  ModelConfig windowed = config;
  windowed.rope_theta = *config.attention.window_rope_theta;
  windowed.rope_scaling.reset();
  windowed_.emplace(windowed, types);
}

LayerAngles RotaryTables::OfBatch(const BatchShape& shape,
                                  const std::vector<std::int64_t>& row_lengths) {
  LayerAngles angles{.all = all_.OfBatch(shape, row_lengths)};
  if (windowed_) angles.windowed = windowed_->OfBatch(shape, row_lengths);
  return angles;
}

RotaryTable* RotaryTables::OfLayer(std::int64_t layer) {
  if (!config_.Rotates(layer)) return nullptr;
  return windowed_ && config_.WindowOf(layer) ? &*windowed_ : &all_;
}

}  // namespace muster
