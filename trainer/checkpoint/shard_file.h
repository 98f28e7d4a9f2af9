// One rank's file of a sharded checkpoint: written durably, verified before a byte is used.
//
// Layout: magic, format version, header length, JSON header, then each array's raw little-endian
// data at a 64-byte boundary. docs/checkpoint-format.md describes it. Free functions that block on
// the disk; WriteShard runs on the checkpointer's background thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muster {

// Everything a shard says about itself. The arrays of a header that was read carry no data.
struct ShardHeader {
  std::string job_id;
  Generation generation = 0;
  int rank = 0;
  int world_size = 1;
  TrainCursor cursor;
  std::vector<ShardArray> arrays;
};

// Writes `path` (temporary name, preallocation, fsync, rename, fsync of the directory) from
// header.arrays[i].data. kResourceExhausted when the disk is full: the temporary file is gone then
// and an older file of that name untouched. The record's `file` is the last part of `path`.
Result<ShardRecord> WriteShard(const std::string& path, const ShardHeader& header);

// Reads the header alone, checking version, bounds and sizes but not the checksum.
Result<ShardHeader> ReadShardHeader(const std::string& path);

// Size and checksum of the file in `directory` against what the manifest says. kNotFound,
// kDataLoss; the message names the file and what is wrong with it.
Status VerifyShard(const std::string& directory, const ShardRecord& record);

// Whether the shard fits a rank that expects `arrays`: names, types, counts and intervals.
// kFailedPrecondition names the first difference; `file` is for the message.
Status CheckShardLayout(const ShardHeader& header, const std::vector<ShardArray>& arrays,
                        const std::string& file);

// Reads every array of `path` into arrays[i].data. The layout must have been checked.
Status ReadShardArrays(const std::string& path, const std::vector<ShardArray>& arrays);

}  // namespace muster
