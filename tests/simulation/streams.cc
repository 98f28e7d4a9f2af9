// Of World: the streams between workers and coordinator.
//
// When a stream ends, of what was under way some of the first still arrives, and the rest is lost;
// but for what the worker keeps for its next stream (worker/service/coordinator_session.cc), which
// then comes late, and may come a second time. A node that is cut off holds everything back until
// it is back or its stream is given up.
#include "common/wire/outlives_stream.h"
#include "tests/simulation/world.h"

namespace muster::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kHeartbeatEvery = milliseconds(500);
constexpr Duration kSampleEvery = milliseconds(500);
constexpr Duration kKeepalive = seconds(3);  // until a worker that is cut off gives its stream up

}  // namespace

void World::TryConnect(int index) {
  SimStream& stream = StreamOf(index);
  SimNode& node = NodeAt(index);
  if (stream.session != 0 || !node.worker_up()) return;
  if (!coordinator_->up() || stream.cut_off || !node.ready()) {
    queue_.After(random_.Delay(milliseconds(50), milliseconds(1000)),
                 [this, index] { TryConnect(index); });
    return;
  }
  stream.session = next_session_++;
  sessions_[stream.session] = index;
  stream.given_up = false;
  stream.up = {};
  stream.down = {};
  WorkerHello hello{stream.session, node.MakeHello()};
  if (seams_.hello) seams_.hello(hello.hello);
  PutUp(index, std::move(hello));
}

// --- towards the coordinator ---

void World::SendUp(int index, WorkerMessage message) {
  std::vector<WorkerMessage> messages;
  if (seams_.to_coordinator) {
    messages = seams_.to_coordinator(index, std::move(message));
  } else {
    messages.push_back(std::move(message));
  }
  SimStream& stream = StreamOf(index);
  for (WorkerMessage& each : messages) {
    if (!stream.welcomed && OutlivesStream(each)) {
      stream.kept.push_back(std::move(each));
    } else if (stream.session != 0) {
      PutUp(index, WorkerMessageReceived{stream.session, std::move(each)});
    }
  }
}

void World::PutUp(int index, Event event) {
  SimStream& stream = StreamOf(index);
  stream.spoke = true;
  stream.up.under_way.push_back(std::move(event));
  const Duration delay = random_.Delay(microseconds(100), milliseconds(2));
  queue_.At(stream.up.Arrival(queue_.now(), delay),
            [this, index, session = stream.session] { ArriveUp(index, session); });
}

void World::ArriveUp(int index, SessionId session) {
  SimStream& stream = StreamOf(index);
  if (stream.session != session) return;
  if (stream.cut_off || stream.up.taking) {
    ++stream.up.held;
    return;
  }
  stream.up.taking = true;
  coordinator_->Deliver(stream.up.Take(), [this, index, session] { OnTaken(index, session); });
}

// The coordinator reads the stream's next message.
void World::OnTaken(int index, SessionId session) {
  SimStream& stream = StreamOf(index);
  if (stream.session != session) return;
  stream.up.taking = false;
  if (stream.cut_off || stream.up.held == 0) return;
  --stream.up.held;
  ArriveUp(index, session);
}

// --- towards the worker ---

void World::SendDown(const WorkerSend& send) {
  const auto found = sessions_.find(send.session);
  if (found == sessions_.end()) return;
  const int index = found->second;
  SimStream& stream = StreamOf(index);
  if (stream.session != send.session) return;
  std::vector<CoordinatorMessage> messages;
  if (seams_.to_worker) {
    messages = seams_.to_worker(index, send.message);
  } else {
    messages.push_back(send.message);
  }
  for (CoordinatorMessage& message : messages) {
    stream.down.under_way.push_back(std::move(message));
    const Duration delay = random_.Delay(microseconds(100), milliseconds(2));
    queue_.At(stream.down.Arrival(queue_.now(), delay),
              [this, index, session = stream.session] { ArriveDown(index, session); });
  }
}

void World::ArriveDown(int index, SessionId session) {
  SimStream& stream = StreamOf(index);
  if (stream.session != session) return;
  if (stream.cut_off) {
    ++stream.down.held;
    return;
  }
  const CoordinatorMessage message = stream.down.Take();
  if (std::holds_alternative<Welcome>(message)) {
    stream.welcomed = true;
    for (WorkerMessage& kept : std::exchange(stream.kept, {})) {
      PutUp(index, WorkerMessageReceived{session, std::move(kept)});
    }
  }
  NodeAt(index).Receive(message);
}

// --- ends ---

void World::EndStream(int index, StreamEnd how) {
  SimStream& stream = StreamOf(index);
  if (stream.session == 0) return;
  const SessionId session = std::exchange(stream.session, 0);
  sessions_.erase(session);
  stream.welcomed = false;
  EndUp(index, session, how);
  EndDown(index, how);
  if (how == StreamEnd::kWorkerDied || how == StreamEnd::kMachineLost) {
    stream.kept.clear();
    return;
  }
  queue_.After(random_.Delay(milliseconds(50), milliseconds(300)),
               [this, index] { TryConnect(index); });
}

// Both ends see to themselves: the worker keeps what it has not handed over, some of which may have
// arrived all the same; and the coordinator may hear of the end only after the next stream's Hello.
void World::EndUp(int index, SessionId session, StreamEnd how) {
  SimStream& stream = StreamOf(index);
  std::deque<Event> under_way = std::exchange(stream.up, {}).under_way;
  const bool heard = !stream.cut_off && (how == StreamEnd::kTorn || how == StreamEnd::kWorkerDied);
  const int count = static_cast<int>(under_way.size());
  const int arrived = heard ? random_.Pick(count + 1) : 0;
  const int least = std::max(arrived - 1, 0);
  const int written = least + random_.Pick(count - least + 1);
  TimePoint at = queue_.now();
  for (int i = 0; i < count; ++i) {
    Event& event = under_way[static_cast<std::size_t>(i)];
    const auto* said = std::get_if<WorkerMessageReceived>(&event);
    if (i >= written && said != nullptr && OutlivesStream(said->message)) {
      stream.kept.push_back(said->message);
    }
    if (i >= arrived) continue;
    at += random_.Delay(microseconds(10), milliseconds(1));
    queue_.At(at, [this, event = std::move(event)] { coordinator_->Deliver(event); });
  }
  if (!heard) return;
  queue_.At(at + random_.Delay(microseconds(100), milliseconds(400)),
            [this, session] { coordinator_->Deliver(WorkerStreamClosed{session}); });
}

void World::EndDown(int index, StreamEnd how) {
  SimStream& stream = StreamOf(index);
  std::deque<CoordinatorMessage> under_way = std::exchange(stream.down, {}).under_way;
  const bool hears = !stream.cut_off && NodeAt(index).worker_up();
  const int count = static_cast<int>(under_way.size());
  // One that closes a stream sends what it has said before.
  const int arrived = !hears ? 0 : how == StreamEnd::kClosed ? count : random_.Pick(count + 1);
  for (int i = 0; i < arrived; ++i) {
    queue_.At(queue_.now(), [this, index, message = under_way[static_cast<std::size_t>(i)]] {
      NodeAt(index).Receive(message);
    });
  }
}

void World::CloseStream(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  SimStream& stream = StreamOf(found->second);
  if (stream.cut_off) {
    stream.given_up = true;  // which the worker cannot know
  } else {
    EndStream(found->second, StreamEnd::kClosed);
  }
}

void World::CutOff(int index, bool cut_off) {
  SimStream& stream = StreamOf(index);
  if (stream.cut_off == cut_off) return;
  stream.cut_off = cut_off;
  if (cut_off) {
    queue_.After(kKeepalive, [this, index, session = stream.session] {
      const SimStream& now = StreamOf(index);
      if (now.cut_off && now.session == session) EndStream(index, StreamEnd::kTorn);
    });
    return;
  }
  GoOnEverywhere();
  if (stream.given_up) return EndStream(index, StreamEnd::kClosed);
  const auto delay = [this] { return random_.Delay(microseconds(100), milliseconds(2)); };
  for (; stream.up.held > 0; --stream.up.held) {
    queue_.At(stream.up.Arrival(queue_.now(), delay()),
              [this, index, session = stream.session] { ArriveUp(index, session); });
  }
  for (; stream.down.held > 0; --stream.down.held) {
    queue_.At(stream.down.Arrival(queue_.now(), delay()),
              [this, index, session = stream.session] { ArriveDown(index, session); });
  }
}

bool World::Reachable(int a, int b) const {
  const auto away = [this](int node) {
    return StreamOf(node).cut_off || apart_[static_cast<std::size_t>(node)];
  };
  return a == b || (!away(a) && !away(b));
}

// --- what is said at all times ---

void World::Heartbeat(int index) {
  SimStream& stream = StreamOf(index);
  if (stream.welcomed && !std::exchange(stream.spoke, false)) SendUp(index, muster::Heartbeat{});
  queue_.After(kHeartbeatEvery, [this, index] { Heartbeat(index); });
}

void World::Sample(int index) {
  NodeAt(index).Sweep();
  if (StreamOf(index).session != 0) NodeAt(index).SampleProgress();
  queue_.After(kSampleEvery, [this, index] { Sample(index); });
}

// As a connection to the worker's port would end.
void World::AnswerProbe(int index, const Probe& probe) {
  const int target = IndexOf(probe.node);
  ProbeOutcome outcome = ProbeOutcome::kAnswered;
  if (!Reachable(index, target) || !NodeAt(target).machine_up()) {
    outcome = ProbeOutcome::kUnreachable;
  } else if (!NodeAt(target).worker_up()) {
    outcome = ProbeOutcome::kRefused;
  }
  const Duration delay = outcome == ProbeOutcome::kUnreachable ? Duration(milliseconds(500))
                                                               : Duration(milliseconds(1));
  queue_.After(delay, [this, index, outcome, id = probe.probe_id, node = probe.node] {
    SendUp(index, ProbeResult{.probe_id = id, .node = node, .outcome = outcome});
  });
}

}  // namespace muster::sim
