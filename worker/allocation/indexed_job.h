// A pod of an Indexed Job of Kubernetes as a task of `muster-worker --auto`.
//
//   JOB_COMPLETION_INDEX   which of the pods this is; Kubernetes sets it
//   MUSTER_COMPLETIONS     how many there are: the Job's spec.completions
//   MUSTER_JOB_NAME        the Job's name, and
//   MUSTER_JOB_UID         its uid, both from the pod's labels
//   MUSTER_SERVICE         the headless Service of the pods: pod i is JOB-i.SERVICE
//
// Pods have no access to Kubernetes' API, and need none: a pod that ends with an exit code other
// than 0 is started again by the Job's controller, or not, by the Job's podFailurePolicy
// (deploy/kubernetes/indexed-job.yaml). A pod that takes a lost one's place has its index.
//
// Any thread; AwaitAddress blocks.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "worker/allocation/auto_task.h"
#include "worker/allocation/scheduler.h"

namespace muster::worker {

// JOB_COMPLETION_INDEX is set.
bool InIndexedJob(const slurm::Environment& environment);

// kInvalidArgument names the variable that is missing or wrong, and what the manifest needs.
// Without own_address: that is AwaitAddress of HostOf.
Result<AutoTask> ReadIndexedJob(const slurm::Environment& environment);

// "JOB-INDEX.SERVICE" of this pod.
std::string HostOf(const AutoTask& task, const slurm::Environment& environment);

// The numeric address that `host` resolves to. A Service knows a new pod after some seconds, so it
// asks until `limit`; then kUnavailable.
Result<std::string> AwaitAddress(const std::string& host, Duration limit);

// The controller needs no orders, and the time of a Job has no end that a pod knows.
std::unique_ptr<Scheduler> MakeIndexedJobScheduler(int run);

}  // namespace muster::worker
