// What the NVIDIA driver's Xid errors mean for a node that trains. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster::worker {

enum class XidAction {
  kNote,            // reported; nothing follows
  kRestartProcess,  // the ranks on the GPU fail on their own; another attempt may do better
  kResetGpu,        // the node runs no ranks until the GPU was reset
  kRebootNode,
  kService,  // the machine needs service
};

struct XidVerdict {
  XidAction action = XidAction::kNote;
  std::string_view what;    // the error in a few words
  std::string_view advice;  // what to do about it

  // The node must not run ranks until it was repaired.
  bool fatal() const { return action >= XidAction::kResetGpu; }
};

// By number. Numbers that are not in the table are only reported.
XidVerdict JudgeXid(int xid);

// The driver's recovery action for a GPU: the number in Xid 154's text and in NVML's field. 0: no
// further action.
enum class RecoveryAction { kNone = 0, kGpuReset, kNodeReboot, kDrainPeerToPeer, kDrainAndReset };
XidVerdict JudgeRecoveryAction(int action);

// Xid 154 "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)": 1. Empty:
// another text.
std::optional<int> ParseRecoveryAction(std::string_view detail);

}  // namespace muster::worker
