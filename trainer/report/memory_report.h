// MemoryReport: <output>/memory.json, the most host memory that each rank held in each stage,
// beside what its arrays need.
//
// The stages follow one another: loading (model, rows, checkpoint), training, exporting. The file
// is written anew as each ends, so that it has what is known when a later one fails. The
// trainer's thread of every rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/host_peak.h"
#include "common/base/status.h"
#include "trainer/comm/communicator.h"

namespace muster {

struct EngineMemory;

enum class MemoryStage { kLoad, kTrain, kExport };
inline constexpr int kMemoryStageCount = 3;

class MemoryReport {
 public:
  // A stage begins, and with it the one before ends.
  void Enter(MemoryStage stage);

  // Collective: ends the stage under way; rank 0 writes all that is known of all ranks to `path`.
  // What it could not write is reported in `written`. Fails as collectives do.
  Status Write(const EngineMemory& arrays, const std::string& path, Communicator& communicator,
               Status* written);

 private:
  struct Stage {
    std::int64_t begin = 0;  // bytes
    std::int64_t peak = 0;
    // 0: the kernel did not let the mark be set back, so `peak` is the process's.
    std::int64_t of_stage = 0;
  };

  void End();

  std::optional<HostPeak> peak_;  // of the stage under way
  MemoryStage stage_ = MemoryStage::kLoad;
  std::array<Stage, kMemoryStageCount> stages_;
};

}  // namespace muster
