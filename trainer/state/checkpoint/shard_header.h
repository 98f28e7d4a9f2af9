// The JSON header of a shard and the places of its arrays: encoding, decoding and every check that
// needs no data. Pure functions; the frame around it is common/checkpoint_format/shard_frame.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint_format/shard_frame.h"
#include "trainer/state/checkpoint/adapter_origin.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

// Everything a shard says about itself. The arrays of a header that was read carry no data.
struct ShardHeader {
  std::string job_id;
  Generation generation = 0;
  int rank = 0;
  int world_size = 1;
  std::int64_t parameters = 0;  // elements of the whole model; 0: not said (format version 1)
  TrainCursor cursor;
  std::optional<AdapterOrigin> adapter = {};  // nothing: a whole model, or a version before it
  std::vector<ShardArray> arrays;
};

// Where the arrays of a shard lie, counted from the start of its data.
struct ShardPlaces {
  std::vector<std::uint64_t> offsets;  // of each array
  std::uint64_t end = 0;

  friend bool operator==(const ShardPlaces&, const ShardPlaces&) = default;
};
ShardPlaces PlaceArrays(const std::vector<ShardArray>& arrays);

std::string ShardHeaderToJson(const ShardHeader& header);

struct DecodedShardHeader {
  ShardHeader header;
  ShardPlaces places;
};
// Trusts nothing: afterwards every array lies within the data, every interval within its array and
// its tensor, and the arrays end where the data ends.
Result<DecodedShardHeader> ShardHeaderFromJson(std::string_view json, const ShardFrame& frame);

// "float32": the name of an element type in files.
std::string_view StoredTypeName(ElementType type);

}  // namespace muster
