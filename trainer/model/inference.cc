#include "trainer/model/inference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "trainer/formats/safetensors.h"
#include "trainer/model/adapter_merge.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"
#include "trainer/model/linear_layer.h"
#include "trainer/model/products.h"
#include "trainer/model/stored_model.h"

namespace muster {
namespace {

// A model's files, with an adapter or without.
class WeightReader {
 public:
  WeightReader(const SafetensorsModel& model, const AdapterMerge* adapter)
      : model_(model), adapter_(adapter) {}

  Result<at::Tensor> Read(const UnitTensor& spec, at::ScalarType type) const {
    at::Tensor values = at::empty(spec.shape, type);
    const std::int64_t count = values.numel();
    const bool as_stored = adapter_ == nullptr && model_.LiesInOrder(spec.name) &&
                           model_.Find(spec.name)->type == TensorType::kBF16;
    if (type == at::kBFloat16 && as_stored) {
      MUSTER_RETURN_IF_ERROR(model_.ReadStored(spec.name, 0, count, values.mutable_data_ptr()));
      return values;
    }
    if (type == at::kFloat) {
      MUSTER_RETURN_IF_ERROR(ReadFloats(spec.name, 0, count, values.mutable_data_ptr<float>()));
      return values;
    }
    // In pieces: the whole tensor as fp32 could be larger than all that is left of memory.
    constexpr std::int64_t kPiece = 1 << 20;
    at::Tensor piece = at::empty({std::min(kPiece, count)}, at::kFloat);
    for (std::int64_t begin = 0; begin < count; begin += kPiece) {
      const std::int64_t length = std::min(kPiece, count - begin);
      MUSTER_RETURN_IF_ERROR(ReadFloats(spec.name, begin, length, piece.mutable_data_ptr<float>()));
      values.view({-1}).narrow(0, begin, length).copy_(piece.narrow(0, 0, length));
    }
    return values;
  }

 private:
  Status ReadFloats(const std::string& name, std::int64_t begin, std::int64_t count,
                    float* to) const {
    MUSTER_RETURN_IF_ERROR(model_.ReadFloats(name, begin, count, to));
    if (adapter_ != nullptr) adapter_->Apply(name, begin, count, to);
    return OkStatus();
  }

  const SafetensorsModel& model_;
  const AdapterMerge* const adapter_;  // null: none
};

// Puts `tensors`, those of a unit in its order, into the blocks that have them.
void JoinBlocks(const UnitSpec& unit, const std::vector<at::Tensor>& tensors,
                std::vector<BlockWeights>* blocks) {
  for (std::size_t t = 0; t < tensors.size();) {
    const UnitTensor& first = unit.tensors[t];
    std::vector<at::Tensor> parts = {tensors[t]};
    for (++t; t < tensors.size() && unit.tensors[t].joined; ++t) parts.push_back(tensors[t]);
    const auto block = static_cast<std::size_t>(unit.blocks.first + first.block);
    (*blocks)[block].Of(first.role) = parts.size() > 1 ? at::cat(parts) : parts.front();
  }
}

}  // namespace

InferenceModel::InferenceModel(ModelConfig config) : config_(std::move(config)), rotary_(config_) {}

Result<InferenceModel> InferenceModel::Load(const std::string& dir, at::ScalarType type,
                                            const std::string& adapter) {
  MUSTER_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(dir));
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel file, OpenModelWeights(config, dir));
  std::optional<AdapterMerge> merge;
  if (!adapter.empty()) {
    MUSTER_ASSIGN_OR_RETURN(AdapterMerge opened, AdapterMerge::Open(adapter, config));
    merge = std::move(opened);
  }
  const WeightReader reader(file, merge ? &*merge : nullptr);
  const at::NoGradGuard no_grad;
  InferenceModel model(std::move(config));
  const std::vector<UnitSpec> units = ModelUnits(model.config_);
  model.blocks_.resize(static_cast<std::size_t>(model.config_.num_hidden_layers));
  for (std::size_t u = 0; u < units.size(); ++u) {
    std::vector<at::Tensor> tensors;
    for (const UnitTensor& spec : units[u].tensors) {
      MUSTER_ASSIGN_OR_RETURN(at::Tensor tensor, reader.Read(spec, type));
      tensors.push_back(std::move(tensor));
    }
    if (u == 0) {
      model.embedding_ = tensors[0];
    } else if (u + 1 < units.size()) {
      JoinBlocks(units[u], tensors, &model.blocks_);
    } else {
      model.final_norm_ = tensors[0];
      model.head_ = tensors.size() > 1 ? tensors[1] : model.embedding_;
    }
  }
  return model;
}

at::Tensor InferenceModel::HiddenOf(const at::Tensor& ids, std::span<KvCache* const> caches,
                                    const std::vector<std::int64_t>& lengths) {
  const at::NoGradGuard no_grad;
  at::Tensor hidden = EmbedTokens(config_, embedding_, ids);
  std::vector<BlockCache*> of_block(caches.size());
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    std::transform(caches.begin(), caches.end(), of_block.begin(),
                   [b](KvCache* cache) { return &cache->block(b); });
    const auto layer = static_cast<std::int64_t>(b);
    hidden =
        BlockForward(config_, layer, rotary_.OfLayer(layer), hidden, blocks_[b], of_block, lengths);
  }
  return RmsNorm(hidden, final_norm_, config_.rms_norm_eps, config_.zero_centered_norms);
}

at::Tensor InferenceModel::Hidden(const at::Tensor& ids, const std::vector<std::int64_t>& lengths) {
  return HiddenOf(ids, {}, lengths);
}

at::Tensor InferenceModel::NextLogits(const std::vector<std::int64_t>& ids,
                                      std::span<KvCache* const> caches) {
  const at::Tensor hidden = HiddenOf(at::tensor(ids, at::kLong).unsqueeze(1), caches, {});
  const at::NoGradGuard no_grad;
  return LogitsOf(LinearLayer(hidden.select(1, 0), head_));
}

at::Tensor InferenceModel::LastLogits(const at::Tensor& ids, KvCache& cache) {
  const at::NoGradGuard no_grad;
  // Attention of a long prompt at once would need memory in its square.
  constexpr std::int64_t kPiece = 512;
  KvCache* const all_rows = &cache;
  const std::int64_t whole = cache.length() + ids.size(1);
  at::Tensor hidden;
  for (std::int64_t begin = 0; begin < ids.size(1); begin += kPiece) {
    const std::int64_t length = std::min(kPiece, ids.size(1) - begin);
    hidden = HiddenOf(ids.narrow(1, begin, length), {&all_rows, 1}, {whole});
  }
  return LogitsOf(LinearLayer(hidden.select(1, hidden.size(1) - 1), head_));
}

at::Tensor InferenceModel::Logits(const at::Tensor& ids) {
  return LogitsOf(Linear(Hidden(ids), head_));
}

at::Tensor InferenceModel::LogitsOf(at::Tensor products) const {
  return CapLogits(products.div_(config_.logits_scaling).to(at::kFloat), config_.logit_cap);
}

}  // namespace muster
