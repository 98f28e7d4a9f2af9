// The lowest layer of GuardianCore: its processes, what ends them, and what is reported of them.

#include <signal.h>

#include <algorithm>
#include <utility>

#include "worker/guardian/guardian_core.h"

namespace muster::guardian {

std::string RankName(Generation generation, int rank) {
  const std::string who = rank == kStoreRank ? "store" : "rank " + std::to_string(rank);
  return "g" + std::to_string(generation) + ": " + who;
}

GuardianCore::Member* GuardianCore::MemberOf(ProcessId id, const Process& process) {
  const bool serves =
      process.state == Process::State::kAssigned || process.state == Process::State::kParked;
  if (!gang_ || !serves || process.generation != gang_->generation) return nullptr;
  const auto it = gang_->members.find(process.rank);
  return it != gang_->members.end() && it->second.process == id ? &it->second : nullptr;
}

void GuardianCore::ReportExit(int rank, Member& member, const ProcessEnd& end, TimePoint now) {
  member.exited_at = now;
  member.exited = GuardianRankExited{.generation = gang_->generation,
                                     .rank = rank,
                                     .end = {.exit = end.exit,
                                             .ended = end_.has_value(),
                                             .out_of_memory = end.out_of_memory,
                                             .asked_to_stop = member.asked_to_stop},
                                     .log_tail = end.log_tail};
  if (!gang_->kill_reason.empty())
    member.exited->log_tail.push_back("muster: " + gang_->kill_reason);
  const GuardianRankExited exited = ExitedNow(member, now);
  Note(RankName(exited.generation, rank) + " ended: " + DescribeExit(exited.end.exit));
  if (rank == kStoreRank) {
    // Without it ranks that form would wait for minutes.
    if (Lives(gang_->generation))
      KillRanks("the store ended (" + DescribeExit(exited.end.exit) + "), see store.log");
    return;
  }
  effects_.push_back(WriteExitRecord{exited});
  Send(exited);
}

GuardianRankExited GuardianCore::ExitedNow(const Member& member, TimePoint now) const {
  GuardianRankExited exited = *member.exited;
  exited.age_seconds = ToSeconds(now - member.exited_at);
  exited.end.node_stopped =
      stopped_at_ && member.exited_at >= *stopped_at_ && exited.end.exit.signal == SIGKILL;
  return exited;
}

void GuardianCore::KillRanks(const std::string& why) {
  gang_->kill_reason = why;
  for (auto& [id, process] : processes_)
    if (process.state == Process::State::kAssigned) Kill(id, process);
}

void GuardianCore::Kill(ProcessId id, Process& process) {
  process.being_killed = true;
  effects_.push_back(SignalProcess{id, SIGKILL});
}

bool GuardianCore::IsUnkillable(std::int64_t pid) const {
  return std::ranges::find(unkillable_, pid) != unkillable_.end();
}

bool GuardianCore::AnyToEnd(bool keep) const {
  return std::ranges::any_of(processes_, [&](const auto& entry) {
    const Process& process = entry.second;
    return !IsUnkillable(process.pid) && (!keep || !process.Waits());
  });
}

bool GuardianCore::Quiet(bool keep) const {
  return !end_ && (!gang_ || gang_->terminated) && !AnyToEnd(keep);
}

GuardianQuiesced GuardianCore::Quiesced() const {
  GuardianQuiesced quiesced{.generation = newest_, .unkillable_pids = unkillable_};
  if (next_master_) quiesced.next_master_port = next_master_->port;
  for (const auto& [id, process] : processes_) {
    if (process.being_killed) continue;
    if (process.state == Process::State::kKept) quiesced.parked_ranks.push_back(process.rank);
    if (process.state == Process::State::kStandby) ++quiesced.standbys;
  }
  std::ranges::sort(quiesced.parked_ranks);
  return quiesced;
}

void GuardianCore::BeginEnd(const End& wanted) {
  CloseMasterSocket();
  if (gang_) gang_->terminated = false;
  if (!end_) {
    end_ = wanted;
    return;
  }
  end_->kill_at = std::min(end_->kill_at, wanted.kill_at);
  end_->keep &= wanted.keep;
  end_->answer |= wanted.answer;
  end_->next_master = wanted.next_master;
}

Sweep GuardianCore::SweepAllBut(bool keep, bool kill) const {
  Sweep sweep{.kill = kill};
  for (const auto& [id, process] : processes_)
    if (keep && process.Waits()) sweep.keep.push_back(id);
  return sweep;
}

void GuardianCore::Send(GuardianEvent event, ProcessId page_of, std::string segment) {
  effects_.push_back(SendToWorker{std::move(event), page_of, std::move(segment)});
}

bool GuardianCore::Lives(Generation generation) const {
  return gang_ && gang_->generation == generation && !gang_->terminated && !end_;
}

void GuardianCore::CloseMasterSocket() {
  next_master_.reset();
  effects_.push_back(CloseMaster{});
}

void GuardianCore::EndParkedProcesses() {
  for (auto& [id, process] : processes_)
    if (process.state == Process::State::kKept && !process.being_killed) {
      Note("nothing is left to do for the parked process " + std::to_string(process.pid));
      Kill(id, process);
    }
}

}  // namespace muster::guardian
