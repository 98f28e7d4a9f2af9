#include "worker/health/xid.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace muster::worker {
namespace {

constexpr std::string_view kResetAdvice = "drain the node and reset its GPUs";
constexpr std::string_view kRebootAdvice = "reboot the node";
constexpr std::string_view kServiceAdvice = "have the machine looked at";

struct Row {
  int xid;
  XidVerdict verdict;
};

// After NVIDIA's catalogue of Xid errors. 74 is only reported: the peer at the other end of the
// link may be the cause, and if this GPU is, the driver requests a recovery action.
constexpr auto kTable = std::to_array<Row>({
    {13, {XidAction::kRestartProcess, "graphics engine exception", ""}},
    {31, {XidAction::kRestartProcess, "memory page fault", ""}},
    {43, {XidAction::kRestartProcess, "a channel stopped", ""}},
    {45, {XidAction::kRestartProcess, "work was removed from a channel", ""}},
    {48, {XidAction::kResetGpu, "double-bit memory error", kResetAdvice}},
    {54, {XidAction::kService, "auxiliary power is not connected", kServiceAdvice}},
    {62, {XidAction::kResetGpu, "the power unit's firmware halted", kResetAdvice}},
    {63, {XidAction::kNote, "a memory row was remapped", ""}},
    {64, {XidAction::kResetGpu, "a memory row could not be remapped", kResetAdvice}},
    {69, {XidAction::kRestartProcess, "graphics engine class error", ""}},
    {74, {XidAction::kNote, "NVLink error", "look at the GPUs at both ends of the link"}},
    {79, {XidAction::kRebootNode, "the GPU has fallen off the bus", kRebootAdvice}},
    {92, {XidAction::kNote, "many corrected memory errors", ""}},
    {94, {XidAction::kRestartProcess, "contained memory error", "reset the GPU when convenient"}},
    {95, {XidAction::kResetGpu, "uncontained memory error", kResetAdvice}},
    {109, {XidAction::kResetGpu, "context switch timed out", kResetAdvice}},
    {110, {XidAction::kResetGpu, "security fault", kResetAdvice}},
    {119, {XidAction::kResetGpu, "the system processor does not answer", kResetAdvice}},
    {120, {XidAction::kResetGpu, "error of the system processor", kResetAdvice}},
    {136, {XidAction::kResetGpu, "link training failed", kResetAdvice}},
});

}  // namespace

XidVerdict JudgeXid(int xid) {
  const auto row = std::find_if(kTable.begin(), kTable.end(),
                                [xid](const Row& candidate) { return candidate.xid == xid; });
  return row != kTable.end() ? row->verdict : XidVerdict{};
}

XidVerdict JudgeRecoveryAction(int action) {
  switch (static_cast<RecoveryAction>(action)) {
    case RecoveryAction::kNone: return {};
    case RecoveryAction::kGpuReset:
      return {XidAction::kResetGpu, "the driver asks for a reset of the GPU", kResetAdvice};
    case RecoveryAction::kNodeReboot:
      return {XidAction::kRebootNode, "the driver asks for a reboot", kRebootAdvice};
    case RecoveryAction::kDrainPeerToPeer:
      return {XidAction::kResetGpu, "the driver asks to end traffic between GPUs", kResetAdvice};
    case RecoveryAction::kDrainAndReset:
      return {XidAction::kResetGpu, "the driver asks to drain and reset the GPU", kResetAdvice};
  }
  return {XidAction::kService, "the driver asks for a recovery unknown here", kServiceAdvice};
}

std::optional<int> ParseRecoveryAction(std::string_view detail) {
  constexpr std::string_view kBefore = "recovery action changed from ";
  constexpr std::string_view kTo = " to 0x";
  const std::size_t begin = detail.find(kBefore);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t to = detail.find(kTo, begin + kBefore.size());
  if (to == std::string_view::npos) return std::nullopt;
  int action = 0;
  const std::string_view number = detail.substr(to + kTo.size());
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), action, 16);
  if (error != std::errc()) return std::nullopt;
  return action;
}

}  // namespace muster::worker
