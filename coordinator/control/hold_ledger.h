// HoldLedger: what of each node the processes of which job may use: slots, devices, processors,
// memory. The only count of what is used.
//
// A job has at most one hold on a node, and it goes one way:
//
//   gang ──────▶ parked ──────▶ gang of the next generation
//     │            │
//     └────────────┴──────────▶ orphaned ──────▶ terminated, by a proof
//
// A gang's hold is whole from the moment its nodes are chosen until a node has quiesced, and then
// the slots that processes still hold there for the job, with all devices, processors and memory
// that it had there as long as one is left. A hold is orphaned if its processes were ordered to
// end, or were out of reach, when their gang ended; only the node's own report, or another boot,
// frees it. Processes that survived SIGKILL are not counted here: they are durable, in
// NodeRecord::leaked.
//
// A hold is for its job alone, or one of two that share what they hold (HoldUse): a spare of
// several jobs, where the node's own holds leave it, and what preemptible jobs have of that.
//
// Owned by the controller's State, rebuilt from Hellos after a restart; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace muster {

enum class HoldUse {
  kOwn,     // for its job alone
  kShared,  // a shared spare: the largest of all jobs' is held, once
  kLent,    // of a preemptible job: a part of what shared spares hold
};

// Parts of one node.
struct HeldResources {
  int slots = 0;
  std::vector<std::string> devices = {};  // by id, in the order of local ranks
  int cpus = 0;
  std::uint64_t memory_bytes = 0;
  HoldUse use = HoldUse::kOwn;

  friend bool operator==(const HeldResources&, const HeldResources&) = default;
};

class HoldLedger {
 public:
  enum class Kind { kGang, kParked, kOrphaned };
  struct Hold {
    Kind kind = Kind::kGang;
    Generation generation = 0;  // the newest that may still have processes there
    HeldResources resources;
    // Devices of processes of older generations, which preparing the node ends.
    std::vector<std::string> leaving = {};
  };

  // The node now belongs to the job's gang, as one of its nodes or as a spare. Takes over what the
  // job had there before, which preparing the node ends: until Prepared, its devices stay held.
  void Take(const NodeName& node, const JobId& job, Generation generation, HeldResources resources);
  void Prepared(const NodeName& node, const JobId& job);
  // Processes of older generations may have these devices too, until then.
  void AddLeaving(const NodeName& node, const JobId& job, const std::vector<std::string>& devices);
  // The gang's node has quiesced; `slots` are still held for the job. Other holds do not change.
  void Quiesce(const NodeName& node, const JobId& job, int slots);
  // The job's gang has ended: what it still holds is parked.
  void ParkGang(const JobId& job);
  // The node hosts parked processes of the job's newest generation.
  void Park(const NodeName& node, const JobId& job, Generation generation, HeldResources resources);
  void Orphan(const NodeName& node, const JobId& job, Generation generation,
              HeldResources resources);
  // No gang takes over the job's parked processes; returns their holds.
  std::map<NodeName, Hold> OrphanParked(const JobId& job);

  // The node has proved that nothing of the job up to `generation` is there. True if that freed
  // slots that were orphaned.
  bool Prove(const NodeName& node, const JobId& job, Generation generation);
  // It has no guardian of the job any more.
  void ProveTerminated(const NodeName& node, const JobId& job);
  // It has guardians of these jobs only.
  void ProveAllGoneBut(const NodeName& node, const std::set<JobId>& jobs);
  // It has booted again.
  void Reboot(const NodeName& node);

  // By use: sums, and of shared spares the largest. The devices are all that are named, in no
  // order.
  struct Used {
    HeldResources own, shared, lent;
  };
  Used UsedOf(const NodeName& node) const;
  // Counts every hold.
  int UsedSlots(const NodeName& node) const;
  // Without what is parked, which a job's next gang may take over, and without shared spares, which
  // preemptible jobs may have.
  int BusySlots(const NodeName& node) const;
  // By job.
  const std::map<JobId, Hold>& On(const NodeName& node) const;
  // Jobs that hold slots there.
  std::vector<JobId> Holders(const NodeName& node) const;
  // Nodes that may have processes of the job.
  const std::set<NodeName>& Nodes(const JobId& job) const;
  // nullptr: none.
  const Hold* Find(const NodeName& node, const JobId& job) const;
  // Nodes where the job has processes parked, and what they hold; by name.
  std::map<NodeName, Hold> Parked(const JobId& job) const;

 private:
  void Put(const NodeName& node, const JobId& job, Hold hold);
  // Devices of the hold before are leaving.
  void PutOver(const NodeName& node, const JobId& job, Hold hold);
  void Erase(const NodeName& node, const JobId& job);
  Hold* Get(const NodeName& node, const JobId& job);

  std::map<NodeName, std::map<JobId, Hold>> by_node_;
  std::map<JobId, std::set<NodeName>> nodes_of_;
};

}  // namespace muster
