// Of World: the streams between workers and coordinator.
//
// A stream keeps its order and loses nothing until it breaks; then what was under way is lost, or
// arrives late and in vain. A node that is cut off holds everything back until it is back or its
// stream is given up.
#include "tests/simulation/world.h"

namespace muster::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kHeartbeatEvery = milliseconds(500);
constexpr Duration kSampleEvery = milliseconds(500);
constexpr Duration kKeepalive = seconds(3);  // until a stream to a node that is cut off breaks

}  // namespace

void World::TryConnect(int index) {
  Stream& stream = streams_[static_cast<std::size_t>(index)];
  SimNode& node = *nodes_[static_cast<std::size_t>(index)];
  if (stream.session != 0 || !node.worker_up()) return;
  if (!coordinator_->up() || stream.cut_off || !node.ready()) {
    queue_.After(random_.Delay(milliseconds(50), milliseconds(1000)),
                 [this, index] { TryConnect(index); });
    return;
  }
  stream.session = next_session_++;
  stream.up = stream.down = queue_.now();
  stream.held_up.clear();
  stream.held_down.clear();
  WorkerHello hello{stream.session, node.MakeHello()};
  if (seams_.hello) seams_.hello(hello.hello);
  coordinator_->Deliver(std::move(hello));
}

void World::BreakStream(int index) {
  Stream& stream = streams_[static_cast<std::size_t>(index)];
  if (stream.session == 0) return;
  const SessionId session = std::exchange(stream.session, 0);
  stream.held_up.clear();
  stream.held_down.clear();
  queue_.After(random_.Delay(microseconds(100), milliseconds(5)),
               [this, session] { coordinator_->Deliver(WorkerGone{session}); });
  queue_.After(random_.Delay(milliseconds(50), milliseconds(300)),
               [this, index] { TryConnect(index); });
}

void World::SendUp(int index, muster::WorkerMessage message) {
  std::vector<muster::WorkerMessage> messages;
  if (seams_.to_coordinator) {
    messages = seams_.to_coordinator(index, std::move(message));
  } else {
    messages.push_back(std::move(message));
  }
  Stream& stream = streams_[static_cast<std::size_t>(index)];
  if (stream.session == 0) return;
  for (muster::WorkerMessage& each : messages) {
    if (stream.cut_off) {
      stream.held_up.push_back(std::move(each));
      continue;
    }
    if (duplicates_ && !calm_ && random_.Chance(0.02)) {
      queue_.After(
          random_.Delay(milliseconds(1), milliseconds(800)),
          [this, index, session = stream.session, each] { DeliverUp(index, session, each); });
    }
    stream.up =
        std::max(stream.up, queue_.now() + random_.Delay(microseconds(100), milliseconds(2)));
    queue_.At(stream.up, [this, index, session = stream.session, each = std::move(each)] {
      DeliverUp(index, session, each);
    });
  }
}

// Of a stream that has broken some messages still come, late: nobody must listen.
void World::DeliverUp(int index, SessionId session, muster::WorkerMessage message) {
  const bool current = streams_[static_cast<std::size_t>(index)].session == session;
  if (!current && random_.Chance(0.5)) return;
  coordinator_->Deliver(WorkerSaid{session, std::move(message)});
}

void World::SendDown(const WorkerSend& send) {
  for (int index = 0; index < node_count(); ++index) {
    Stream& stream = streams_[static_cast<std::size_t>(index)];
    if (stream.session != send.session) continue;
    std::vector<CoordinatorMessage> messages;
    if (seams_.to_worker) {
      messages = seams_.to_worker(index, send.message);
    } else {
      messages.push_back(send.message);
    }
    for (CoordinatorMessage& message : messages) {
      if (stream.cut_off) {
        stream.held_down.push_back(std::move(message));
        continue;
      }
      stream.down =
          std::max(stream.down, queue_.now() + random_.Delay(microseconds(100), milliseconds(2)));
      queue_.At(stream.down, [this, index, session = stream.session, message = std::move(message)] {
        if (streams_[static_cast<std::size_t>(index)].session != session) return;
        nodes_[static_cast<std::size_t>(index)]->Receive(message);
      });
    }
    return;
  }
}

void World::Heartbeat(int index) {
  if (streams_[static_cast<std::size_t>(index)].session != 0 &&
      nodes_[static_cast<std::size_t>(index)]->worker_up()) {
    SendUp(index, muster::Heartbeat{});
  }
  queue_.After(kHeartbeatEvery, [this, index] { Heartbeat(index); });
}

void World::Sample(int index) {
  SimNode& node = *nodes_[static_cast<std::size_t>(index)];
  node.Sweep();
  if (streams_[static_cast<std::size_t>(index)].session != 0) node.SampleProgress();
  queue_.After(kSampleEvery, [this, index] { Sample(index); });
}

// As a connection to the worker's port would end.
void World::AnswerProbe(int index, const Probe& probe) {
  const auto target = static_cast<std::size_t>(std::stoi(probe.node.value.substr(1)));
  const bool cut = streams_[static_cast<std::size_t>(index)].cut_off || streams_[target].cut_off;
  ProbeOutcome outcome = ProbeOutcome::kAnswered;
  if (cut || !nodes_[target]->machine_up()) {
    outcome = ProbeOutcome::kUnreachable;
  } else if (!nodes_[target]->worker_up()) {
    outcome = ProbeOutcome::kRefused;
  }
  const Duration delay = outcome == ProbeOutcome::kUnreachable ? Duration(milliseconds(500))
                                                               : Duration(milliseconds(1));
  queue_.After(delay, [this, index, outcome, id = probe.probe_id, node = probe.node] {
    SendUp(index, ProbeResult{id, node, outcome});
  });
}

void World::CutOff(int index, bool cut_off) {
  Stream& stream = streams_[static_cast<std::size_t>(index)];
  if (stream.cut_off == cut_off) return;
  stream.cut_off = cut_off;
  if (cut_off) {
    queue_.After(kKeepalive, [this, index, session = stream.session] {
      const Stream& now = streams_[static_cast<std::size_t>(index)];
      if (now.cut_off && now.session == session) BreakStream(index);
    });
    return;
  }
  auto up = std::exchange(stream.held_up, {});
  auto down = std::exchange(stream.held_down, {});
  for (muster::WorkerMessage& message : up) {
    queue_.After(milliseconds(1),
                 [this, index, session = stream.session, message = std::move(message)] {
                   DeliverUp(index, session, message);
                 });
  }
  for (CoordinatorMessage& message : down) {
    queue_.After(milliseconds(1),
                 [this, index, session = stream.session, message = std::move(message)] {
                   if (streams_[static_cast<std::size_t>(index)].session != session) return;
                   nodes_[static_cast<std::size_t>(index)]->Receive(message);
                 });
  }
  GoOnEverywhere();
}

}  // namespace muster::sim
