#include "worker/allocation/election.h"

#include <algorithm>
#include <utility>

namespace muster::worker {
namespace {

// Reads of the leader's record: often while everything waits for it, rarely later.
constexpr Duration kEagerRead = std::chrono::milliseconds(20);
constexpr Duration kElectionRead = std::chrono::milliseconds(200);
constexpr Duration kIdleRead = std::chrono::milliseconds(500);
constexpr Duration kEagerFor = std::chrono::seconds(5);
constexpr Duration kLeaderRead = std::chrono::seconds(2);
// Reads of all records: as many files as there are nodes.
constexpr Duration kMembersRead = std::chrono::seconds(2);
constexpr Duration kGiveUpAgain = std::chrono::seconds(20);
// Between two questions to one peer during an election.
constexpr Duration kAskAgain = std::chrono::milliseconds(150);
constexpr Duration kAskLost = std::chrono::seconds(1);
// A coordinator that ran this long was a working one.
constexpr Duration kSoundRun = std::chrono::seconds(30);
constexpr Duration kRestartPause = std::chrono::milliseconds(100);
constexpr int kRefusals = 3;
constexpr int kFailedStarts = 3;  // in a row
// A node that reaches no other in a gang of three or more is probably cut off itself: it waits
// before it takes over, and twice as long each time that it was deposed.
constexpr Duration kIsolation = std::chrono::seconds(10);
constexpr Duration kBoot = std::chrono::seconds(20);  // for a first leader to appear
constexpr int kAskedAtOnce = 16;
// With many nodes the leader is asked by all of them.
constexpr Duration kAskIntervalPerNode = std::chrono::milliseconds(1);

}  // namespace

Duration ElectionOptions::AskInterval() const {
  return std::max<Duration>(ask_interval, kAskIntervalPerNode * node_count);
}

Election::Election(ElectionOptions options, TimePoint now)
    : options_(options),
      role_since_(now),
      read_at_(now),
      isolation_(options.node_count > 2 ? kIsolation : Duration::zero()) {
  if (options_.index == 0 && options_.first_leads) Lead(now);
}

bool Election::unfit() const { return failed_starts_ >= kFailedStarts; }

std::vector<ElectionEffect> Election::TakeEffects() { return std::exchange(effects_, {}); }

void Election::Tick(TimePoint now) {
  switch (role_) {
    case Role::kSeeking: return Seek(now);
    case Role::kFollowing: return WatchLeader(now);
    case Role::kElecting: return Elect(now);
    case Role::kLeading: return KeepLeading(now);
  }
}

bool Election::Alive(int index, TimePoint now) const {
  if (index == options_.index) return true;
  const auto found = peers_.find(index);
  return found != peers_.end() && found->second.heard &&
         now - *found->second.heard < options_.AliveFor();
}

bool Election::Refuses(int index) const {
  const auto found = peers_.find(index);
  return found != peers_.end() && found->second.refusals > 0;
}

bool Election::LeaderAnswers() const {
  if (role_ != Role::kFollowing) return false;
  const Peer& leader = peers_.at(leadership_.leader.index);
  return !leader.silent_since && !leader.unfit;
}

bool Election::RecordIsAlive(TimePoint now) const {
  return heartbeat_at_ && now - *heartbeat_at_ < kRecordStale;
}

// --- reading the shared directory ---

Duration Election::ReadInterval(TimePoint now) const {
  if (role_ == Role::kLeading) return kLeaderRead;
  if (role_ == Role::kFollowing) {
    // Whether its record still changes decides what its silence means.
    const auto leader = peers_.find(leadership_.leader.index);
    const bool silent = leader != peers_.end() && leader->second.silent_since;
    return silent ? kElectionRead : kLeaderRead;
  }
  if (now - role_since_ >= kEagerFor) return kIdleRead;
  return role_ == Role::kElecting ? kElectionRead : kEagerRead;
}

void Election::Read(TimePoint now) {
  if (now < read_at_) return;
  read_at_ = now + ReadInterval(now);
  const bool members = role_ == Role::kElecting && now >= members_at_;
  if (members) members_at_ = now + kMembersRead;
  effects_.push_back(ReadShared{members});
}

void Election::OnShared(const std::optional<std::vector<Member>>& members,
                        const std::optional<Leadership>& leadership, std::uint64_t heartbeat,
                        TimePoint now) {
  // The first one that is seen may be old.
  if (leadership && heartbeat != heartbeat_) {
    if (heartbeat_ != 0) heartbeat_at_ = now;
    heartbeat_ = heartbeat;
  }
  if (members) {
    for (const Member& member : *members) members_[member.index] = member;
    members_known_ = true;
  }
  if (leadership) Adopt(*leadership, now);
}

// --- answers and silence ---

void Election::OnAnswer(const PeerView& peer, TimePoint now) {
  if (peer.self.index == options_.index) return;
  members_[peer.self.index] = peer.self;
  Peer& known = peers_[peer.self.index];
  known = Peer{.heard = now,
               .silent_since = {},
               .asked = known.asked,
               .sees_leader = peer.leader_answers ? peer.leadership.epoch : 0,
               .unfit = peer.unfit};
  if (!reached_at_) reached_at_ = now;
  Adopt(peer.leadership, now);
  const bool leads = leadership_.epoch > 0 && peer.leadership == leadership_ &&
                     peer.self.index == leadership_.leader.index && !peer.unfit;
  if (role_ != Role::kElecting || !leads) return;
  role_ = Role::kFollowing;
  role_since_ = now;
}

void Election::OnSilence(int index, bool refused, TimePoint now) {
  Peer& peer = peers_[index];
  peer.asking = false;
  peer.refusals = refused ? peer.refusals + 1 : 0;
  if (!peer.silent_since) peer.silent_since = peer.asked;
  const bool leads = index == leadership_.leader.index;
  if (leads && reached_at_ && peer.asked >= *reached_at_) leader_left_unanswered_ = true;
  if (refused && !reached_at_) reached_at_ = now;
  Tick(now);
}

bool Election::Gone(const Peer& peer, TimePoint now) const {
  if (!peer.silent_since) return false;
  const Duration silent = now - *peer.silent_since;
  if (peer.refusals >= kRefusals && silent >= options_.refusal) return true;
  return silent >= options_.silence;
}

void Election::Ask(int index, TimePoint now) {
  Peer& peer = peers_[index];
  if (peer.asking || members_.count(index) == 0) return;
  peer.asking = true;
  peer.asked = now;
  effects_.push_back(AskPeer{index});
}

// A higher epoch than the known one: its coordinator has fenced the other.
void Election::Adopt(const Leadership& leadership, TimePoint now) {
  if (leadership.epoch <= leadership_.epoch) return;
  if (leadership.leader.index == options_.index) return;  // an earlier leadership of this node
  if (coordinator_runs_) effects_.push_back(StopCoordinator{});
  if (role_ == Role::kLeading) isolation_ = std::max(isolation_ * 2, kIsolation);
  start_at_.reset();
  leadership_ = leadership;
  members_[leadership.leader.index] = leadership.leader;
  // A report of it counts as an answer: the next heartbeat shows whether it lives.
  Peer& leader = peers_[leadership.leader.index];
  leader = Peer{.heard = now, .silent_since = {}, .asked = now - options_.ask_interval};
  role_ = Role::kFollowing;
  role_since_ = now;
  effects_.push_back(Follow{leadership_});
}

// --- the roles ---

void Election::Seek(TimePoint now) {
  Read(now);
  if (now - role_since_ >= kBoot) BeginElection(now);
}

void Election::WatchLeader(TimePoint now) {
  Read(now);
  Peer& leader = peers_[leadership_.leader.index];
  // A supervisor that cannot run a coordinator any more answers, but does not lead.
  if (Gone(leader, now) || leader.unfit) return BeginElection(now);
  if (now - leader.asked >= (leader.silent_since ? kAskAgain : options_.AskInterval()))
    Ask(leadership_.leader.index, now);
}

void Election::BeginElection(TimePoint now) {
  role_ = Role::kElecting;
  role_since_ = now;
  read_at_ = now;
  members_at_ = now;
  members_known_ = false;
  give_up_at_ = now + options_.give_up;
  reached_at_.reset();
  leader_left_unanswered_ = false;
  // Earlier answers mean nothing now; the fact that the leader is gone stays.
  for (auto& [index, peer] : peers_) {
    if (index != leadership_.leader.index) peer = Peer{};
    peer.heard.reset();
  }
  Tick(now);
}

void Election::Elect(TimePoint now) {
  Read(now);
  // The other members must be known; if the shared directory does not answer, those that were seen.
  if (!members_known_ && now - role_since_ < options_.silence) return;
  AskAbove(now);
  if (AskBelow(now)) return;
  if (unfit()) return ConsiderGivingUp(now);
  if (MayTakeOver(now) && !LeaderMayAnswer(now)) Lead(now);
}

// Those below are asked in their order, some at a time; false when none is left that could lead.
// Those that are gone or unfit are asked as well, but not waited for.
bool Election::AskBelow(TimePoint now) {
  int candidates = 0;
  for (const auto& [index, member] : members_) {
    if (index >= options_.index) break;
    const Peer& peer = peers_[index];
    const bool candidate = !Gone(peer, now) && !(peer.heard && peer.unfit);
    candidates += candidate ? 1 : 0;
    if (candidate && candidates > kAskedAtOnce) continue;
    if (now - peer.asked >= (candidate ? kAskAgain : kAskLost)) Ask(index, now);
  }
  return candidates > 0;
}

// The former leader may be back, and any answer shows that this node is not cut off.
void Election::AskAbove(TimePoint now) {
  int asked = 0;
  for (auto it = members_.upper_bound(options_.index); it != members_.end(); ++it) {
    if (++asked > kAskedAtOnce && it->first != leadership_.leader.index) continue;
    if (now - peers_[it->first].asked >= kAskAgain) Ask(it->first, now);
  }
}

// A node that reaches no other is cut off if the others' leader goes on writing, and must not fence
// it.
bool Election::MayTakeOver(TimePoint now) const {
  if (AnotherSeesLeader()) return false;
  const bool reached = std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return entry.second.heard || entry.second.refusals > 0;
  });
  return reached || (now - role_since_ >= isolation_ && !RecordIsAlive(now));
}

// The leader lives, and only the link from here to it is lost, or does not work again yet: TCP
// repeats what a cut link swallowed seconds later.
bool Election::AnotherSeesLeader() const {
  return std::any_of(peers_.begin(), peers_.end(), [this](const auto& entry) {
    const Peer& peer = entry.second;
    return peer.sees_leader == leadership_.epoch && peer.sees_leader > 0 && !peer.silent_since;
  });
}

// A node that was cut off and is back reaches any of the others first. The leader's silence while
// the node reached no other means nothing: the leader must leave a later question unanswered.
bool Election::LeaderMayAnswer(TimePoint now) {
  const int index = leadership_.leader.index;
  if (leadership_.epoch == 0 || index == options_.index || !reached_at_) return false;
  const Peer& leader = peers_[index];
  if (leader.refusals >= kRefusals || leader.unfit || members_.count(index) == 0) return false;
  if (leader.asked < *reached_at_) Ask(index, now);
  return !leader_left_unanswered_;
}

void Election::ConsiderGivingUp(TimePoint now) {
  if (now < give_up_at_ || RecordIsAlive(now)) return;
  const bool others = std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const bool could = !entry.second.unfit || entry.first < options_.index;
    return could && entry.second.heard && Alive(entry.first, now);
  });
  if (others) return;
  give_up_at_ = now + kGiveUpAgain;
  effects_.push_back(GiveUp{});
}

void Election::Lead(TimePoint now) {
  role_ = Role::kLeading;
  role_since_ = now;
  coordinator_runs_ = true;
  start_at_.reset();
  effects_.push_back(StartCoordinator{});
}

void Election::KeepLeading(TimePoint now) {
  Read(now);
  if (!start_at_ || now < *start_at_) return;
  start_at_.reset();
  coordinator_runs_ = true;
  effects_.push_back(StartCoordinator{});
}

void Election::OnCoordinatorUp(const Leadership& own, TimePoint now) {
  if (role_ != Role::kLeading || own.epoch <= leadership_.epoch) return;
  coordinator_up_ = now;
  leadership_ = own;
  effects_.push_back(Announce{});
  effects_.push_back(Follow{own});
}

void Election::OnCoordinatorDown(TimePoint now) {
  coordinator_runs_ = false;
  if (role_ != Role::kLeading) return;
  const bool sound = leadership_.leader.index == options_.index && coordinator_up_ >= role_since_ &&
                     now - coordinator_up_ >= kSoundRun;
  failed_starts_ = sound ? 1 : failed_starts_ + 1;
  // Another may have taken over, and fenced it.
  effects_.push_back(ReadShared{});
  if (unfit()) return BeginElection(now);
  start_at_ = now + kRestartPause * (1 << (failed_starts_ - 1));
}

}  // namespace muster::worker
