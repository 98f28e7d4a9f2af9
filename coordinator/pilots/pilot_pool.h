// PilotPool: decides about pilot jobs. Pure: events and time in, effects out.
//
// It holds the list of pilots, Slurm's last report of each, and which nodes are bad; PoolPlanner
// decides how many pilots are needed. One squeue queries all pilots every 15 s, and every 2 s for a
// few seconds after a change. Failed actions are retried with the next look or the next list, and
// logged once.
//
// Bounds: at most kMaxUnderWay blocking effects are under way at a time. Further ones wait for the
// next look or list. Ended pilots that cannot be removed stop new ones at kMaxEnded.
//
// Owned by PilotRunner, loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/slurm/slurm_commands.h"
#include "coordinator/control/events.h"
#include "coordinator/pilots/pool_planner.h"

namespace muster {

// The state of a pilot on the nodes' file system.
struct PilotRecord {
  std::string key;
  std::string why;
  std::vector<std::string> exclude;
  std::int64_t asked_unix_ms = 0;
  std::uint64_t slurm_job_id = 0;  // 0: unknown
  std::string cancelled;           // why; empty: it was not
  std::vector<std::string> bad_nodes;
  std::int64_t cancelled_unix_ms = 0;
  std::string ended;  // Slurm's last state of it; empty: it has not ended
};

// --- events ---

struct PoolLookDue {};

// The answer to LookAtPool; members that were not requested are empty.
struct PoolLooked {
  Result<std::string> config = NotFound("");  // text of pilots.yaml
  Status opened;
  std::optional<Result<std::vector<PilotRecord>>> loaded;
  std::set<std::string> started;  // keys of those whose batch script has begun
  std::optional<Result<std::vector<slurm::JobInfo>>> jobs;
  Status renewed;
  PoolFacts facts;  // all but the pilots
};

// kDeadlineExceeded: Slurm may have taken the job.
struct PilotSubmitted {
  std::string key;
  Result<std::uint64_t> slurm_job_id;
};
struct PilotCancelled {
  std::string key;
  Status status;
};
struct PilotTokenGiven {
  std::string key;
  std::string node;
  Status status;
};
struct PilotPutAway {
  std::string key;
  Status status;
};
struct StrayCancelled {
  std::uint64_t slurm_job_id = 0;
  Status status;
};
struct PoolStatusWritten {
  Status status;
};
using PoolEvent = std::variant<PoolLookDue, PoolLooked, PilotSubmitted, PilotCancelled,
                               PilotTokenGiven, PilotPutAway, StrayCancelled, PoolStatusWritten>;

// --- effects ---

// Each of these blocks and is answered by one event.
struct LookAtPool {
  std::string open;  // directory to make first; empty: it was made
  bool load = false;
  bool list = false;
  bool renew = false;
  std::vector<std::string> waiting;  // keys: has their script begun?
};
struct SubmitPilotJob {
  PilotRecord record;
  PoolConfig config;
  std::string coordinator;  // IP:PORT that the pilot's workers dial
};
struct CancelPilotJob {
  PilotRecord record;
};
struct GivePilotToken {
  std::string key;
  std::string node;
  std::string join_address;  // that the node takes it to
};
struct PutPilotAway {
  PilotRecord record;
  std::vector<std::string> nodes;
};
struct CancelStrayJob {
  std::uint64_t slurm_job_id = 0;
};
struct WritePoolStatus {
  std::string text;  // what `muster slurm pilots` shows
};
// Executed at once. DrainPoolNode, ClusterNote and PoolDeclared are the others.
struct PoolLogLine {
  Severity severity = Severity::kInfo;
  std::string text;
};
using PoolEffect = std::variant<LookAtPool, SubmitPilotJob, CancelPilotJob, GivePilotToken,
                                PutPilotAway, CancelStrayJob, WritePoolStatus, DrainPoolNode,
                                ClusterNote, PoolDeclared, PoolLogLine>;

struct PilotPoolOptions {
  std::string dir;             // the cluster's
  std::string config_file;     // pilots.yaml, as messages name it
  std::string coordinator;     // where --tls-listen listens; empty: nowhere, so there are no pilots
  std::string join_address;    // of --join-listen; empty: none, so there are no pilots
  bool has_authority = false;  // without one there are no pilots
  std::string process;         // makes keys unique among coordinators of the same cluster
  Duration list_every = std::chrono::seconds(15);  // squeue
  Duration list_soon = std::chrono::seconds(2);    // after something was done
};

class PilotPool {
 public:
  static constexpr std::size_t kMaxUnderWay = 128;
  static constexpr std::size_t kMaxEnded = 256;

  explicit PilotPool(PilotPoolOptions options) : options_(std::move(options)) {}

  std::vector<PoolEffect> Handle(const PoolEvent& event, Now now);

  // Whether the next PoolLooked needs `facts`.
  bool NeedsFacts() const { return opened_ && loaded_; }

  // By their Slurm state in lower case, of those that have not ended.
  std::map<std::string, int> Counts() const;
  // Keys of those that were requested for the job and have no node yet.
  std::vector<std::string> PendingFor(const JobId& job) const;

 private:
  struct Pilot {
    PilotRecord record;
    PilotPhase phase = PilotPhase::kSubmitting;
    std::string state = "SUBMITTING";  // Slurm's term
    std::string reason;
    std::vector<std::string> nodes;
    std::optional<std::int64_t> start_seconds;
    std::optional<std::int64_t> end_seconds;
    bool submitting = false;       // sbatch is under way
    bool connected = false;        // a node of it has connected
    std::set<std::string> tokens;  // nodes that received one, or are about to
    bool cancel_sent = false;
    std::string trouble;  // the last failed action for it
  };
  struct Ended {
    PutPilotAway what;
    bool under_way = false;
    std::string trouble;
  };
  struct Stray {
    bool sent = false;
    std::string trouble;
  };

  void On(const PoolLookDue& event);
  void On(const PoolLooked& event);
  void On(const PilotSubmitted& event);
  void On(const PilotCancelled& event);
  void On(const PilotTokenGiven& event);
  void On(const PilotPutAway& event);
  void On(const StrayCancelled& event);
  void On(const PoolStatusWritten& event);

  void TakeConfig(const Result<std::string>& text);
  void TakeLoaded(const std::vector<PilotRecord>& records);
  void TakeJobs(const std::vector<slurm::JobInfo>& jobs);
  void TakeJob(const slurm::JobInfo& job, std::map<std::uint64_t, Stray>* strays);
  void Update(Pilot& pilot, const slurm::JobInfo& job);
  void CancelStray(std::uint64_t id, const std::string& why,
                   std::map<std::uint64_t, Stray>* strays);
  void SettleUnknown(const std::set<std::string>& listed);
  void End(const std::string& key, const std::string& state);
  void PutAway();
  void AddPilots(PoolFacts& facts);
  void ObserveNodes(const PoolFacts& facts);
  void GiveTokens(Pilot& pilot, const PoolFacts& facts);
  void Act(const PoolPlan& plan);
  void Do(const SubmitPilot& action);
  void Do(const CancelPilot& action);
  void Submit(Pilot& pilot);
  void Cancel(Pilot& pilot);
  void WriteStatus();
  std::string StateOf(const Pilot& pilot) const;

  bool HasRoom() const { return under_way_ < kMaxUnderWay; }
  template <typename Effect>
  void Begin(Effect effect);
  void Note(const char* kind, Severity severity, std::string message);
  // Keeps `status` as the trouble of `what`, logs it if it is new; OK clears it.
  void Report(std::string& trouble, const std::string& what, const Status& status);
  void Problem(const std::string& what, const Status& status);

  const PilotPoolOptions options_;
  PoolPlanner planner_;
  std::optional<PoolConfig> config_;
  std::string config_text_;
  std::string directory_;                        // of all pilots
  bool opened_ = false;                          // directory_ is there
  bool loaded_ = false;                          // what earlier coordinators left is known
  bool listed_once_ = false;                     // before that the set of pilots is unknown
  std::map<std::string, Pilot> pilots_;          // by key; not ended
  std::map<std::string, Ended> ended_;           // by key; to be removed
  std::map<std::string, TimePoint> bad_until_;   // nodes
  std::map<std::uint64_t, Stray> strays_;        // in Slurm's last list, by its job
  std::map<std::string, std::string> problems_;  // by what was tried, a fixed set
  std::string condition_;
  std::string failure_;  // of the newest pilot that failed
  std::string status_text_;
  bool writing_status_ = false;
  std::size_t under_way_ = 0;
  std::optional<TimePoint> listed_at_;
  TimePoint soon_until_;
  TimePoint renewed_at_;
  int next_key_ = 0;
  Now now_;
  std::vector<PoolEffect> out_;
};

}  // namespace muster
