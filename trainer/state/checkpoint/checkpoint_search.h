// CheckpointSearch: all ranks agree on the newest checkpoint that is good for all of them.
//
// Rank 0 lists the candidates for the others, so that no two ranks ever look at different
// lists. For each candidate every rank reads its own intervals out of whatever shards hold them;
// one refusal is that of all ranks, and then nothing of that candidate stays. Used once, by the
// trainer's thread; every method is collective.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/checkpoint/adapter_origin.h"
#include "trainer/state/checkpoint/checkpoint.h"
#include "trainer/state/checkpoint/resume_source.h"

namespace muster {

// Whether a state of this origin may be gone on from; kFailedPrecondition says why not. Pure.
using OriginCheck = std::function<Status(const std::optional<AdapterOrigin>& saved)>;

struct LoadOutcome {
  Step step = 0;          // 0: nothing to resume from
  std::string directory;  // of the checkpoint that was loaded
  int world_size = 0;     // ranks that wrote it
  // Not used, newest first, equal on all ranks: damaged ones, and ones of which a rank has not
  // found a file, which says nothing of them: its disk may not be mounted.
  std::vector<RejectedCheckpoint> rejected;
  std::vector<RejectedCheckpoint> missing;
};

// As an engine allocates them.
void ZeroArrays(const std::vector<ShardArray>& arrays, const ArrayMemory& memory);

class CheckpointSearch {
 public:
  struct Model {
    std::int64_t parameters = 0;    // elements; 0: not known
    ArrayMemory memory;             // of the arrays
    std::function<void()> on_read;  // FillOptions::on_read
    OriginCheck fits;               // CheckpointerOptions::fits
  };
  // `resume_file` empty: manifests on disk.
  CheckpointSearch(Communicator& communicator, std::string directory, std::string resume_file,
                   Model model)
      : communicator_(communicator),
        directory_(std::move(directory)),
        resume_file_(std::move(resume_file)),
        model_(std::move(model)) {}

  // See Checkpointer::LoadNewest.
  Result<LoadOutcome> Run(const std::vector<ShardArray>& into, TrainCursor* cursor, Step above);

  // The step of the newest candidate; 0: there is none.
  Result<Step> NewestStep();

  // The highest generation of any directory on disk; 0 with a resume file.
  Generation newest_generation() const { return newest_generation_; }

 private:
  struct Candidates {
    std::vector<CheckpointManifest> manifests;
    std::vector<RejectedCheckpoint> rejected;
  };
  Result<Candidates> AgreeOnCandidates();
  Result<std::string> ListCandidates() const;
  // The worst of all ranks' statuses, the same on every rank.
  Status Agree(const Status& mine);
  // This rank's part of one candidate.
  Status LoadMine(const CheckpointManifest& manifest, const std::vector<ShardArray>& into,
                  TrainCursor* cursor, const std::function<void()>& on_read) const;

  Communicator& communicator_;
  const std::string directory_;
  const std::string resume_file_;
  const Model model_;
  Generation newest_generation_ = 0;
};

}  // namespace muster
