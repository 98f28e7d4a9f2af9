// The highest layer of GuardianCore: what processes and the kernel report, and the end of a whole
// generation that follows from it.

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "worker/guardian/guardian_core.h"

namespace muster::guardian {
namespace {

using Json = nlohmann::json;

std::string TextOf(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::vector<std::string> TextsOf(const Json& json, const char* key) {
  std::vector<std::string> texts;
  const auto it = json.find(key);
  if (it == json.end() || !it->is_array()) return texts;
  for (const Json& each : *it)
    if (each.is_string()) texts.push_back(each.get<std::string>());
  return texts;
}

}  // namespace

void GuardianCore::On(const MessageReceived& message, TimePoint) {
  const auto& [id, text, has_descriptor] = message;
  Process* process = processes_.Find(id);
  const Json json = Json::parse(text, nullptr, false);
  if (process == nullptr || !json.is_object()) return;
  const std::string type = TextOf(json, "type");
  if (type == "standby_ready") {
    process->ready = true;
    return;
  }
  const auto stamp = json.find("generation");
  const bool stale = stamp != json.end() && *stamp != process->generation;
  // Messages left over from an earlier assignment belong to a generation that is no longer needed.
  if (process->generation != gang_.generation || stale) return;
  if (type == "segment") {
    if (has_descriptor) segments_.Hold(TextOf(json, "name"), id, gang_, out_);
  } else if (type == "drop_segment") {
    segments_.LetGo(TextOf(json, "name"), out_);
  } else if (type == "cut") {
    segments_.NoteCut(TextsOf(json, "segments"), gang_.generation);
  } else {
    if (type == "parked" && process->state == Process::State::kAssigned)
      process->state = Process::State::kParked;
    if (Member* member = gang_.MemberOf(id, *process); member != nullptr && type == "first_step")
      member->first_step = true;
    gang_.reports.Add(process->rank, type, text);
    out_.Send(GuardianReport{.generation = gang_.generation, .rank = process->rank, .json = text});
  }
}

void GuardianCore::On(const ProcessEnded& ended, TimePoint now) {
  const auto& [id, end] = ended;
  const Process* found = processes_.Find(id);
  if (found == nullptr) return;
  const Process process = *found;
  Member* member = gang_.MemberOf(id, process);
  processes_.Remove(id);
  if (member != nullptr && !member->exited) {
    ProcessEnd seen = end;
    seen.out_of_memory &= !process.being_killed;
    ReportExit(process.rank, *member, seen, now);
  } else if (process.state == Process::State::kStandby && !process.being_killed) {
    out_.Note("a standby ended: " + DescribeExit(end.exit));
    ++gang_.standby_failures;
  } else {
    out_.Note("process " + std::to_string(process.pid) +
              ", which served no generation, ended: " + DescribeExit(end.exit));
  }
  if (!gang_.Refers(id)) out_.Add(ForgetProcess{id});
}

void GuardianCore::On(const Tick&, TimePoint now) {
  if (!end_) {
    if (auto look = processes_.LookForUnkillable(now, !gang_.terminated))
      out_.Add(*std::move(look));
    return;
  }
  const bool late = now >= end_->kill_at;
  if (!late && processes_.AnyToEnd(end_->keep)) return;
  // Descendants that the ranks have left get the grace period as well, but they do not park.
  const bool kill = late || end_->keep;
  if (kill) {
    if (!end_->give_up_at) end_->give_up_at = now + kKillBudget;
    processes_.KillAll(end_->keep, out_);
  }
  out_.Add(processes_.SweepAllBut(end_->keep, kill));
}

void GuardianCore::On(const Swept& swept, TimePoint now) {
  const SweepResult& result = swept.result;
  if (!end_) return NoteUnkillable(result);
  // Those that have resisted before had their time.
  const bool done = (result.none_left || processes_.AreUnkillable(result.left)) &&
                    !processes_.AnyToEnd(end_->keep);
  if (done || (end_->give_up_at && now >= *end_->give_up_at)) FinishEnd(result.left, now);
}

void GuardianCore::NoteUnkillable(const SweepResult& result) {
  const std::size_t before = processes_.unkillable().size();
  const bool beside = !gang_.terminated;
  if (!processes_.NoteUnkillable(result, beside)) return;
  const std::vector<std::int64_t>& left = processes_.unkillable();
  // A Quiesced of the living generation would report it as over.
  if (beside)
    return out_.Send(GuardianQuiesced{.generation = gang_.generation - 1, .unkillable_pids = left});
  out_.Note("g" + std::to_string(newest_) + ": of " + std::to_string(before) +
            " processes that resisted " + std::to_string(left.size()) + " are left");
  UnlockUnused();
  out_.Send(Quiesced());
}

void GuardianCore::FinishEnd(const std::vector<std::int64_t>& unkillable, TimePoint now) {
  const End end = *std::exchange(end_, std::nullopt);
  const bool changed = processes_.SetUnkillable(unkillable, now);
  gang_.terminated = true;
  processes_.KeepParked();
  const GuardianQuiesced quiesced = Quiesced();
  out_.Note("g" + std::to_string(newest_) + ": " +
            (unkillable.empty() ? "nothing of it runs any more"
                                : std::to_string(unkillable.size()) + " processes resist") +
            ", " + std::to_string(quiesced.parked_ranks.size()) + " are parked");
  UnlockUnused();
  const bool bind_next =
      end.keep && end.next_master.kind != MasterSocket::kNone && !leaving_ && !pending_prepare_;
  if (bind_next) {
    next_master_ = end.next_master;
    out_.Add(BindMaster{next_master_->kind, next_master_->bind_address});  // then Quiesced
    return;
  }
  // Freed slots are reported even if only a preparation has requested it.
  if (end.answer || changed) out_.Send(quiesced);
  if (leaving_)
    out_.Add(Leave{});
  else if (pending_prepare_)
    PrepareNow(now);
}

}  // namespace muster::guardian
