#include "trainer/state/checkpoint/file_state.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "trainer/core/flat_layout.h"
#include "trainer/state/checkpoint/cursor_json.h"

namespace muster {
namespace {

constexpr char kStateKey[] = "muster.state";
constexpr char kStateVersion[] = "1";
constexpr char kCursorKey[] = "muster.cursor";
constexpr char kAdapterKey[] = "muster.adapter";
constexpr std::string_view kOptimizerPrefix = "optimizer.";
constexpr std::size_t kPieceBytes = 1 << 20;

constexpr std::array<std::pair<TensorType, ElementType>, 4> kTypes = {{
    {TensorType::kF64, ElementType::kFloat64},
    {TensorType::kF32, ElementType::kFloat32},
    {TensorType::kBF16, ElementType::kBFloat16},
    {TensorType::kF16, ElementType::kFloat16},
}};

std::optional<ElementType> InMemory(TensorType type) {
  for (const auto& [stored, element] : kTypes) {
    if (stored == type) return element;
  }
  return std::nullopt;
}

std::optional<TensorType> InFile(ElementType type) {
  for (const auto& [stored, element] : kTypes) {
    if (element == type) return stored;
  }
  return std::nullopt;
}

std::string StoredName(std::string_view kind, const std::string& tensor) {
  if (kind == kWeightKind) return tensor;
  return std::string(kOptimizerPrefix) + std::string(kind) + "." + tensor;
}

// Kind and tensor of a name in the file; without the mark of a state file all names are weights.
std::pair<std::string, std::string> SplitName(const std::string& name, bool is_state) {
  const std::size_t begin = kOptimizerPrefix.size();
  const std::size_t dot = name.find('.', begin);
  if (!is_state || !name.starts_with(kOptimizerPrefix) || dot == std::string::npos) {
    return {std::string(kWeightKind), name};
  }
  return {name.substr(begin, dot - begin), name.substr(dot + 1)};
}

Status CopyTensor(StateReader& state, std::string_view kind, const std::string& tensor,
                  SafetensorsWriter* writer) {
  const StateTensor& found = *state.Find(kind, tensor);
  const std::int64_t elements = ElementCount(found.shape);
  const std::int64_t piece = static_cast<std::int64_t>(kPieceBytes / ElementSize(found.type));
  std::vector<char> buffer(kPieceBytes);
  for (std::int64_t at = 0; at < elements; at += piece) {
    const std::int64_t count = std::min(piece, elements - at);
    MUSTER_RETURN_IF_ERROR(state.Read(kind, tensor, at, count, buffer.data()));
    MUSTER_RETURN_IF_ERROR(writer->AppendStored(buffer.data(), count));
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<FileState>> FileState::Open(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(SafetensorsModel file, SafetensorsModel::OpenFile(path));
  std::unique_ptr<FileState> state(new FileState(path, std::move(file)));
  MUSTER_RETURN_IF_ERROR(state->Index());
  return state;
}

// For a state file.
Status FileState::ReadMetadata() {
  const std::map<std::string, std::string>& metadata = file_.metadata();
  if (const std::string& version = metadata.at(kStateKey); version != kStateVersion) {
    return DataLoss(path_ + ": its state format is " + version + ", this program knows " +
                    kStateVersion);
  }
  try {
    cursor_ = CursorFromJson(nlohmann::json::parse(metadata.at(kCursorKey)));
  } catch (const std::exception& error) {
    return DataLoss(path_ + ": its cursor is not understood: " + error.what());
  }
  const auto adapter = metadata.find(kAdapterKey);
  if (adapter == metadata.end()) return OkStatus();
  Result<AdapterOrigin> origin = AdapterOriginFromJson(adapter->second);
  if (!origin.ok()) return origin.status().WithContext(path_);
  adapter_ = *std::move(origin);
  return OkStatus();
}

Status FileState::Index() {
  const bool is_state = file_.metadata().contains(kStateKey);
  if (is_state) MUSTER_RETURN_IF_ERROR(ReadMetadata());
  for (const std::string& name : file_.names()) {
    const TensorSpec& spec = *file_.Find(name);
    const auto type = InMemory(spec.type);
    if (!type) continue;  // a mask or an index: nothing that is trained
    auto [kind, tensor] = SplitName(name, is_state);
    index_[std::move(kind)][std::move(tensor)] = {spec.shape, *type, path_};
  }
  return OkStatus();
}

std::vector<std::string> FileState::kinds() const {
  std::vector<std::string> kinds;
  for (const auto& [kind, tensors] : index_) kinds.push_back(kind);
  return kinds;
}

std::vector<std::string> FileState::tensors(std::string_view kind) const {
  std::vector<std::string> names;
  const auto found = index_.find(kind);
  if (found == index_.end()) return names;
  for (const auto& [name, tensor] : found->second) names.push_back(name);
  return names;
}

const StateTensor* FileState::Find(std::string_view kind, const std::string& tensor) const {
  const auto tensors = index_.find(kind);
  if (tensors == index_.end()) return nullptr;
  const auto found = tensors->second.find(tensor);
  return found == tensors->second.end() ? nullptr : &found->second;
}

Status FileState::Read(std::string_view kind, const std::string& tensor, std::int64_t begin,
                       std::int64_t count, void* out) {
  return file_.ReadStored(StoredName(kind, tensor), begin, count, out);
}

Status WriteStateFile(StateReader& state, const std::string& path) {
  // Weights first, because other tools that open the file look for them.
  std::vector<std::string> kinds = state.kinds();
  std::stable_partition(kinds.begin(), kinds.end(),
                        [](const std::string& kind) { return kind == kWeightKind; });
  std::vector<TensorSpec> declared;
  for (const std::string& kind : kinds) {
    for (const std::string& tensor : state.tensors(kind)) {
      const StateTensor& found = *state.Find(kind, tensor);
      const auto type = InFile(found.type);
      if (!type) {
        return Unimplemented(found.file + ": " + kind + " of tensor " + tensor +
                             " is of a type that safetensors files are not written with");
      }
      declared.push_back({StoredName(kind, tensor), *type, found.shape});
    }
  }
  std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                 {kStateKey, kStateVersion},
                                                 {kCursorKey, CursorToJson(state.cursor()).dump()}};
  if (state.adapter()) metadata[kAdapterKey] = AdapterOriginToJson(*state.adapter());
  MUSTER_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::Create(path, std::move(declared), metadata));
  for (const std::string& kind : kinds) {
    for (const std::string& tensor : state.tensors(kind)) {
      MUSTER_RETURN_IF_ERROR(CopyTensor(state, kind, tensor, &writer));
    }
  }
  return writer.Finish();
}

}  // namespace muster
