#include "trainer/model/stored_model.h"

#include <algorithm>
#include <utility>

#include "trainer/model/families/family.h"
#include "trainer/model/families/units.h"
#include "trainer/model/weight_check.h"

namespace muster {
namespace {

TensorType StoredType(const std::string& torch_dtype) {
  if (torch_dtype == "bfloat16") return TensorType::kBF16;
  if (torch_dtype == "float16") return TensorType::kF16;
  return TensorType::kF32;
}

// Whether it is one expert's part of a tensor in the files.
bool IsPart(const ModelConfig& config, TensorRole role) {
  if (!FamilyOf(config).stacked_experts) return false;
  switch (role) {
    case TensorRole::kExpertGateUp:
    case TensorRole::kExpertGateUpBias:
    case TensorRole::kExpertDown:
    case TensorRole::kExpertDownBias: return true;
    default: return false;
  }
}

// The tensor that the part is of.
std::string WholeName(const std::string& part) { return part.substr(0, part.rfind('.')); }

}  // namespace

Result<SafetensorsModel> OpenModelWeights(const ModelConfig& config, const std::string& dir) {
  MUSTER_ASSIGN_OR_RETURN(SafetensorsModel model, SafetensorsModel::Open(dir));
  for (const UnitTensor& tensor : ModelTensors(config)) {
    if (!IsPart(config, tensor.role) || tensor.joined) continue;
    const Status split = model.SplitExperts(WholeName(tensor.name), config.experts->count);
    if (!split.ok()) return InvalidArgument(dir + ": " + split.message());
  }
  MUSTER_RETURN_IF_ERROR(CheckModelTensors(config, model).WithContext(dir));
  return model;
}

std::vector<StoredTensor> StoredTensors(const ModelConfig& config, bool mxfp4) {
  std::vector<StoredTensor> stored;
  for (const UnitTensor& tensor : ModelTensors(config)) {
    TensorSpec spec{
        .name = tensor.name, .type = StoredType(config.torch_dtype), .shape = tensor.shape};
    if (!IsPart(config, tensor.role)) {
      stored.emplace_back(std::move(spec));
      continue;
    }
    if (tensor.joined) continue;
    spec.name = WholeName(tensor.name);
    StoredForm form = StoredForm::kInOrder;
    if (spec.shape.size() == 2) {
      form = mxfp4 ? StoredForm::kMxfp4 : StoredForm::kTurned;
      if (!mxfp4) std::swap(spec.shape[0], spec.shape[1]);
    }
    spec.shape.insert(spec.shape.begin(), config.experts->count);
    stored.emplace_back(std::move(spec), form);
  }
  return stored;
}

Status CheckMxfp4(const ModelConfig& config) {
  if (config.SparseLayers() == 0 || !FamilyOf(config).stacked_experts)
    return InvalidArgument("a " + config.architecture +
                           " has no experts that files hold in MXFP4; leave --mxfp4 out");
  for (const std::int64_t width : {config.hidden_size, config.experts->intermediate_size}) {
    if (width % kMxfp4Block != 0)
      return InvalidArgument("rows of " + std::to_string(width) +
                             " elements are no whole blocks of " + std::to_string(kMxfp4Block) +
                             ", as MXFP4 has them; leave --mxfp4 out");
  }
  return OkStatus();
}

bool HoldsMxfp4(const ModelConfig& config, const SafetensorsModel& model) {
  if (!CheckMxfp4(config).ok()) return false;
  const std::vector<StoredTensor> tensors = StoredTensors(config, /*mxfp4=*/true);
  return std::all_of(tensors.begin(), tensors.end(), [&model](const StoredTensor& tensor) {
    return tensor.form != StoredForm::kMxfp4 || model.Find(tensor.spec.name + "_blocks") != nullptr;
  });
}

}  // namespace muster
