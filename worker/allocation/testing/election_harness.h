// Several elections of one allocation in one thread, with links that can be cut, a shared
// directory, and a journal that gives every coordinator a higher epoch and stops the older one.
// Tests only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "worker/allocation/election.h"

namespace muster::worker {

class ElectionHarness {
 public:
  static constexpr Duration kStep = std::chrono::milliseconds(20);
  static constexpr Duration kCoordinatorStart = std::chrono::milliseconds(100);
  static constexpr Duration kQuestionLimit = std::chrono::milliseconds(700);

  explicit ElectionHarness(int nodes, ElectionOptions options = {}) {
    for (int i = 0; i < nodes; ++i) {
      options.index = i;
      options.node_count = nodes;
      nodes_.push_back(Node{.election = std::make_unique<Election>(options, now_)});
      shared_members_.push_back(MemberOf(i));
    }
  }

  static Member MemberOf(int index) {
    return {index, "n" + std::to_string(index), "10.0.0." + std::to_string(index) + ":1"};
  }

  void Run(Duration duration) {
    for (const TimePoint end = now_ + duration; now_ < end; now_ += kStep) Step();
  }
  // Until `done`, at most this long.
  template <typename Condition>
  bool RunUntil(Condition done, Duration limit) {
    for (const TimePoint end = now_ + limit; now_ < end; now_ += kStep) {
      if (done()) return true;
      Step();
    }
    return done();
  }

  void Kill(int node) {
    nodes_[Index(node)].alive = false;
    nodes_[Index(node)].coordinator = 0;
  }
  // The node's power fails: questions get neither a refusal nor an answer.
  void PowerOff(int node) {
    Kill(node);
    nodes_[Index(node)].answers = false;
  }
  void Cut(int a, int b) { cut_.insert({std::min(a, b), std::max(a, b)}); }
  void CutOff(int node) {
    for (int other = 0; other < size(); ++other)
      if (other != node) Cut(node, other);
  }
  void HealAll() { cut_.clear(); }
  void KillCoordinator(int node) {
    Node& one = nodes_[Index(node)];
    one.coordinator = 0;
    one.election->OnCoordinatorDown(now_);
  }
  void ForbidCoordinators(int node) { nodes_[Index(node)].may_start = false; }

  int size() const { return static_cast<int>(nodes_.size()); }
  bool alive(int node) const { return nodes_[Index(node)].alive; }
  const Election& of(int node) const { return *nodes_[Index(node)].election; }
  // The coordinator that its worker follows.
  std::uint64_t followed(int node) const { return nodes_[Index(node)].followed; }
  std::uint64_t epoch() const { return epoch_; }
  // Nodes that have given up.
  int give_ups() const { return static_cast<int>(gave_up_.size()); }
  bool GaveUp(int node) const { return gave_up_.count(node) > 0; }
  TimePoint now() const { return now_; }

  // The node whose coordinator all live nodes follow and which runs; -1: they do not agree.
  int Leader() const {
    int leader = -1;
    for (int node = 0; node < size(); ++node) {
      if (!alive(node)) continue;
      const int theirs = of(node).leadership().leader.index;
      if (followed(node) == 0 || followed(node) != epoch_ || (leader >= 0 && leader != theirs))
        return -1;
      leader = theirs;
    }
    if (leader < 0 || !alive(leader) || nodes_[Index(leader)].coordinator != epoch_) return -1;
    return leader;
  }
  int RunningCoordinators() const {
    int running = 0;
    for (const Node& node : nodes_) running += node.coordinator != 0 ? 1 : 0;
    return running;
  }

 private:
  struct Node {
    std::unique_ptr<Election> election;
    bool alive = true;
    bool answers = true;
    bool may_start = true;
    std::uint64_t coordinator = 0;  // its epoch; 0: none runs
    std::optional<TimePoint> coordinator_ready;
    std::uint64_t followed = 0;
    std::optional<ReadShared> reading;
  };
  struct Question {
    int from = 0;
    int to = 0;
    TimePoint ends{};
  };

  static std::size_t Index(int node) { return static_cast<std::size_t>(node); }
  bool Linked(int a, int b) const { return cut_.count({std::min(a, b), std::max(a, b)}) == 0; }

  PeerView ViewOf(int node) const {
    return {.self = MemberOf(node),
            .leadership = of(node).leadership(),
            .leader_answers = of(node).LeaderAnswers(),
            .unfit = of(node).unfit(),
            .stop_reason = {},
            .ending = {}};
  }

  void Step() {
    std::erase_if(questions_, [this](const Question& question) {
      if (!nodes_[Index(question.from)].alive) return true;
      if (question.ends > now_) return false;
      nodes_[Index(question.from)].election->OnSilence(question.to, false, now_);
      return true;
    });
    for (int node = 0; node < size(); ++node) {
      Node& one = nodes_[Index(node)];
      if (!one.alive) continue;
      if (one.coordinator_ready && now_ >= *one.coordinator_ready) Begin(node);
      if (const auto read = std::exchange(one.reading, std::nullopt)) Answer(node, *read);
      one.election->Tick(now_);
      for (const ElectionEffect& effect : one.election->TakeEffects())
        std::visit([&](const auto& e) { Do(node, e); }, effect);
    }
  }

  void Answer(int node, const ReadShared& read) {
    std::optional<std::vector<Member>> members;
    if (read.members) members = shared_members_;
    nodes_[Index(node)].election->OnShared(members, shared_leadership_, Heartbeat(), now_);
  }

  // A leader touches its record for as long as it has a coordinator.
  std::uint64_t Heartbeat() {
    const auto& leads = shared_leadership_;
    if (leads && alive(leads->leader.index) &&
        nodes_[Index(leads->leader.index)].coordinator == leads->epoch)
      heartbeat_ = 1 + static_cast<std::uint64_t>(now_.time_since_epoch() / kRecordHeartbeat);
    return heartbeat_;
  }

  // The journal gives the next epoch; the previous coordinator fails at its next commit, here at
  // once.
  void Begin(int node) {
    Node& one = nodes_[Index(node)];
    one.coordinator_ready.reset();
    if (!one.may_start) return one.election->OnCoordinatorDown(now_);
    ++epoch_;
    for (int other = 0; other < size(); ++other) {
      if (other == node || nodes_[Index(other)].coordinator == 0) continue;
      if (alive(other)) KillCoordinator(other);
    }
    one.coordinator = epoch_;
    one.election->OnCoordinatorUp({epoch_, MemberOf(node), "grpc", "http"}, now_);
  }

  void Do(int from, const AskPeer& ask) {
    const Node& to = nodes_[Index(ask.index)];
    Election& asking = *nodes_[Index(from)].election;
    if (!Linked(from, ask.index) || !to.answers) {
      questions_.push_back({from, ask.index, now_ + kQuestionLimit});
    } else if (!to.alive) {
      asking.OnSilence(ask.index, true, now_);
    } else {
      nodes_[Index(ask.index)].election->OnAnswer(ViewOf(from), now_);
      asking.OnAnswer(ViewOf(ask.index), now_);
    }
  }
  // The answer takes a step, as a pool's does.
  void Do(int node, const ReadShared& read) { nodes_[Index(node)].reading = read; }
  void Do(int node, const StartCoordinator&) {
    nodes_[Index(node)].coordinator_ready = now_ + kCoordinatorStart;
  }
  void Do(int node, const StopCoordinator&) {
    nodes_[Index(node)].coordinator = 0;
    nodes_[Index(node)].coordinator_ready.reset();
    nodes_[Index(node)].election->OnCoordinatorDown(now_);
  }
  void Do(int node, const Announce&) {
    const Leadership& own = nodes_[Index(node)].election->leadership();
    if (!shared_leadership_ || shared_leadership_->epoch < own.epoch) shared_leadership_ = own;
  }
  void Do(int node, const Follow& follow) {
    nodes_[Index(node)].followed = follow.leadership.epoch;
  }
  void Do(int node, const GiveUp&) { gave_up_.insert(node); }

  TimePoint now_{std::chrono::hours(1)};
  std::vector<Node> nodes_;
  std::vector<Member> shared_members_;
  std::optional<Leadership> shared_leadership_;
  std::set<std::pair<int, int>> cut_;
  std::deque<Question> questions_;
  std::uint64_t epoch_ = 0;
  std::uint64_t heartbeat_ = 0;
  std::set<int> gave_up_;
};

}  // namespace muster::worker
