// CoordinatorSession: the worker's stream to the coordinator, kept open.
//
// Connects, sends Hello with all that is on the node, and from then on carries messages both ways.
// When the stream ends, for any reason, it reconnects after a pause (50 ms doubling to 1 s), to the
// leader that a standby has named or else to the next of several coordinators, and reads the
// endpoint file and the credentials again: a restarted coordinator may have another port, and the
// certificate may have been renewed. State messages that could not be sent are dropped: the
// next Hello restores them. What a Hello does not carry (failed preparations, written manifests,
// released jobs) waits for the next stream.
//
// A coordinator of a lower epoch than one that has welcomed this node before was replaced, and is
// not obeyed: the stream is ended, and retried in case the endpoint file names its successor. The
// highest epoch is kept in a file, so that this holds over a restart of the worker.
//
// gRPC's threads only post to the loop; everything else, including Send, is loop thread only. Files
// are read on a thread of the session's own: the endpoint file may be on a shared file system that
// does not answer, which must not stop heartbeats.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/backoff.h"
#include "common/base/result.h"
#include "common/rpc/coordinator_addresses.h"
#include "common/rpc/tls.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/wire/messages.h"
#include "muster/v1/worker_api.pb.h"

namespace muster::worker {

struct CoordinatorSessionOptions {
  std::string endpoint_path;
  // By TLS; none: from the endpoint file. Never null; other parts of the worker use it as well.
  std::shared_ptr<CoordinatorAddresses> coordinators;
  std::string token_path;
  std::string tls_dir;     // credentials directory; empty: the token
  std::string epoch_path;  // the highest epoch met
  Hello identity;          // without what it hosts
};

class CoordinatorSession {
 public:
  struct Handlers {
    std::function<std::vector<HostedGeneration>()> hosted;
    std::function<void(const CoordinatorMessage&)> on_message;
  };

  CoordinatorSession(EventLoop& loop, CoordinatorSessionOptions options, Handlers handlers);
  // Cancels the stream and waits for gRPC to release it.
  ~CoordinatorSession();
  CoordinatorSession(const CoordinatorSession&) = delete;
  CoordinatorSession& operator=(const CoordinatorSession&) = delete;

  void Start();
  void Send(const WorkerMessage& message);

  bool connected() const { return welcomed_; }
  // The coordinator's last answer was that the two have no protocol version in common.
  bool version_refused() const { return version_refused_; }
  // Why there is no stream; empty: there is one, or none was tried yet.
  const std::string& problem() const { return last_problem_; }
  std::uint64_t dropped() const { return dropped_; }
  std::uint64_t connects() const { return connects_; }

 private:
  class Ended;
  class Stream;
  struct Message {
    std::shared_ptr<const v1::WorkerMessage> wire;
    bool outlives_stream = false;
  };

  Result<CoordinatorChannel> OpenChannel() const;
  void Connect();
  void Open(Result<CoordinatorChannel> door);
  bool Accepts(const Welcome& welcome);
  // Leaves a coordinator that was replaced, once the endpoint file names its successor.
  void LookForSuccessor();
  // Runs `read` on that thread, then `then` with its result on the loop. False: the thread's queue
  // is full.
  template <typename Read, typename Then>
  bool ReadOffLoop(Read read, Then then);
  void Retry(const Status& why);
  void OnMessage(std::uint64_t stream, const v1::CoordinatorMessage& message);
  void OnReadEnd(std::uint64_t stream);
  void OnDone(std::uint64_t stream, const Status& status, const std::string& leader);
  void OnWritten(std::uint64_t stream);
  void Enqueue(Message message);
  void Keep(Message message);
  bool MakeRoom();
  void WriteNext();
  void ScheduleHeartbeat();

  EventLoop& loop_;
  const CoordinatorSessionOptions options_;
  const Handlers handlers_;
  std::shared_ptr<Stream> stream_;
  std::uint64_t stream_number_ = 0;  // distinguishes posts of an earlier stream
  bool welcomed_ = false;
  bool version_refused_ = false;
  std::uint64_t epoch_ = 0;     // the highest met
  Status refusal_;              // of the coordinator at the other end of the stream
  bool reading_ended_ = false;  // the stream is over but for gRPC's last call
  bool writing_ = false;
  bool sent_since_heartbeat_ = false;
  Duration heartbeat_interval_;
  Backoff pauses_;
  std::deque<Message> queue_;
  std::vector<Message> kept_;  // for the next stream
  std::uint64_t dropped_ = 0;
  std::uint64_t connects_ = 0;
  std::string last_problem_;
  Timer retry_timer_;
  Timer heartbeat_timer_;
  // Functions that gRPC's threads have posted keep it alive after this.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool looking_ = false;                // for a successor
  WorkerPool files_{"endpoint", 1, 2};  // joins before what it reads by is destroyed
};

}  // namespace muster::worker
