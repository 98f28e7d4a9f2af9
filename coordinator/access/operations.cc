#include "coordinator/access/operations.h"

#include "common/base/check.h"

namespace muster {
namespace {

using enum ClientOperation;
using enum UserRole;
using enum Scope;

// In the order of the enum.
constexpr OperationRule kRules[] = {
    {kSubmit, "/muster.v1.Client/Submit", "submit jobs", kQueue, kSubmitter, kSubmitter},
    {kGetJob, "/muster.v1.Client/GetJob", "see jobs", kJob, kViewer, kViewer},
    {kListJobs, "/muster.v1.Client/ListJobs", "list jobs", kMember, kViewer, kViewer},
    {kCancel, "/muster.v1.Client/Cancel", "cancel jobs", kJob, kOperator, kSubmitter},
    {kSuspend, "/muster.v1.Client/Suspend", "suspend jobs", kJob, kOperator, kSubmitter},
    {kResume, "/muster.v1.Client/Resume", "resume jobs", kJob, kOperator, kSubmitter},
    {kUpdateJob, "/muster.v1.Client/UpdateJob", "update jobs", kJob, kOperator, kSubmitter},
    {kHoldJob, "/muster.v1.Client/HoldJob", "hold jobs", kJob, kOperator, kSubmitter},
    {kReleaseJob, "/muster.v1.Client/ReleaseJob", "release jobs", kJob, kOperator, kSubmitter},
    {kWatch, "/muster.v1.Client/Watch", "watch jobs", kJob, kViewer, kViewer},
    {kExplainJob, "/muster.v1.Client/ExplainJob", "have jobs explained", kJob, kViewer, kViewer},
    {kListEvents, "/muster.v1.Client/ListEvents", "list events", kJob, kViewer, kViewer},
    {kListNodes, "/muster.v1.Client/ListNodes", "list nodes", kMember, kViewer, kViewer},
    {kReadLog, "/muster.v1.Client/ReadLog", "read logs", kJob, kViewer, kViewer},
    {kVersion, "/muster.v1.Client/Version", "ask for the version", kAnyone, kNone, kNone},
    {kWhoAmI, "/muster.v1.Client/WhoAmI", "ask who they are", kAnyone, kNone, kNone},
    {kDrain, "/muster.v1.Client/Drain", "drain nodes", kCluster, kOperator, kOperator},
    {kUndrain, "/muster.v1.Client/Undrain", "undrain nodes", kCluster, kOperator, kOperator},
    {kInjectFault, "/muster.v1.Client/InjectFault", "inject faults", kJob, kOperator, kSubmitter},
    {kVerifyCheckpoints, "/muster.v1.Client/VerifyCheckpoints", "have checkpoints read again", kJob,
     kOperator, kSubmitter},
    {kApplyQueues, "/muster.v1.Client/ApplyQueues", "apply queues", kCluster, kAdmin, kAdmin},
    {kShowQueues, "/muster.v1.Client/ShowQueues", "see queues", kMember, kViewer, kViewer},
    {kShowUsage, "/muster.v1.Client/ShowUsage", "see usage", kMember, kViewer, kViewer},
    {kExportSchedule, "/muster.v1.Client/ExportSchedule", "export the schedule", kCluster,
     kOperator, kOperator},
    {kApplyUsers, "/muster.v1.Client/ApplyUsers", "apply users", kCluster, kAdmin, kAdmin},
    {kListAudit, "/muster.v1.Client/ListAudit", "read the audit trail", kCluster, kAdmin, kAdmin},
    {kShowUsers, "/muster.v1.Client/ShowUsers", "see users", kCluster, kAdmin, kAdmin},
    {kSetSecret, "/muster.v1.Secrets/SetSecret", "store secrets", kQueue, kSubmitter, kSubmitter},
    {kListSecrets, "/muster.v1.Secrets/ListSecrets", "list secrets", kMember, kViewer, kViewer},
    {kRemoveSecret, "/muster.v1.Secrets/RemoveSecret", "remove secrets", kQueue, kSubmitter,
     kSubmitter},
    {kRotateSecretKey, "/muster.v1.Secrets/RotateSecretKey", "rotate the key of secrets", kCluster,
     kAdmin, kAdmin},
};

constexpr bool IsInOrder() {
  for (std::size_t i = 0; i < std::size(kRules); ++i)
    if (kRules[i].operation != static_cast<ClientOperation>(i)) return false;
  return true;
}
static_assert(IsInOrder());

}  // namespace

std::span<const OperationRule> OperationRules() { return kRules; }

const OperationRule& RuleOf(ClientOperation operation) {
  const auto place = static_cast<std::size_t>(operation);
  MUSTER_CHECK(place < std::size(kRules), "an operation has no rule");
  return kRules[place];
}

std::string_view Name(ClientOperation operation) {
  const std::string_view method = RuleOf(operation).method;
  return method.substr(method.rfind('/') + 1);
}

}  // namespace muster
