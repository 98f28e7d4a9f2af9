#include "trainer/checkpoint/shard_header.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr char kMagic[] = "MUSTERSH";
constexpr std::uint64_t kMaxHeaderBytes = 256ull << 20;

constexpr std::array<std::pair<ElementType, std::string_view>, 5> kTypeNames = {{
    {ElementType::kUint8, "uint8"},
    {ElementType::kInt64, "int64"},
    {ElementType::kBFloat16, "bfloat16"},
    {ElementType::kFloat32, "float32"},
    {ElementType::kFloat64, "float64"},
}};

std::string_view TypeName(ElementType type) {
  for (const auto& [each, name] : kTypeNames) {
    if (each == type) return name;
  }
  return "unknown";
}

std::uint64_t Aligned(std::uint64_t offset) {
  return (offset + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
}

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
          {"dtype", TypeName(array.type)},
          {"count", array.count},
          {"offset", offset},
          {"intervals", std::move(intervals)}};
}

Result<ShardArray> ArrayFromJson(const json& object) {
  ShardArray array;
  array.name = object.at("name").get<std::string>();
  array.count = object.at("count").get<std::int64_t>();
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
    interval.shape = each.at("shape").get<std::vector<std::int64_t>>();
    interval.begin = each.at("begin").get<std::int64_t>();
    interval.count = each.at("count").get<std::int64_t>();
    interval.array_offset = each.at("array_offset").get<std::int64_t>();
    array.intervals.push_back(std::move(interval));
  }
  return array;
}

// Each comparison is made so that no sum can overflow.
Status CheckBounds(const ShardArray& array, std::uint64_t offset, std::uint64_t data_bytes) {
  const auto bad = [&](const char* what) { return DataLoss("array " + array.name + " " + what); };
  const std::uint64_t element = ElementSize(array.type);
  if (array.count < 0 || offset % kShardAlignment != 0 || offset > data_bytes ||
      static_cast<std::uint64_t>(array.count) > (data_bytes - offset) / element) {
    return bad("does not lie within the file");
  }
  for (const TensorInterval& interval : array.intervals) {
    if (interval.begin < 0 || interval.count < 0 || interval.array_offset < 0 ||
        interval.array_offset > array.count ||
        interval.count > array.count - interval.array_offset) {
      return bad("has an interval outside of it");
    }
  }
  return OkStatus();
}

json HeaderToJson(const ShardHeader& header) {
  return {{"job_id", header.job_id},
          {"step", header.cursor.step},
          {"generation", header.generation},
          {"rank", header.rank},
          {"world_size", header.world_size},
          {"cursor",
           {{"step", header.cursor.step},
            {"samples", header.cursor.samples},
            {"tokens", header.cursor.tokens},
            {"seed", header.cursor.seed},
            {"sample_chain", header.cursor.sample_chain},
            {"optimizer_steps", header.cursor.optimizer_steps}}}};
}

ShardHeader HeaderFromJson(const json& object) {
  ShardHeader header;
  header.job_id = object.at("job_id").get<std::string>();
  header.generation = object.at("generation").get<Generation>();
  header.rank = object.at("rank").get<int>();
  header.world_size = object.at("world_size").get<int>();
  const json& cursor = object.at("cursor");
  header.cursor.step = cursor.at("step").get<Step>();
  header.cursor.samples = cursor.at("samples").get<std::int64_t>();
  header.cursor.tokens = cursor.at("tokens").get<std::int64_t>();
  header.cursor.seed = cursor.at("seed").get<std::uint64_t>();
  header.cursor.sample_chain = cursor.at("sample_chain").get<std::uint64_t>();
  header.cursor.optimizer_steps = cursor.value("optimizer_steps", header.cursor.step);
  return header;
}

}  // namespace

EncodedShardHeader EncodeShardHeader(const ShardHeader& header) {
  json object = HeaderToJson(header);
  json arrays = json::array();
  EncodedShardHeader encoded;
  std::uint64_t end = 0;
  for (const ShardArray& array : header.arrays) {
    const std::uint64_t offset = Aligned(end);
    encoded.offsets.push_back(offset);
    arrays.push_back(ToJson(array, offset));
    end = offset + static_cast<std::uint64_t>(array.count) * ElementSize(array.type);
  }
  object["arrays"] = std::move(arrays);
  const std::string text = object.dump();
  const std::uint64_t length = text.size();
  encoded.text.assign(kMagic, 8);
  encoded.text.append(reinterpret_cast<const char*>(&kShardVersion), 4);
  encoded.text.append(4, '\0');
  encoded.text.append(reinterpret_cast<const char*>(&length), 8);
  encoded.text += text;
  encoded.text.resize(Aligned(encoded.text.size()), '\0');
  for (std::uint64_t& offset : encoded.offsets) offset += encoded.text.size();
  encoded.file_bytes = encoded.text.size() + end;
  return encoded;
}

Result<std::size_t> DecodeShardPreamble(std::string_view preamble, std::uint64_t file_bytes) {
  if (preamble.size() < kShardPreambleBytes || preamble.substr(0, 8) != kMagic) {
    return DataLoss("it is not a shard of a checkpoint");
  }
  std::uint32_t version = 0;
  std::uint64_t length = 0;
  std::memcpy(&version, preamble.data() + 8, sizeof(version));
  std::memcpy(&length, preamble.data() + 16, sizeof(length));
  if (version != kShardVersion) {
    return DataLoss("its format version is " + std::to_string(version) + ", this program knows " +
                    std::to_string(kShardVersion));
  }
  if (length > kMaxHeaderBytes || length > file_bytes - kShardPreambleBytes) {
    return DataLoss("its header claims " + std::to_string(length) + " bytes");
  }
  return static_cast<std::size_t>(length);
}

Result<DecodedShardHeader> DecodeShardHeader(std::string_view text, std::uint64_t file_bytes) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return DataLoss("its header is not JSON");
  const std::uint64_t data_begin = Aligned(kShardPreambleBytes + text.size());
  const std::uint64_t data_bytes = file_bytes < data_begin ? 0 : file_bytes - data_begin;
  DecodedShardHeader decoded;
  std::uint64_t end = 0;
  try {
    decoded.header = HeaderFromJson(object);
    for (const json& each : object.at("arrays")) {
      MUSTER_ASSIGN_OR_RETURN(ShardArray array, ArrayFromJson(each));
      const auto offset = each.at("offset").get<std::uint64_t>();
      MUSTER_RETURN_IF_ERROR(CheckBounds(array, offset, data_bytes));
      end = offset + static_cast<std::uint64_t>(array.count) * ElementSize(array.type);
      decoded.offsets.push_back(data_begin + offset);
      decoded.header.arrays.push_back(std::move(array));
    }
  } catch (const json::exception& error) {
    return DataLoss(std::string("its header is not understood: ") + error.what());
  }
  if (data_begin + end != file_bytes) {
    return DataLoss("it has " + std::to_string(file_bytes) + " bytes, its header says " +
                    std::to_string(data_begin + end));
  }
  return decoded;
}

Status CheckShardLayout(const ShardHeader& header, const std::vector<ShardArray>& arrays,
                        const std::string& file) {
  const auto differs = [&](const std::string& what) {
    return FailedPrecondition(file + " does not fit this job's model: " + what +
                              "; use another output directory, or the model it was made with");
  };
  if (header.arrays.size() != arrays.size()) {
    return differs("it has " + std::to_string(header.arrays.size()) + " arrays, not " +
                   std::to_string(arrays.size()));
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const ShardArray& have = header.arrays[i];
    const ShardArray& want = arrays[i];
    if (have.name != want.name) return differs("array " + have.name + " instead of " + want.name);
    if (have.type != want.type) {
      return differs("array " + have.name + " is " + std::string(TypeName(have.type)) + ", not " +
                     std::string(TypeName(want.type)));
    }
    if (have.count != want.count) {
      return differs("array " + have.name + " has " + std::to_string(have.count) +
                     " elements, not " + std::to_string(want.count));
    }
    for (std::size_t k = 0; k < std::max(have.intervals.size(), want.intervals.size()); ++k) {
      if (k < have.intervals.size() && k < want.intervals.size() &&
          have.intervals[k] == want.intervals[k]) {
        continue;
      }
      const auto& named = k < have.intervals.size() ? have.intervals : want.intervals;
      return differs("tensor " + named[k].tensor + " in array " + have.name +
                     " has another shape or place");
    }
  }
  return OkStatus();
}

}  // namespace muster
