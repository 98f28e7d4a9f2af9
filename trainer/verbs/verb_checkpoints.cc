#include <cstdio>

#include "common/base/byte_size.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/verbs/checkpoint_list.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

Json AdapterJson(const std::optional<AdapterOrigin>& adapter) {
  return adapter ? Json::parse(AdapterOriginToJson(*adapter)) : Json();
}

void PrintJson(const std::vector<ListedCheckpoint>& found, std::int64_t now) {
  Json list = Json::array();
  for (const ListedCheckpoint& checkpoint : found) {
    list.push_back({{"directory", checkpoint.directory},
                    {"step", checkpoint.step},
                    {"generation", checkpoint.generation},
                    {"state", CheckpointStateName(checkpoint.state)},
                    {"resumes", checkpoint.resumes},
                    {"eval_loss", checkpoint.eval_loss ? Json(*checkpoint.eval_loss) : Json()},
                    {"best", checkpoint.best},
                    {"adapter", AdapterJson(checkpoint.adapter)},
                    {"ranks", checkpoint.ranks},
                    {"bytes", checkpoint.bytes},
                    {"age_seconds", now - checkpoint.modified},
                    {"problem", checkpoint.problem}});
  }
  std::printf("%s\n", list.dump(2).c_str());
}

std::string NotesOf(const ListedCheckpoint& checkpoint) {
  std::string notes;
  if (checkpoint.resumes) {
    notes = "  (a resume goes on from here)";
  } else if (!checkpoint.problem.empty()) {
    notes = "  (" + checkpoint.problem + ")";
  }
  if (checkpoint.best) notes += "  (the best)";
  if (checkpoint.adapter) notes += "  (adapter of " + checkpoint.adapter->base_model + ")";
  return notes;
}

std::string EvalLossText(const ListedCheckpoint& checkpoint) {
  if (!checkpoint.eval_loss) return "-";
  char text[40];
  std::snprintf(text, sizeof text, "%.4f", *checkpoint.eval_loss);
  return text;
}

void PrintTable(const std::vector<ListedCheckpoint>& found, std::int64_t now) {
  std::printf("%10s %4s %-12s %6s %9s %8s %9s  %s\n", "STEP", "GEN", "STATE", "RANKS", "SIZE",
              "AGE", "EVAL LOSS", "DIRECTORY");
  for (const ListedCheckpoint& checkpoint : found) {
    std::printf("%10lld %4lld %-12s %6d %9s %8s %9s  %s%s\n",
                static_cast<long long>(checkpoint.step),
                static_cast<long long>(checkpoint.generation),
                std::string(CheckpointStateName(checkpoint.state)).c_str(), checkpoint.ranks,
                FormatByteSize(static_cast<std::int64_t>(checkpoint.bytes)).c_str(),
                AgeText(now - checkpoint.modified).c_str(), EvalLossText(checkpoint).c_str(),
                checkpoint.directory.c_str(), NotesOf(checkpoint).c_str());
  }
}

// Whether all that count are whole.
Result<bool> Checkpoints(const CheckpointsVerbOptions& options) {
  if (options.prune > 0) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> removed,
                            PruneCheckpoints(options.path, options.prune));
    for (const std::string& directory : removed) {
      std::fprintf(stderr, "%s removed\n", directory.c_str());
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> found,
                          ListCheckpoints(options.path, options.verify));
  const std::int64_t now = SystemClock().UnixMillis() / 1000;
  if (options.json) {
    PrintJson(found, now);
  } else {
    PrintTable(found, now);
  }
  for (const ListedCheckpoint& checkpoint : found) {
    if (checkpoint.state == ListedCheckpoint::State::kDamaged) return false;
  }
  return true;
}

}  // namespace

int RunCheckpoints(const CheckpointsVerbOptions& options) {
  const Result<bool> whole = Checkpoints(options);
  if (whole.ok()) return *whole ? kExitOk : kExitBadInput;
  std::fprintf(stderr, "muster-trainer checkpoints: %s\n", whole.status().message().c_str());
  return kExitBadInput;
}

}  // namespace muster
