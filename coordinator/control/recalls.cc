#include "coordinator/control/recalls.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/control/answer.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/queries.h"
#include "coordinator/control/readings.h"

namespace muster::control {
namespace {

// Fewer than the scrubs that run at once: live jobs come first.
constexpr std::size_t kMaxRecalled = 2;
// Turns of jobs that are not read, in one event.
constexpr int kTurnsAtOnce = 256;

constexpr std::size_t kPlaceDigits = 8;  // hexadecimal, at the beginning of an id
constexpr double kPlaces = 4294967296.0;

// When in a round it is the job's turn.
Duration PlaceOf(const JobId& id, Duration round) {
  const std::string digits = id.value.substr(0, kPlaceDigits);
  std::uint32_t place = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), place, 16);
  return std::chrono::duration_cast<Duration>(round * (place / kPlaces));
}

// The place in the round that the clock has reached, as the beginning of an id.
JobId PlaceNow(const Now& now, Duration round) {
  const auto whole_ms = std::chrono::duration_cast<std::chrono::milliseconds>(round).count();
  const auto round_ms = std::max<std::int64_t>(1, whole_ms);
  const double share = double(now.unix_ms % round_ms) / double(round_ms);
  char digits[kPlaceDigits + 1];
  std::snprintf(digits, sizeof(digits), "%08x", static_cast<std::uint32_t>(share * kPlaces));
  return JobId{digits};
}

bool HasRoom(const Recalls& recalls) {
  return recalls.jobs.size() + recalls.asked.size() < kMaxRecalled;
}

void Recall(Transaction& tx, const JobId& id) {
  if (tx.state.recalls.asked.try_emplace(id).second) tx.out.recalls.push_back(id);
}

// Gives the next job its turn; false: its turn is later.
bool TakeTurn(Transaction& tx) {
  Recalls& recalls = tx.state.recalls;
  const Archive::Jobs& jobs = tx.state.archive.jobs();
  const Duration round = tx.options.scrub_interval;
  auto next = jobs.upper_bound(recalls.turn);
  const bool begins = next == jobs.end();
  if (begins) next = jobs.begin();
  const Duration way =
      PlaceOf(next->first, round) - PlaceOf(recalls.turn, round) + (begins ? round : Duration{});
  // Only one round is made up for.
  const TimePoint due = std::max(recalls.turn_at, tx.now.mono - round) + way;
  recalls.next_at = due;
  if (due > tx.now.mono) return false;
  recalls.turn = next->first;
  recalls.turn_at = due;
  const bool read = recalls.jobs.contains(next->first);
  if (next->second.state == JobState::kSucceeded && !read) Recall(tx, next->first);
  return true;
}

// Half an interval: a turn is a little more or less than one after the last reading. A time in
// the future means that the clock was set back.
std::set<std::string> DueOf(const Transaction& tx, const ArchivedRecords& records) {
  const bool owns = records.output_owner == records.job.id &&
                    !tx.state.output_owners.contains(records.job.output_dir);
  std::set<std::string> due;
  for (const CheckpointRecord& checkpoint : records.checkpoints) {
    const Duration age = std::chrono::milliseconds(tx.now.unix_ms - checkpoint.verified_unix_ms);
    const bool is_old = age < Duration::zero() || 2 * age >= tx.options.scrub_interval;
    if (owns && is_old && Usable(checkpoint)) due.insert(checkpoint.directory);
  }
  return due;
}

JobEntry& Enter(Transaction& tx, const ArchivedRecords& records) {
  JobEntry& job = tx.state.recalls.jobs[records.job.id];
  job.archived = true;
  job.record = records.job;
  job.attempts = records.attempts;
  job.checkpoints = records.checkpoints;
  return job;
}

void Refuse(Transaction& tx, const std::vector<RequestId>& requests, const Status& status) {
  for (const RequestId request : requests) {
    tx.state.readings.requests.erase(request);
    tx.out.replies.push_back({request, status, {}});
  }
}

}  // namespace

void BeginRecalls(Transaction& tx) {
  if (tx.options.scrub_interval <= Duration::zero()) return;
  tx.state.recalls.turn = PlaceNow(tx.now, tx.options.scrub_interval);
  tx.state.recalls.turn_at = tx.now.mono;
  tx.state.recalls.next_at = tx.now.mono;
}

std::optional<TimePoint> NextRecall(const State& state) {
  const Recalls& recalls = state.recalls;
  const bool comes = HasRoom(recalls) && !state.archive.jobs().empty();
  return comes ? recalls.next_at : std::nullopt;
}

void RunRecalls(Transaction& tx) {
  Recalls& recalls = tx.state.recalls;
  for (auto at = recalls.jobs.begin(); at != recalls.jobs.end();) {
    JobEntry& job = at->second;
    // A newer job writes to the directory by now.
    if (job.scrub->requests.empty() && tx.state.output_owners.contains(job.record.output_dir))
      job.scrub.Mutable().wanted.clear();
    if (!NothingToRead(job)) {
      ++at;
      continue;
    }
    tx.state.readings.scrub_times.Set(at->first, std::nullopt);
    at = recalls.jobs.erase(at);
  }
  for (int n = 0; n < kTurnsAtOnce && tx.Expired(NextRecall(tx.state)); ++n)
    if (!TakeTurn(tx)) return;
}

void On(Transaction& tx, const ArchivedJobRead& read) {
  const auto asked = tx.state.recalls.asked.extract(read.job);
  if (asked.empty()) return;
  const std::vector<RequestId>& requests = asked.mapped();
  if (!read.records.ok()) return Refuse(tx, requests, read.records.status());
  if (!requests.empty()) return ReadAllAgain(tx, Enter(tx, *read.records), requests);
  std::set<std::string> due = DueOf(tx, *read.records);
  if (!due.empty()) ReadAgain(tx, Enter(tx, *read.records), std::move(due));
}

// The audit trail has that it was asked for; what is found comes later, and is in the timeline.
void On(Transaction& tx, const VerifyRequested& request) {
  const Archive::Jobs::value_type* archived = FindArchived(tx.state, request.job);
  const Result<JobView> view = FindJob(tx.state, request.job);
  const Status taken = archived != nullptr ? OkStatus() : view.status();
  Audit(tx, request.actor,
        {.operation = std::string(Name(request.kOperation)), .object = ObjectOf(request)}, taken);
  if (archived == nullptr) {
    if (!taken.ok()) return tx.out.replies.push_back({request.request, taken, {}});
    return ReadAllAgain(tx, tx.job(view->record->id), {request.request});
  }
  const JobId& id = archived->first;
  const auto recalled = tx.state.recalls.jobs.find(id);
  if (recalled != tx.state.recalls.jobs.end())
    return ReadAllAgain(tx, recalled->second, {request.request});
  Recall(tx, id);
  tx.state.recalls.asked[id].push_back(request.request);
  tx.state.readings.requests[request.request] = id;
}

void On(Transaction& tx, const CallerGone& gone) {
  const auto request = tx.state.readings.requests.extract(gone.request);
  if (request.empty()) return;
  const JobId& id = request.mapped();
  Recalls& recalls = tx.state.recalls;
  if (const auto asked = recalls.asked.find(id); asked != recalls.asked.end()) {
    std::erase(asked->second, gone.request);
  } else if (const auto recalled = recalls.jobs.find(id); recalled != recalls.jobs.end()) {
    std::erase(recalled->second.scrub.Mutable().requests, gone.request);
  } else {
    std::erase(tx.job(id).scrub.Mutable().requests, gone.request);
  }
}

}  // namespace muster::control
