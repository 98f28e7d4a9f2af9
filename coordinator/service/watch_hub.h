// WatchHub: sends watchers of a job what changed, at most ten times a second each.
//
// Owned by the server; loop's thread, except the reactors' own functions, which gRPC's threads
// call. A watcher holds at most one message: while it is being written, further changes are only
// marked, and the next message has the newest state and all events since. So a slow reader costs
// nothing and misses only intermediate states. A watch ends with OK after the message with the
// job's terminal state.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/runtime/event_loop.h"
#include "common/security/certificate.h"
#include "coordinator/service/authenticator.h"
#include "coordinator/service/controller_runtime.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

class WatchHub;

// The gRPC side of one watch. Start functions are called with the mutex held, never after Finish.
class WatchStream : public grpc::ServerWriteReactor<v1::WatchUpdate>,
                    public std::enable_shared_from_this<WatchStream> {
 public:
  // `peer` is the watcher's certificate; empty if the call came with the token.
  WatchStream(EventLoop& loop, WatchHub& hub, Actor actor, std::optional<CertificateInfo> peer)
      : loop_(loop), hub_(hub), actor_(std::move(actor)), peer_(std::move(peer)) {}

  const Actor& actor() const { return actor_; }

  const std::optional<CertificateInfo>& peer() const { return peer_; }

  void Begin() { self_ = shared_from_this(); }
  void Write(v1::WatchUpdate update);  // only when none is under way
  void End(const Status& status);      // also while a message is under way: then after it

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(Cancelled("the watcher has gone")); }
  void OnDone() override;
  void FinishLocked();

  EventLoop& loop_;
  WatchHub& hub_;
  const Actor actor_;
  const std::optional<CertificateInfo> peer_;
  std::shared_ptr<WatchStream> self_;  // until OnDone
  v1::WatchUpdate update_;

  std::mutex mutex_;
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
  Status final_status_;
};

class WatchHub {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(100);
  static constexpr std::size_t kMaxWatchers = 1024;
  static constexpr int kMaxEventsPerUpdate = 1000;

  WatchHub(EventLoop& loop, ControllerRuntime& runtime)
      : loop_(loop), runtime_(runtime), timer_(loop) {}

  // The request names the job by id, unique prefix or name; an unknown job ends the stream at once.
  void Add(const std::shared_ptr<WatchStream>& stream, const v1::WatchRequest& request);
  void OnJobsChanged(const std::vector<JobId>& jobs);
  // From the stream, posted to the loop.
  void OnWritten(const WatchStream* stream);
  void OnEnded(const WatchStream* stream) { watchers_.erase(stream); }
  void CloseAll(const Status& reason);
  // Ends watches that the authenticator no longer allows, whose callers may not do anything or act
  // for another user any more, or whose watchers may not see the job any more.
  void CloseRevoked(const Authenticator& authenticator);

  std::size_t watchers() const { return watchers_.size(); }

 private:
  struct Watcher {
    std::shared_ptr<WatchStream> stream;
    JobId job;
    std::uint64_t after_seq = 0;
    TimePoint next_allowed;
    bool dirty = true;
    bool busy = false;  // a message waits for its commit or is being written
  };

  void Flush();
  Status CheckMayStay(const Watcher& watcher, const Authenticator& authenticator) const;
  Status CheckMaySee(const Watcher& watcher) const;
  void Update(Watcher& watcher, TimePoint now);
  v1::WatchUpdate Compose(Watcher& watcher, const JobView& view, TimePoint now) const;

  EventLoop& loop_;
  ControllerRuntime& runtime_;
  Timer timer_;
  std::unordered_map<const WatchStream*, Watcher> watchers_;
  Status closed_;
};

}  // namespace muster
