// Election: which supervisor of an allocation runs the coordinator. Pure.
//
// The lowest live index leads. The first one starts a coordinator without asking; the others follow
// the one that they find in the shared directory, and send it heartbeats. When the leader falls
// silent, each asks those below it that are left, and leads when none of them answers that it can
// and no node answers that the leader still answers it.
// Two may do so at once if links are cut: each coordinator claims a higher epoch in the journal,
// which stops the older one at its next commit, and a supervisor follows the highest epoch that it
// knows. So an election may be wrong for a while; the decisions are not.
//
// Owned by a Supervisor; its thread. Time is an argument.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "worker/allocation/peer_view.h"

namespace muster::worker {

struct ElectionOptions {
  int index = 0;
  int node_count = 1;
  // The first one starts a coordinator without asking; false: it has lost its lead, and is back.
  bool first_leads = true;
  Duration ask_interval = std::chrono::milliseconds(500);
  // Silence of the leader before another takes over. Refused connections prove that its process is
  // gone, so they need not last as long.
  Duration silence = std::chrono::milliseconds(2500);
  Duration refusal = std::chrono::milliseconds(400);
  Duration give_up = std::chrono::seconds(120);  // without any leader

  // How often a supervisor asks the leader; less often with more nodes, since all of them ask.
  Duration AskInterval() const;
  // How long after a sign of life a node counts as alive: one heartbeat more than silence needs.
  Duration AliveFor() const { return AskInterval() + silence; }
};

// The leader touches its record in the shared directory this often. A node that reaches no other
// over the network sees there whether the others go on without it: after `kRecordStale` without a
// change they do not.
inline constexpr Duration kRecordHeartbeat = std::chrono::seconds(1);
inline constexpr Duration kRecordStale = std::chrono::seconds(3);

// Effects.
struct AskPeer {  // answered by OnAnswer or OnSilence
  int index = -1;
};
struct ReadShared {      // answered by OnShared
  bool members = false;  // the leader alone is not enough: read the members as well
};
struct StartCoordinator {};  // answered by OnCoordinatorUp or OnCoordinatorDown
struct StopCoordinator {};
struct Announce {};  // write to the shared directory that this supervisor leads
struct Follow {      // point this node's worker there; also to its own coordinator
  Leadership leadership;
};
// No visible node is able to lead, and this one is the lowest that is left. Repeated from time to
// time while that is so: the scheduler knows the state of the others.
struct GiveUp {};
using ElectionEffect =
    std::variant<AskPeer, ReadShared, StartCoordinator, StopCoordinator, Announce, Follow, GiveUp>;

class Election {
 public:
  Election(ElectionOptions options, TimePoint now);

  void Tick(TimePoint now);
  // The content of the shared directory: all members of this run, if requested, the leader, and a
  // number that changes with each touch of the leader's record.
  void OnShared(const std::optional<std::vector<Member>>& members,
                const std::optional<Leadership>& leadership, std::uint64_t heartbeat,
                TimePoint now);
  // A peer's view, as an answer or with a question of its own.
  void OnAnswer(const PeerView& peer, TimePoint now);
  // It gave no answer. `refused`: at once, so its process is gone.
  void OnSilence(int index, bool refused, TimePoint now);
  void OnCoordinatorUp(const Leadership& own, TimePoint now);
  void OnCoordinatorDown(TimePoint now);

  std::vector<ElectionEffect> TakeEffects();

  bool leading() const { return role_ == Role::kLeading && leadership_.epoch > 0; }
  // Its coordinator does not start: this node is no longer a candidate.
  bool unfit() const;
  const Leadership& leadership() const { return leadership_; }
  const std::map<int, Member>& members() const { return members_; }
  // The last question to the leader that it follows was answered.
  bool LeaderAnswers() const;
  // Has answered or asked recently; also this one.
  bool Alive(int index, TimePoint now) const;
  // Did not answer, but its machine did: the supervisor there has ended.
  bool Refuses(int index) const;
  // The record of a leader in the shared directory is touched.
  bool RecordIsAlive(TimePoint now) const;

 private:
  enum class Role { kSeeking, kFollowing, kElecting, kLeading };
  struct Peer {
    std::optional<TimePoint> heard;
    std::optional<TimePoint> silent_since;  // first question after `heard` without an answer
    TimePoint asked{};
    int refusals = 0;               // in a row
    std::uint64_t sees_leader = 0;  // the epoch of a leader that answers it; 0: none
    bool asking = false;
    bool unfit = false;
  };

  void Seek(TimePoint now);
  void WatchLeader(TimePoint now);
  void Elect(TimePoint now);
  bool AskBelow(TimePoint now);
  void AskAbove(TimePoint now);
  bool MayTakeOver(TimePoint now) const;
  bool LeaderMayAnswer(TimePoint now);
  bool AnotherSeesLeader() const;
  void ConsiderGivingUp(TimePoint now);
  void KeepLeading(TimePoint now);
  void Ask(int index, TimePoint now);
  bool Gone(const Peer& peer, TimePoint now) const;
  void BeginElection(TimePoint now);
  void Lead(TimePoint now);
  void Adopt(const Leadership& leadership, TimePoint now);
  Duration ReadInterval(TimePoint now) const;
  void Read(TimePoint now);

  const ElectionOptions options_;
  Role role_ = Role::kSeeking;
  Leadership leadership_;
  std::map<int, Member> members_;
  std::map<int, Peer> peers_;
  bool members_known_ = false;             // since the election began
  TimePoint members_at_{};                 // when they are read again
  std::uint64_t heartbeat_ = 0;            // of the leader's record
  std::optional<TimePoint> heartbeat_at_;  // when it was seen to change
  std::optional<TimePoint> give_up_at_;
  std::optional<TimePoint> reached_at_;  // when any node was first reached in this election
  bool leader_left_unanswered_ = false;  // a question that was asked since then
  TimePoint role_since_;
  TimePoint read_at_;
  std::optional<TimePoint> start_at_;  // of the own coordinator, after one that ended
  bool coordinator_runs_ = false;      // from the order to start it to its end
  TimePoint coordinator_up_{};
  int failed_starts_ = 0;
  Duration isolation_;  // waited if no other is reached
  std::vector<ElectionEffect> effects_;
};

}  // namespace muster::worker
