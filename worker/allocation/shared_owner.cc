#include "worker/allocation/shared_owner.h"

#include <poll.h>

#include <filesystem>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "worker/allocation/election.h"
#include "worker/allocation/json_record.h"

namespace muster::worker {
namespace {

using nlohmann::json;

constexpr int kLookAgainMs = 100;

std::string OwnerFile(const std::string& dir) { return dir + "/owner.json"; }

Status WriteOwner(const std::string& dir, const SharedOwner& owner) {
  const json object = {{"allocation", owner.allocation},
                       {"run", owner.run},
                       {"step", owner.step},
                       {"life", owner.life}};
  return WriteFileAtomically(OwnerFile(dir), object.dump() + "\n", 0600);
}

// Files that change while a step lives: its leader's record, or, before there is one, those of its
// supervisors.
std::string Signs(const std::string& dir) {
  const auto record = ReadRecord(dir + "/leader.json");
  std::error_code error;
  const auto written = std::filesystem::last_write_time(dir + "/nodes", error);
  return (record ? record->dump() : std::string()) +
         (error ? std::string() : std::to_string(written.time_since_epoch().count()));
}

// Ends early when the directory changes hands.
bool IsAlive(const std::string& dir, const SharedOwner& found) {
  const auto outcome = ReadRecord(dir + "/outcome.json");
  if (outcome && ValueOf(*outcome, "step", std::string()) == found.step) return false;
  const std::string before = Signs(dir);
  for (const Deadline deadline = Deadline::After(kRecordStale); !deadline.Expired();) {
    if (ReadOwner(dir) != found) return false;
    if (Signs(dir) != before) return true;
    (void)::poll(nullptr, 0, kLookAgainMs);
  }
  return false;
}

}  // namespace

Claim JudgeOwner(const std::optional<SharedOwner>& found, const SharedOwner& self) {
  if (!found) return Claim::kContinue;
  if (found->allocation != self.allocation) return Claim::kNewLife;
  if (found->run < self.run) return Claim::kContinue;
  if (found->run > self.run) return Claim::kLater;
  return found->step == self.step ? Claim::kMine : Claim::kNewLife;
}

std::optional<SharedOwner> ReadOwner(const std::string& dir) {
  const auto object = ReadRecord(OwnerFile(dir));
  if (!object) return std::nullopt;
  SharedOwner owner{ValueOf(*object, "allocation", std::string()), ValueOf(*object, "run", -1),
                    ValueOf(*object, "step", std::string()), ValueOf(*object, "life", 0)};
  if (owner.run < 0 || owner.life < 1) return std::nullopt;
  return owner;
}

FoundRun FindRun(const std::string& dir, const std::string& allocation, const std::string& step) {
  const auto owner = ReadOwner(dir);
  if (!owner || owner->allocation != allocation || owner->step != step) return {};
  const auto outcome = ReadRecord(dir + "/outcome.json");
  const bool of_this_run = outcome && ValueOf(*outcome, "run", -1) == owner->run &&
                           ValueOf(*outcome, "step", std::string()) == step;
  if (!of_this_run) return {.run = owner->run, .ended = {}};
  if (ValueOf(*outcome, "action", std::string()) == "done")
    return {.run = owner->run, .ended = ValueOf(*outcome, "exit_code", 1)};
  return {.run = owner->run + 1, .ended = {}};
}

Result<int> ClaimDirectory(const std::string& dir, const SharedOwner& self) {
  const auto found = ReadOwner(dir);
  Claim claim = JudgeOwner(found, self);
  if (claim == Claim::kMine) return found->life;
  if ((claim == Claim::kNewLife || claim == Claim::kLater) && IsAlive(dir, *found)) {
    return FailedPrecondition(
        "run " + std::to_string(found->run) + " of " + found->allocation + " is at work in " + dir +
        (claim == Claim::kLater ? "; this is an older run, which ends"
                                : ": give this one a directory of its own by --state DIR"));
  }
  // Another task of this step may have been faster.
  const auto now = ReadOwner(dir);
  claim = JudgeOwner(now, self);
  if (claim == Claim::kMine) return now->life;
  SharedOwner owner = self;
  owner.life = now ? now->life : 1;
  if (claim != Claim::kContinue) ++owner.life;
  MUSTER_RETURN_IF_ERROR(WriteOwner(dir, owner));
  return owner.life;
}

}  // namespace muster::worker
