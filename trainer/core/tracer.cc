#include "trainer/core/tracer.h"

namespace muster {

std::string_view TracePhaseName(TracePhase phase) {
  switch (phase) {
    case TracePhase::kData: return "data";
    case TracePhase::kGatherWait: return "gather wait";
    case TracePhase::kForward: return "forward";
    case TracePhase::kLoss: return "loss";
    case TracePhase::kBackward: return "backward";
    case TracePhase::kReduceWait: return "reduce wait";
    case TracePhase::kOptimizer: return "optimizer";
    case TracePhase::kCheckpoint: return "checkpoint";
  }
  return "";
}

}  // namespace muster
