#include "trainer/formats/safetensors_header.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "common/base/json.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
// As in the reference implementation.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct TypeRow {
  TensorType type;
  std::string_view name;
  std::int64_t size;
};

constexpr std::array kTypes = {
    TypeRow{TensorType::kBool, "BOOL", 1},      TypeRow{TensorType::kU8, "U8", 1},
    TypeRow{TensorType::kI8, "I8", 1},          TypeRow{TensorType::kF8E4M3, "F8_E4M3", 1},
    TypeRow{TensorType::kF8E5M2, "F8_E5M2", 1}, TypeRow{TensorType::kI16, "I16", 2},
    TypeRow{TensorType::kU16, "U16", 2},        TypeRow{TensorType::kF16, "F16", 2},
    TypeRow{TensorType::kBF16, "BF16", 2},      TypeRow{TensorType::kI32, "I32", 4},
    TypeRow{TensorType::kU32, "U32", 4},        TypeRow{TensorType::kF32, "F32", 4},
    TypeRow{TensorType::kI64, "I64", 8},        TypeRow{TensorType::kU64, "U64", 8},
    TypeRow{TensorType::kF64, "F64", 8},
};

const TypeRow& RowOf(TensorType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [type](const TypeRow& row) { return row.type == type; });
}

// A JSON number that is an integer in [0, 2^63).
std::optional<std::int64_t> NonNegative(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

Result<Json> ParseJson(std::string_view text, const std::string& path) {
  std::set<std::string> names;
  std::string duplicate;
  // The parser alone would let the last of two equal names win.
  const auto note_names = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && duplicate.empty() &&
        !names.insert(parsed.get_ref<const std::string&>()).second)
      duplicate = parsed.get<std::string>();
    return true;
  };
  try {
    Json json = Json::parse(text, note_names);
    if (!json.is_object()) return InvalidArgument(path + ": the header is no JSON object");
    if (!duplicate.empty())
      return InvalidArgument(path + ": the header names tensor " + duplicate + " twice");
    return json;
  } catch (const Json::exception& error) {
    return InvalidArgument(path + ": the header is not valid JSON: " + error.what());
  }
}

// Bytes of a tensor, or nothing if they exceed 63 bits.
std::optional<std::int64_t> ByteSize(const TensorSpec& spec) {
  std::int64_t bytes = TensorTypeSize(spec.type);
  for (const std::int64_t dimension : spec.shape)
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  return bytes;
}

Result<SafetensorsHeader::Tensor> ParseTensor(const std::string& name, const Json& json,
                                              const std::string& where) {
  const auto fail = [&](const std::string& what) {
    return InvalidArgument(where + ": tensor " + name + " " + what);
  };
  if (!json.is_object()) return fail("is described by no JSON object");
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) return fail("has no dtype");
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& candidate) {
    return candidate.name == dtype->get_ref<const std::string&>();
  });
  if (row == kTypes.end()) return fail("has the unknown dtype " + dtype->dump());

  SafetensorsHeader::Tensor tensor;
  tensor.spec.name = name;
  tensor.spec.type = row->type;
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) return fail("has no shape");
  for (const Json& dimension : *shape) {
    const auto value = NonNegative(dimension);
    if (!value) return fail("has a shape that is no list of sizes");
    tensor.spec.shape.push_back(*value);
  }
  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2)
    return fail("has no pair of data_offsets");
  const auto begin = NonNegative((*offsets)[0]);
  const auto end = NonNegative((*offsets)[1]);
  if (!begin || !end || *begin > *end)
    return fail("has the impossible data_offsets " + offsets->dump());
  tensor.begin = *begin;
  tensor.end = *end;
  const auto bytes = ByteSize(tensor.spec);
  if (!bytes) return fail("has a shape whose size exceeds 63 bits");
  if (*bytes != tensor.end - tensor.begin)
    return fail("needs " + std::to_string(*bytes) + " bytes by its dtype and shape, but its " +
                "data_offsets hold " + std::to_string(tensor.end - tensor.begin));
  return tensor;
}

// The tensors must follow one another from the first byte of the data to its last.
Status CheckCoverage(std::vector<SafetensorsHeader::Tensor>& tensors, std::int64_t data_bytes,
                     const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::int64_t position = 0;
  for (const SafetensorsHeader::Tensor& tensor : tensors) {
    if (tensor.begin != position)
      return InvalidArgument(path + ": tensor " + tensor.spec.name + " begins at byte " +
                             std::to_string(tensor.begin) + " of the data, " +
                             (tensor.begin < position ? "inside" : "with a hole after") +
                             " the tensor that ends at byte " + std::to_string(position));
    position = tensor.end;
  }
  if (position > data_bytes)
    return DataLoss(path + " is truncated: its tensors need " + std::to_string(position) +
                    " bytes of data, the file holds " + std::to_string(data_bytes) +
                    "; copy or download it again");
  if (position < data_bytes)
    return InvalidArgument(path + " holds " + std::to_string(data_bytes - position) +
                           " bytes after its last tensor; it is damaged or still being written");
  return OkStatus();
}

}  // namespace

std::string_view TensorTypeName(TensorType type) { return RowOf(type).name; }
bool IsReadableType(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kBF16 || type == TensorType::kF16;
}

std::int64_t TensorTypeSize(TensorType type) { return RowOf(type).size; }

std::int64_t TensorSpec::count() const {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

Status ReadExactly(int fd, char* out, std::int64_t count, std::int64_t offset,
                   const std::string& path) {
  while (count > 0) {
    const ssize_t n = ::pread(fd, out, static_cast<std::size_t>(count), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) return DataLoss(path + " became shorter while it was read");
    out += n;
    offset += n;
    count -= n;
  }
  return OkStatus();
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, std::int64_t data_bytes,
                                                 const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const Json object, ParseJson(json, path));
  SafetensorsHeader header;
  for (const auto& [name, value] : object.items()) {
    if (name != "__metadata__") {
      MUSTER_ASSIGN_OR_RETURN(auto tensor, ParseTensor(name, value, path));
      header.tensors.push_back(std::move(tensor));
      continue;
    }
    if (!value.is_object()) return InvalidArgument(path + ": __metadata__ is no JSON object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        return InvalidArgument(path + ": __metadata__." + key + " is not a string");
      header.metadata[key] = text.get<std::string>();
    }
  }
  MUSTER_RETURN_IF_ERROR(CheckCoverage(header.tensors, data_bytes, path));
  return header;
}

Result<SafetensorsHeader> ReadSafetensorsHeader(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + " is no regular file");
  if (info.st_size < kLengthBytes)
    return DataLoss(path + " is truncated: it has " + std::to_string(info.st_size) +
                    " bytes, fewer than the length of a safetensors header");
  std::uint64_t length = 0;  // little-endian in the file as in memory of every supported machine
  MUSTER_RETURN_IF_ERROR(ReadExactly(fd, reinterpret_cast<char*>(&length), kLengthBytes, 0, path));
  if (length > kMaxHeaderBytes)
    return InvalidArgument(path + " claims a header of " + std::to_string(length) +
                           " bytes; at most " + std::to_string(kMaxHeaderBytes) +
                           " are allowed: it is damaged or no safetensors file");
  const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(length);
  if (data_begin > info.st_size)
    return DataLoss(path + " is truncated: its header needs " + std::to_string(data_begin) +
                    " bytes, the file holds " + std::to_string(info.st_size));
  std::string json(static_cast<std::size_t>(length), '\0');
  MUSTER_RETURN_IF_ERROR(
      ReadExactly(fd, json.data(), static_cast<std::int64_t>(length), kLengthBytes, path));
  MUSTER_ASSIGN_OR_RETURN(SafetensorsHeader header,
                          ParseSafetensorsHeader(json, info.st_size - data_begin, path));
  header.data_begin = data_begin;
  return header;
}

std::string FormatSafetensorsHeader(const std::vector<TensorSpec>& tensors,
                                    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::int64_t position = 0;
  for (const TensorSpec& tensor : tensors) {
    const std::int64_t end = position + tensor.count() * TensorTypeSize(tensor.type);
    json[tensor.name] = {{"dtype", TensorTypeName(tensor.type)},
                         {"shape", tensor.shape},
                         {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

}  // namespace muster
