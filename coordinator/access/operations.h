// The table of operations: what clients may ask for, and which role each needs. The only place that
// decides it; an operation without a row does not exist.
//
// Pure functions over a constant; any thread.
#pragma once

#include <span>
#include <string_view>

#include "coordinator/access/user_file.h"

namespace muster {

enum class ClientOperation {
  kSubmit,
  kGetJob,
  kListJobs,
  kCancel,
  kSuspend,
  kResume,
  kUpdateJob,
  kHoldJob,
  kReleaseJob,
  kWatch,
  kExplainJob,
  kListEvents,
  kListNodes,
  kReadLog,
  kVersion,
  kWhoAmI,
  kDrain,
  kUndrain,
  kInjectFault,
  kVerifyCheckpoints,
  kApplyQueues,
  kShowQueues,
  kShowUsage,
  kExportSchedule,
  kApplyUsers,
  kListAudit,
  kShowUsers,
  kSetSecret,
  kListSecrets,
  kRemoveSecret,
  kRotateSecretKey,
};

// Where the role must be held.
enum class Scope {
  kAnyone,   // nowhere: an identity is enough
  kMember,   // anywhere; the answer has only what the caller may see
  kQueue,    // in the queue that the request names, or in one above it
  kJob,      // in the queue of the job; without a job, in the whole cluster
  kCluster,  // in the whole cluster
};

struct OperationRule {
  ClientOperation operation;
  std::string_view method;  // as HTTP/2 carries it
  std::string_view text;    // "cancel jobs": completes "may not ..."
  Scope scope;
  UserRole role;
  UserRole own;  // for a job of one's own, where scope is kJob
};

std::span<const OperationRule> OperationRules();
const OperationRule& RuleOf(ClientOperation operation);
// "Cancel": the name of the RPC.
std::string_view Name(ClientOperation operation);

}  // namespace muster
