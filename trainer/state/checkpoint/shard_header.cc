#include "trainer/state/checkpoint/shard_header.h"

#include <array>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_integer.h"
#include "common/base/round_up.h"
#include "trainer/state/checkpoint/cursor_json.h"

namespace muster {
namespace {

using nlohmann::json;

// Alignment of an array within the data: a cache line, and enough for any kernel.
constexpr std::uint64_t kArrayAlignment = 64;

constexpr std::array<std::pair<ElementType, std::string_view>, 6> kTypeNames = {{
    {ElementType::kUint8, "uint8"},
    {ElementType::kInt64, "int64"},
    {ElementType::kBFloat16, "bfloat16"},
    {ElementType::kFloat16, "float16"},
    {ElementType::kFloat32, "float32"},
    {ElementType::kFloat64, "float64"},
}};

json ToJson(const ShardArray& array, std::uint64_t offset) {
  json intervals = json::array();
  for (const TensorInterval& interval : array.intervals) {
    intervals.push_back({{"tensor", interval.tensor},
                         {"shape", interval.shape},
                         {"begin", interval.begin},
                         {"count", interval.count},
                         {"array_offset", interval.array_offset}});
  }
  return {{"name", array.name},
          {"dtype", StoredTypeName(array.type)},
          {"count", array.count},
          {"offset", offset},
          {"intervals", std::move(intervals)}};
}

Result<ShardArray> ArrayFromJson(const json& object) {
  ShardArray array;
  array.name = object.at("name").get<std::string>();
  array.count = IntegerOf<std::int64_t>(object.at("count"));
  const auto dtype = object.at("dtype").get<std::string>();
  bool known = false;
  for (const auto& [type, name] : kTypeNames) {
    if (name != dtype) continue;
    array.type = type;
    known = true;
  }
  if (!known) return DataLoss("array " + array.name + " has the unknown type " + dtype);
  for (const json& each : object.at("intervals")) {
    TensorInterval interval;
    interval.tensor = each.at("tensor").get<std::string>();
    for (const json& size : each.at("shape"))
      interval.shape.push_back(IntegerOf<std::int64_t>(size));
    interval.begin = IntegerOf<std::int64_t>(each.at("begin"));
    interval.count = IntegerOf<std::int64_t>(each.at("count"));
    interval.array_offset = IntegerOf<std::int64_t>(each.at("array_offset"));
    array.intervals.push_back(std::move(interval));
  }
  return array;
}

// Each comparison is made so that no sum or product can overflow.
bool LiesWithinTensor(const TensorInterval& interval) {
  std::int64_t elements = 1;
  for (const std::int64_t size : interval.shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return false;
  }
  return interval.begin >= 0 && interval.count >= 0 && interval.begin <= elements &&
         interval.count <= elements - interval.begin;
}

Status CheckBounds(const ShardArray& array, std::uint64_t offset, std::uint64_t data_bytes) {
  const std::uint64_t element = ElementSize(array.type);
  if (array.count < 0 || offset % kArrayAlignment != 0 || offset > data_bytes ||
      static_cast<std::uint64_t>(array.count) > (data_bytes - offset) / element) {
    return DataLoss("array " + array.name + " does not lie within the file");
  }
  for (const TensorInterval& interval : array.intervals) {
    if (!LiesWithinTensor(interval)) {
      return DataLoss("array " + array.name + " has an interval outside of tensor " +
                      interval.tensor);
    }
    if (interval.array_offset < 0 || interval.array_offset > array.count ||
        interval.count > array.count - interval.array_offset) {
      return DataLoss("array " + array.name + " has an interval outside of it");
    }
  }
  return OkStatus();
}

Result<ShardHeader> HeaderFromJson(const json& object) {
  ShardHeader header;
  header.job_id = object.at("job_id").get<std::string>();
  header.generation = IntegerOf<Generation>(object.at("generation"));
  header.rank = IntegerOf<int>(object.at("rank"));
  header.world_size = IntegerOf<int>(object.at("world_size"));
  header.parameters = IntegerOr(object, "parameters", std::int64_t{0});
  header.cursor = CursorFromJson(object.at("cursor"));
  if (const auto adapter = object.find("adapter"); adapter != object.end()) {
    MUSTER_ASSIGN_OR_RETURN(header.adapter, AdapterOriginFromJson(adapter->dump()));
  }
  return header;
}

}  // namespace

ShardPlaces PlaceArrays(const std::vector<ShardArray>& arrays) {
  ShardPlaces places;
  for (const ShardArray& array : arrays) {
    places.offsets.push_back(RoundUp(places.end, kArrayAlignment));
    places.end = places.offsets.back() + array.bytes();
  }
  return places;
}

std::string ShardHeaderToJson(const ShardHeader& header) {
  const ShardPlaces places = PlaceArrays(header.arrays);
  json arrays = json::array();
  for (std::size_t i = 0; i < header.arrays.size(); ++i) {
    arrays.push_back(ToJson(header.arrays[i], places.offsets[i]));
  }
  json object = {{"job_id", header.job_id},
                 {"step", header.cursor.step},
                 {"generation", header.generation},
                 {"rank", header.rank},
                 {"world_size", header.world_size},
                 {"parameters", header.parameters},
                 {"cursor", CursorToJson(header.cursor)},
                 {"arrays", std::move(arrays)}};
  if (header.adapter) object["adapter"] = json::parse(AdapterOriginToJson(*header.adapter));
  return object.dump();
}

Result<DecodedShardHeader> ShardHeaderFromJson(std::string_view text, const ShardFrame& frame) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return DataLoss("its header is not JSON");
  DecodedShardHeader decoded;
  try {
    MUSTER_ASSIGN_OR_RETURN(decoded.header, HeaderFromJson(object));
    for (const json& each : object.at("arrays")) {
      MUSTER_ASSIGN_OR_RETURN(ShardArray array, ArrayFromJson(each));
      const auto offset = IntegerOf<std::uint64_t>(each.at("offset"));
      MUSTER_RETURN_IF_ERROR(CheckBounds(array, offset, frame.data_bytes));
      decoded.places.offsets.push_back(offset);
      decoded.places.end = offset + array.bytes();
      decoded.header.arrays.push_back(std::move(array));
    }
  } catch (const json::exception& error) {
    return DataLoss(std::string("its header is not understood: ") + error.what());
  }
  const std::uint64_t end =
      frame.version == 1 ? decoded.places.end : RoundUp(decoded.places.end, kShardBlock);
  if (end != frame.data_bytes) {
    return DataLoss("it has " + std::to_string(frame.data_bytes) +
                    " bytes of data, its header says " + std::to_string(end));
  }
  return decoded;
}

std::string_view StoredTypeName(ElementType type) {
  for (const auto& [each, name] : kTypeNames) {
    if (each == type) return name;
  }
  return "unknown";
}

}  // namespace muster
