// The highest layer of GuardianCore: what processes and the kernel report, and the end of a whole
// generation that follows from it.

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "worker/guardian/guardian_core.h"

namespace muster::guardian {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxSegmentName = 200;

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

Effects GuardianCore::On(const MessageReceived& message, TimePoint) {
  const auto& [id, text, has_descriptor] = message;
  const auto it = processes_.find(id);
  const Json json = Json::parse(text, nullptr, false);
  if (it == processes_.end() || !json.is_object()) return Take();
  Process& process = it->second;
  const std::string type = TextOf(json, "type");
  if (type == "standby_ready") {
    process.ready = true;
    return Take();
  }
  const auto stamp = json.find("generation");
  const bool stale = stamp != json.end() && *stamp != process.generation;
  // Messages left over from an earlier assignment belong to a generation that is no longer needed.
  if (!gang_ || process.generation != gang_->generation || stale) return Take();
  if (type == "segment") {
    if (has_descriptor) HoldFrom(id, TextOf(json, "name"));
  } else if (type == "drop_segment") {
    LetGo(TextOf(json, "name"));
  } else if (type == "cut") {
    NoteCut(TextsOf(json, "segments"));
  } else {
    if (type == "parked" && process.state == Process::State::kAssigned)
      process.state = Process::State::kParked;
    if (Member* member = MemberOf(id, process); member != nullptr && type == "first_step")
      member->first_step = true;
    gang_->reports.Add(process.rank, type, text);
    Send(GuardianReport{gang_->generation, process.rank, text});
  }
  KeepStandbys();
  return Take();
}

void GuardianCore::HoldFrom(ProcessId id, const std::string& name) {
  if (name.empty() || name.size() > kMaxSegmentName) return;
  std::erase_if(segments_, [&](const Segment& s) { return s.name == name; });
  segments_.push_back({.name = name, .maker = id, .made = gang_->generation});
  effects_.push_back(HoldSegment{name});
  Send(GuardianSegment{name}, 0, name);
  const std::size_t ranks = std::max<std::size_t>(gang_->node_ranks.size(), 1);
  while (segments_.size() > kSegmentsPerRank * ranks) LetGo(std::string(LeastUseful()->name));
}

// Its ranks have seen all that is held here and elsewhere, and have agreed on the newest whole
// state: what existed then and is not part of it will not be part of a later choice.
void GuardianCore::NoteCut(const std::vector<std::string>& segments) {
  cut_told_ = gang_->generation;
  for (Segment& segment : segments_)
    if (std::ranges::find(segments, segment.name) != segments.end()) segment.cut = cut_told_;
}

// By age alone the only whole state would be dropped if gangs of several sizes in a row fail to
// form, each with new segments.
std::deque<GuardianCore::Segment>::const_iterator GuardianCore::LeastUseful() const {
  const auto use = [&](const Segment& segment) {
    if (cut_told_ > 0 && segment.cut == cut_told_) return 3;
    if (segment.made == gang_->generation) return 2;
    return segment.made < cut_told_ ? 0 : 1;
  };
  return std::ranges::min_element(segments_, {}, use);  // the oldest of them
}

void GuardianCore::LetGo(const std::string& name) {
  if (std::erase_if(segments_, [&](const Segment& s) { return s.name == name; }) == 0) return;
  effects_.push_back(ReleaseSegment{name});
  Send(GuardianSegment{.name = name, .dropped = true});
}

Effects GuardianCore::On(const ProcessEnded& ended, TimePoint now) {
  const auto& [id, end] = ended;
  const auto it = processes_.find(id);
  if (it == processes_.end()) return Take();
  const Process process = it->second;
  Member* member = MemberOf(id, process);
  processes_.erase(it);
  if (member != nullptr && !member->exited) {
    ProcessEnd seen = end;
    seen.out_of_memory &= !process.being_killed;
    ReportExit(process.rank, *member, seen, now);
  } else if (process.state == Process::State::kStandby && !process.being_killed) {
    CountStandbyFailure(DescribeExit(end.exit));
  } else {
    Note("process " + std::to_string(process.pid) +
         ", which served no generation, ended: " + DescribeExit(end.exit));
  }
  const auto is_it = [&](const auto& entry) { return entry.second.process == id; };
  if (!gang_ || std::ranges::none_of(gang_->members, is_it)) effects_.push_back(ForgetProcess{id});
  KeepStandbys();
  return Take();
}

Effects GuardianCore::On(const Tick&, TimePoint now) {
  if (!end_) {
    CheckUnkillable(now);
    return Take();
  }
  const bool late = now >= end_->kill_at;
  if (!late && AnyToEnd(end_->keep)) return Take();
  // Descendants that the ranks have left get the grace period as well, but they do not park.
  const bool kill = late || end_->keep;
  if (kill) {
    if (!end_->give_up_at) end_->give_up_at = now + kKillBudget;
    for (auto& [id, process] : processes_)
      if (!process.being_killed && !(end_->keep && process.Waits())) Kill(id, process);
  }
  effects_.push_back(SweepAllBut(end_->keep, kill));
  return Take();
}

Effects GuardianCore::On(const Swept& swept, TimePoint now) {
  const SweepResult& result = swept.result;
  if (!end_) {
    UnkillableSwept(result);
    return Take();
  }
  // Those that have resisted before had their time.
  const bool only_known =
      !result.left.empty() &&
      std::ranges::all_of(result.left, [this](std::int64_t pid) { return IsUnkillable(pid); });
  const bool done = (result.none_left || only_known) && !AnyToEnd(end_->keep);
  if (done || (end_->give_up_at && now >= *end_->give_up_at)) FinishEnd(result.left);
  if (waits_for_unkillable()) check_unkillable_at_ = now + kUnkillableTick;
  KeepStandbys();
  return Take();
}

void GuardianCore::CheckUnkillable(TimePoint now) {
  if (unkillable_.empty() || now < check_unkillable_at_) return;
  check_unkillable_at_ = now + kUnkillableTick;
  if (!gang_ || gang_->terminated) {
    effects_.push_back(SweepAllBut(true, true));
    return;
  }
  // A newer generation lives beside them, and descendants of its ranks are its own.
  Sweep look;
  for (const auto& [id, process] : processes_)
    if (!IsUnkillable(process.pid)) look.keep.push_back(id);
  effects_.push_back(std::move(look));
}

void GuardianCore::UnkillableSwept(const SweepResult& result) {
  if (gang_ && !gang_->terminated) return UnkillableSeen(result);
  const bool all_gone = result.none_left && !AnyToEnd(true);
  // One that has just ended may be neither a living process nor waited for yet.
  if (unkillable_.empty() || (!all_gone && result.left.empty())) return;
  const std::vector<std::int64_t> before =
      std::exchange(unkillable_, all_gone ? std::vector<std::int64_t>() : result.left);
  if (unkillable_ == before) return;
  Note("g" + std::to_string(newest_) + ": of " + std::to_string(before.size()) +
       " processes that resisted " + std::to_string(unkillable_.size()) + " are left");
  Send(Quiesced());
}

// Beside a living generation, which a Quiesced would report as over.
void GuardianCore::UnkillableSeen(const SweepResult& result) {
  if (!result.none_left && result.left.empty()) return;
  std::vector<std::int64_t> left = unkillable_;
  std::erase_if(left, [&](std::int64_t pid) {
    return std::ranges::find(result.left, pid) == result.left.end();
  });
  if (left == unkillable_) return;
  unkillable_ = std::move(left);
  Send(GuardianQuiesced{.generation = gang_->generation - 1, .unkillable_pids = unkillable_});
}

void GuardianCore::FinishEnd(const std::vector<std::int64_t>& unkillable) {
  const End end = *std::exchange(end_, std::nullopt);
  const bool changed = std::exchange(unkillable_, unkillable) != unkillable;
  if (gang_) gang_->terminated = true;
  for (auto& [id, process] : processes_)
    if (process.state == Process::State::kParked) process.state = Process::State::kKept;
  const GuardianQuiesced quiesced = Quiesced();
  Note("g" + std::to_string(newest_) + ": " +
       (unkillable_.empty() ? "nothing of it runs any more"
                            : std::to_string(unkillable_.size()) + " processes resist") +
       ", " + std::to_string(quiesced.parked_ranks.size()) + " are parked");
  const bool bind_next =
      end.keep && end.next_master.kind != MasterSocket::kNone && !leaving_ && !pending_prepare_;
  if (bind_next) {
    next_master_ = end.next_master;
    effects_.push_back(
        BindMaster{next_master_->kind, next_master_->bind_address});  // then Quiesced
    return;
  }
  // Freed slots are reported even if only a preparation has requested it.
  if (end.answer || changed) Send(quiesced);
  if (leaving_)
    effects_.push_back(Leave{});
  else if (pending_prepare_)
    PrepareNow(*std::exchange(pending_prepare_, std::nullopt));
}

}  // namespace muster::guardian
