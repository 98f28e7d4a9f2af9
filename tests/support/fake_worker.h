// FakeWorker: a node without processes. Speaks the worker stream to a real coordinator and plays
// guardian and ranks by itself: answers Prepare, Launch, Abort, Release, CheckpointCommitted,
// ScrubCheckpoint and ReadLog as a healthy node would, and fails where a test asks for it.
//
// Owned by a test, whose thread calls everything here; gRPC's threads read the stream and send
// heartbeats, so that a thousand of them cost no thread of their own. What the node hosts survives
// Disconnect and is reported again in the next Hello, as a guardian's state is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/version.h"
#include "muster/v1/worker_api.grpc.pb.h"

namespace muster::testing {

struct FakeWorkerOptions {
  std::string node = "n1";
  int slots = 1;
  std::string address = "127.0.0.1";
  std::string host_id = "host-a";
  std::string credentials;  // a directory with the node's; empty: plain text and the token
  std::string instance = "instance-1";
  int protocol_version = kProtocolVersion;
  std::string prepare_error;  // not empty: Prepared{ok: false}
  bool prepare_retryable = true;
  bool train_on_launch = true;  // started, formed, resumed, first step; else only started
  // Whether the job's ranks end with code 0 as soon as they have started.
  std::function<bool(const std::string& job)> ends_on_launch = {};
  // Called with each message, by gRPC's threads one at a time, instead of keeping it for WaitFor.
  std::function<void(const muster::v1::CoordinatorMessage&)> observer;
  std::string log_text = "line one\nline two\n";
  bool allow_faults = false;
  // UNSPECIFIED: it never answers.
  muster::v1::ScrubOutcome scrub_outcome = muster::v1::SCRUB_OUTCOME_WHOLE;
  std::string scrub_detail;
};

class FakeWorker {
 public:
  FakeWorker(std::string coordinator, std::string token, FakeWorkerOptions options);
  ~FakeWorker();
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;

  // Opens the stream and says Hello with all that the node hosts. OK once welcomed.
  Status Connect();
  // The two halves of Connect, for many at once.
  void StartConnecting();
  Status WaitForWelcome();
  void Disconnect();
  // Waits until the coordinator ends the stream; its status.
  Status WaitForEnd();
  void set_options(FakeWorkerOptions options);

  // A rank ends; the node reports it, and Quiesced after its last rank.
  void ExitRank(const std::string& job, int rank, int exit_code, int signal = 0);
  // Every rank of the job on this node ends with code 0.
  void FinishJob(const std::string& job);
  void ReportShard(const std::string& job, int rank, std::int64_t step,
                   const std::string& directory);
  void ReportProgress(const std::string& job, int rank, std::int64_t step, double loss);
  // As a worker reports its samples: one Progress for each job with all ranks that the node runs of
  // it, each with the figures of `sample`.
  void ReportProgressOfAll(const muster::v1::RankProgress& sample);
  void Send(const muster::v1::WorkerMessage& message);

  // True once a message that matches came, or had come before.
  using Predicate = std::function<bool(const muster::v1::CoordinatorMessage&)>;
  bool WaitFor(const Predicate& predicate, std::chrono::seconds limit = std::chrono::seconds(10));
  // Waits for Launch of that generation (0: any) of the job.
  bool WaitForLaunch(const std::string& job, std::int64_t generation = 0);
  int Count(const Predicate& predicate);

 private:
  struct Stream;
  struct Hosted {
    muster::v1::HostedGeneration state;
    std::vector<int> ranks;
  };
  using Coordinator = muster::v1::CoordinatorMessage;

  void OnMessageLocked(Stream& stream, const Coordinator& message);
  void HandleLocked(const Coordinator& message);
  void OnPrepareLocked(const muster::v1::Prepare& prepare);
  void OnLaunchLocked(const muster::v1::Launch& launch);
  void OnAbortLocked(const muster::v1::Abort& abort);
  void OnReadLogLocked(const muster::v1::ReadLog& request);
  void TrainLocked(Hosted& hosted, int rank, std::int64_t step);
  void ReportLocked(Hosted& hosted, muster::v1::TrainerReport report);
  struct Exit {
    int exit_code = 0;
    int signal = 0;
    bool ended = false;  // by an abort
  };
  void ExitRankLocked(Hosted& hosted, int rank, Exit how);
  void QuiesceLocked(Hosted& hosted);
  void SendLocked(const muster::v1::WorkerMessage& message);
  muster::v1::WorkerMessage HelloLocked() const;

  const std::string coordinator_;
  const std::string token_;

  std::mutex mutex_;
  std::condition_variable changed_;
  FakeWorkerOptions options_;
  std::unique_ptr<Stream> stream_;
  std::map<std::string, Hosted> hosted_;
  std::vector<Coordinator> received_;
};

}  // namespace muster::testing
