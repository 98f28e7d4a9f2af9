// The name of a rank's file in a checkpoint's directory: "rank-00001.shard".
//
// Trainers write under this name, and the coordinator accepts no other.
#pragma once

#include <cstdio>
#include <string>

namespace muster {

inline std::string ShardFileName(int rank) {
  char name[32];
  std::snprintf(name, sizeof(name), "rank-%05d.shard", rank);
  return name;
}

}  // namespace muster
